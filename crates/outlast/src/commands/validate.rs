//! `outlast validate`: reads a configuration exactly as the server would and explains every problem; a
//! sound one it sums up, without its secrets.

use serde_json::{Value, json};

use crate::client::{NoServer, Remote};
use crate::config::problem::Problem;
use crate::config::queues::{QueueConfig, Subscription};
use crate::config::sources::SourceConfig;
use crate::config::{Config, Environment, Flags, config_path};
use crate::display::Display;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, cell, escape};
use crate::table::{Cell, Column, Table};

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    no_server: NoServer,
}

pub(crate) fn run(_args: &Args, remote: &Remote, environment: &Environment) -> Result<(), Failure> {
    let flags = Flags { config: remote.config.clone(), ..Flags::default() };
    let loaded = Config::load(&flags, environment);
    if remote.json {
        output::print_json(&to_json(&loaded))?;
    } else if let Ok(config) = &loaded {
        let file = config_path(remote.config.as_ref(), environment);
        let name = file.map_or("the configuration".to_owned(), |path| path.display().to_string());
        output::print(&format!("{} is valid\n{}", escape(&name), summary(config, Display::of_stdout(environment))))?;
    }
    let Err(problems) = loaded else {
        return Ok(());
    };
    let failure = Failure::configuration(&problems);
    // With --json the document on stdout has the details already.
    Err(if remote.json { Failure { details: Vec::new(), ..failure }.printed() } else { failure })
}

/// The sources and queues of the file, without anything that may be secret.
fn summary(config: &Config, display: Display) -> String {
    let mut text = String::new();
    if !config.sources.is_empty() {
        let mut table = Table::new(&[Column::text("source"), Column::text("path"), Column::fixed("verify")]);
        for source in &config.sources {
            table.row([&source.name, &source.path, source.verify.name()].map(Cell::from));
        }
        text.push_str(&format!("\n{}", table.render(display)));
    }
    if !config.queues.is_empty() {
        let mut table = Table::new(&["queue", "source", "events", "filter"].map(Column::text));
        for queue in &config.queues {
            let shown = queue_json(queue);
            let events = queue.subscription.as_ref().map(|subscription| patterns(subscription).join(" "));
            let events = events.unwrap_or_else(|| "-".to_owned());
            table.row([queue.name.clone(), cell(&shown, "source"), events, cell(&shown, "filter")].map(Cell::from));
        }
        text.push_str(&format!("\n{}", table.render(display)));
    }
    text
}

fn to_json(loaded: &Result<Config, Vec<Problem>>) -> String {
    let problems = match loaded {
        Ok(config) => {
            let sources: Vec<Value> = config.sources.iter().map(source_json).collect();
            let queues: Vec<Value> = config.queues.iter().map(queue_json).collect();
            return json!({"valid": true, "problems": [], "sources": sources, "queues": queues}).to_string();
        }
        Err(problems) => problems,
    };
    let mut listed = Vec::new();
    for problem in problems {
        listed.push(json!({
            "where": problem.origin.to_string(),
            "message": problem.message,
            "hint": problem.hint,
        }));
    }
    json!({"valid": false, "problems": listed}).to_string()
}

fn source_json(source: &SourceConfig) -> Value {
    json!({"name": source.name, "path": source.path, "verify": source.verify.name()})
}

fn queue_json(queue: &QueueConfig) -> Value {
    let subscription = queue.subscription.as_ref();
    json!({
        "name": queue.name,
        "source": subscription.map(|subscription| &subscription.source),
        "events": subscription.map(patterns),
        "filter": subscription.and_then(|subscription| subscription.filter.as_ref()).map(ToString::to_string),
    })
}

fn patterns(subscription: &Subscription) -> Vec<String> {
    subscription.events.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = r#"
sources:
  stripe: {path: /webhook/stripe, verify: stripe, secret: hunter2}
  orders: {verify: hmac, header: X-Signature, secrets: [hunter2, hunter3]}
queues:
  billing:
    source: stripe
    events: [invoice.paid, charge.*]
    filter: "$.data.object.amount_due >= 1000"
    api_key: hunter2hunter2hunter2
  mail: {max_attempts: 3}
"#;

    fn load(yaml: &str) -> Result<Config, Vec<Problem>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outlast.yaml");
        std::fs::write(&path, yaml).unwrap();
        Config::load(&Flags { config: Some(path), ..Flags::default() }, &Environment::default())
    }

    #[test]
    fn a_sound_file_is_summed_up_without_its_secrets() {
        let config = load(YAML).unwrap();

        let text = summary(&config, Display::PLAIN);

        let expected = "
SOURCE  PATH              VERIFY
stripe  /webhook/stripe   stripe
orders  /webhooks/orders  hmac

QUEUE    SOURCE  EVENTS                 FILTER
billing  stripe  invoice.paid charge.*  $.data.object.amount_due >= 1000
mail     -       -                      -
";
        assert_eq!(text, expected);
        assert_eq!(summary(&load("").unwrap(), Display::PLAIN), "");
    }

    #[test]
    fn the_document_has_the_same_or_every_problem() {
        let sound: Value = serde_json::from_str(&to_json(&load(YAML))).unwrap();
        let faulty: Value = serde_json::from_str(&to_json(&load("queues: {m: {max_attempt: 1, mode: x}}\n"))).unwrap();

        assert_eq!((&sound["valid"], &sound["problems"]), (&json!(true), &json!([])));
        assert_eq!(sound["sources"][1], json!({"name": "orders", "path": "/webhooks/orders", "verify": "hmac"}));
        assert_eq!(sound["queues"][0]["events"], json!(["invoice.paid", "charge.*"]));
        assert_eq!(sound["queues"][1], json!({"name": "mail", "source": null, "events": null, "filter": null}));
        assert!(!sound.to_string().contains("hunter"));
        assert_eq!(faulty["problems"].as_array().unwrap().len(), 2, "{faulty}");
        assert_eq!(faulty["problems"][0]["hint"], "did you mean \"max_attempts\"?");
    }
}
