//! `outlast sources`: the sources of a configuration file. Reads the file only, and shows no secret.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{NoServer, Remote};
use crate::config::sources::SourceConfig;
use crate::config::{Config, Environment, Flags, config_path};
use crate::display::Display;
use crate::failure::{EXIT_CODES, Failure};
use crate::output;
use crate::table::{Cell, Column, Table};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    no_server: NoServer,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the sources and the queues that take their events
    #[command(after_help = EXIT_CODES)]
    List,
}

pub(crate) fn run(args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let config = load(remote.config.as_ref(), environment)?;
    match args.action {
        Action::List if remote.json => output::print_json(&to_json(&config)),
        Action::List => output::print(&to_text(&config, Display::of_stdout(environment))),
    }
}

/// Loads the whole file, for commands that need one.
pub(crate) fn load(flag: Option<&PathBuf>, environment: &Environment) -> Result<Config, Failure> {
    let Some(path) = config_path(flag, environment) else {
        return Err(Failure::usage("sources are declared in the configuration file, and none is given")
            .with_hint("give it with -c or OUTLAST_CONFIG, or name it outlast.yaml in this directory"));
    };
    let flags = Flags { config: Some(path), ..Flags::default() };
    Config::load(&flags, environment).map_err(|problems| Failure::configuration(&problems))
}

fn to_text(config: &Config, display: Display) -> String {
    if config.sources.is_empty() {
        return "no sources\n".to_owned();
    }
    let mut table =
        Table::new(&[Column::text("name"), Column::text("path"), Column::fixed("scheme"), Column::text("queues")]);
    for source in &config.sources {
        let queues = match takers(config, source).join(" ") {
            names if names.is_empty() => "-".to_owned(),
            names => names,
        };
        table.row([&source.name, &source.path, source.verify.name(), &queues].map(Cell::from));
    }
    table.render(display)
}

fn to_json(config: &Config) -> String {
    let mut sources = Vec::new();
    for source in &config.sources {
        sources.push(json!({
            "name": source.name,
            "path": source.path,
            "scheme": source.verify.name(),
            "queues": takers(config, source),
        }));
    }
    json!({"sources": Value::Array(sources)}).to_string()
}

/// The queues that take events of a source.
fn takers<'a>(config: &'a Config, source: &SourceConfig) -> Vec<&'a str> {
    let mut names = Vec::new();
    for queue in &config.queues {
        if queue.subscription.as_ref().is_some_and(|subscription| subscription.source == source.name) {
            names.push(queue.name.as_str());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "
sources:
  stripe: {path: /webhook/stripe, verify: stripe, secret: hunter2}
  orders: {verify: hmac, header: X-Signature, secrets: [hunter2, hunter3]}
queues:
  billing: {source: stripe, events: [invoice.paid], api_key: hunter4hunter4hunter4}
  audit: {source: stripe}
  mail: {max_attempts: 3}
";

    fn config(yaml: &str) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outlast.yaml");
        std::fs::write(&path, yaml).unwrap();
        load(Some(&path), &Environment::default()).unwrap()
    }

    #[test]
    fn sources_are_listed_with_their_queues_and_without_secrets() {
        let config = config(YAML);

        let expected = "\
NAME    PATH              SCHEME  QUEUES
stripe  /webhook/stripe   stripe  billing audit
orders  /webhooks/orders  hmac    -
";
        assert_eq!(to_text(&config, Display::PLAIN), expected);
        let document: Value = serde_json::from_str(&to_json(&config)).unwrap();
        assert_eq!(
            document["sources"][0],
            json!({"name": "stripe", "path": "/webhook/stripe", "scheme": "stripe", "queues": ["billing", "audit"]})
        );
        assert!(!document.to_string().contains("hunter"));
        assert_eq!(to_text(&self::config(""), Display::PLAIN), "no sources\n");
    }

    #[test]
    fn without_a_file_there_is_nothing_to_list() {
        let failure = load(None, &Environment::default()).unwrap_err();

        assert!(failure.hint.is_some_and(|hint| hint.contains("-c")));
    }
}
