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
use crate::display::{Display, status_style};
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, escape};
use crate::table::wrap;

/// Findings keep at least this width, however narrow the terminal is.
const FINDING_WIDTH_MIN: usize = 30;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    // The server and the file are global flags.
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

pub(crate) async fn run(_args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let mut checks = Vec::new();
    let flags = Flags { data: remote.data.clone(), config: remote.config.clone(), ..Flags::default() };
    let loaded = Config::load(&flags, environment);
    checks.extend(configuration(&loaded));
    // A broken file may name another directory; then the one the command line would use is looked at.
    let data = match &loaded {
        Ok(config) => config.data.clone(),
        Err(_) => find::data_directory(remote, environment, None),
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
    let remote = Remote { data: Some(data), ..remote.clone() };
    match server::checks(&remote, environment).await {
        Ok(answers) => checks.extend(answers),
        // The file that names the address is broken; what is wrong with it was said above.
        Err(failure) if loaded.is_err() => {
            checks.push(Check::new("server", Verdict::Warn, format!("not checked: {}", failure.message)));
        }
        Err(failure) => return Err(failure),
    }
    print(&checks, remote.json, Display::of_stdout(environment))?;

    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Refused, "1 check failed").printed()),
        _ => Err(Failure::new(Exit::Refused, format!("{failed} checks failed")).printed()),
    }
}

fn configuration(loaded: &Result<Config, Vec<crate::config::problem::Problem>>) -> Vec<Check> {
    let Err(problems) = loaded else {
        return vec![Check::new("configuration", Verdict::Ok, "valid")];
    };
    problems.iter().map(|problem| Check::new("configuration", Verdict::Fail, problem.to_string())).collect()
}

fn print(checks: &[Check], is_json: bool, display: Display) -> Result<(), Failure> {
    if is_json {
        let mut listed = Vec::new();
        for check in checks {
            listed.push(json!({"check": check.name, "verdict": check.verdict.word(), "finding": check.finding}));
        }
        return output::print_json(&json!({"checks": listed}).to_string());
    }
    let names = checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let indent = names + "  fail  ".len();
    let mut text = String::new();
    for check in checks {
        let (word, finding) = (check.verdict.word(), escape(&check.finding));
        let room = display.width.map(|width| width.saturating_sub(indent).max(FINDING_WIDTH_MIN));
        // Findings are wrapped, not cut: they say what to do.
        let mut lines = room.map_or_else(|| vec![finding.clone()], |room| wrap(&finding, room)).into_iter();
        let verdict = display.paint(&format!("{word:<4}"), status_style(word));
        let name = check.name;
        text.push_str(&format!("{name:<names$}  {verdict}  {}\n", lines.next().unwrap_or_default()));
        for line in lines {
            text.push_str(&format!("{}{line}\n", " ".repeat(indent)));
        }
    }
    output::print(&text)
}
