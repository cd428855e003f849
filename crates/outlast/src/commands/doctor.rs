//! `outlast doctor`: looks at configuration, data directory (or database and Redis), object store, server and key, and says
//! what is wrong. It repairs nothing, and writes nothing but a small object that it removes again.

mod damage;
mod disk;
mod files;
mod objects;
mod services;
mod server;

use serde_json::json;

use crate::client::{Remote, find};
use crate::config::{Config, Environment, Flags};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, Table, escape};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// Worth a look; the server works.
    Warn,
    /// Something does not work.
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub finding: String,
}

impl Check {
    pub(crate) fn new(name: &'static str, verdict: Verdict, finding: impl Into<String>) -> Check {
        Check { name, verdict, finding: finding.into() }
    }
}

pub(crate) async fn run(args: &Args, environment: &Environment) -> Result<(), Failure> {
    let mut checks = Vec::new();
    let flags = Flags { data: args.remote.data.clone(), config: args.remote.config.clone(), ..Flags::default() };
    let loaded = Config::load(&flags, environment);
    checks.extend(configuration(&loaded));
    // A broken file may name another directory; then the one the command line would use is looked at.
    let data = match &loaded {
        Ok(config) => config.data.clone(),
        Err(_) => find::data_directory(&args.remote, environment, None),
    };
    match &loaded {
        Ok(config) if config.external.database_url.is_some() => checks.extend(services::checks(config).await),
        // The directory of an embedded store; with a database there is nothing in it but the key.
        _ => {
            checks.extend(disk::checks(&data));
            checks.extend(damage::check(&data));
        }
    }
    if let Ok(config) = &loaded {
        checks.push(objects::check(config).await);
    }
    let remote = Remote { data: Some(data), ..args.remote.clone() };
    match server::checks(&remote, environment).await {
        Ok(answers) => checks.extend(answers),
        // The file that names the address is broken; what is wrong with it was said above.
        Err(failure) if loaded.is_err() => {
            checks.push(Check::new("server", Verdict::Warn, format!("not checked: {}", failure.message)));
        }
        Err(failure) => return Err(failure),
    }
    print(&checks, args.remote.json)?;

    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Refused, "1 check failed")),
        _ => Err(Failure::new(Exit::Refused, format!("{failed} checks failed"))),
    }
}

fn configuration(loaded: &Result<Config, Vec<crate::config::problem::Problem>>) -> Vec<Check> {
    let Err(problems) = loaded else {
        return vec![Check::new("configuration", Verdict::Ok, "valid")];
    };
    problems.iter().map(|problem| Check::new("configuration", Verdict::Fail, problem.to_string())).collect()
}

fn print(checks: &[Check], is_json: bool) -> Result<(), Failure> {
    if is_json {
        let mut listed = Vec::new();
        for check in checks {
            listed.push(json!({"check": check.name, "verdict": check.verdict.word(), "finding": check.finding}));
        }
        return output::print_json(&json!({"checks": listed}).to_string());
    }
    let mut table = Table::new(&["check", "result"]);
    let mut findings = Vec::new();
    for check in checks {
        table.row(&[check.name.to_owned(), check.verdict.word().to_owned()]);
        findings.push(escape(&check.finding));
    }
    // Findings are not cut like table cells: they say what to do.
    let rendered = table.render();
    let width = rendered.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (at, line) in rendered.lines().enumerate() {
        let finding = at.checked_sub(1).and_then(|row| findings.get(row)).map_or("FINDING", String::as_str);
        text.push_str(&format!("{line:<width$}  {finding}\n"));
    }
    output::print(&text)
}
