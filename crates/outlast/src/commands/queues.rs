//! `outlast queues`: make, inspect and operate queues.

pub(crate) mod shortcut;

mod flags;
mod create;
mod secret;
mod inspect;
mod peek;
mod dead;
mod drain;

use clap::Subcommand;
use serde_json::Value;

use super::Session;
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Failure};
use crate::output::{self, Table, cell, escape, show};

use dead::{Dlq, Retry};
use drain::Drain;
use inspect::Inspect;
use peek::Peek;

/// More queues than a list is good for; reached only with a queue per customer.
const QUEUES_MAX: usize = 10_000;

/// Below the help of the noun.
const SHORTCUTS: &str =
    "inspect, peek, dlq, retry and drain also work without the word queues, as in `outlast peek mail`.";

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{SHORTCUTS}\n\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the queues and what is in them
    #[command(after_help = EXIT_CODES)]
    List,
    /// Make a queue
    #[command(after_help = EXIT_CODES)]
    Create(create::Create),
    /// Change settings of a queue; what is not given stays
    #[command(after_help = EXIT_CODES)]
    Update(create::Update),
    /// Make a new signing secret and show it, once
    #[command(after_help = EXIT_CODES)]
    RotateSecret(secret::Rotate),
    /// Show settings, counts and recent jobs
    #[command(after_help = EXIT_CODES, visible_alias = "show")]
    Inspect(Inspect),
    /// Show the next waiting jobs without taking them
    #[command(after_help = EXIT_CODES)]
    Peek(Peek),
    /// Show the dead letters, the newest first
    #[command(after_help = EXIT_CODES)]
    Dlq(Dlq),
    /// Replay dead letters: all of them, or those that are named
    #[command(after_help = EXIT_CODES)]
    Retry(Retry),
    /// Cancel every waiting job
    #[command(after_help = EXIT_CODES)]
    Drain(Drain),
    /// Stop handing out jobs; publishing goes on
    #[command(after_help = EXIT_CODES)]
    Pause { name: String },
    /// Hand out jobs again
    #[command(after_help = EXIT_CODES)]
    Resume { name: String },
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<(), Failure> {
    let session = Session::open(&args.remote, environment)?;
    match args.action {
        Action::List => list(&session).await,
        Action::Create(create) => create::create(&session, &create).await,
        Action::Update(update) => create::update(&session, &update).await,
        Action::RotateSecret(rotate) => secret::rotate(&session, &rotate).await,
        Action::Inspect(args) => inspect::run(&session, &args).await,
        Action::Peek(args) => peek::run(&session, &args).await,
        Action::Dlq(args) => dead::list(&session, &args).await,
        Action::Retry(args) => dead::retry(&session, &args).await,
        Action::Drain(args) => drain::run(&session, &args).await,
        Action::Pause { name } => switch(&session, &name, "pause").await,
        Action::Resume { name } => switch(&session, &name, "resume").await,
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let page = session.client.list(&["v1", "queues"], &[], None, QUEUES_MAX).await?;
    if session.is_json {
        return output::print_json(&page.to_json()?);
    }
    if page.items.is_empty() {
        return output::print("no queues\n");
    }
    output::print(&table(&page.values()))
}

fn table(queues: &[Value]) -> String {
    let mut table = Table::new(&["name", "mode", "source", "depth", "pending", "running", "dead", "paused"]);
    for queue in queues {
        let source = show(queue.pointer("/declared/source").unwrap_or(&Value::Null));
        let mut row = vec![cell(queue, "name"), cell(queue, "mode"), source];
        row.extend(["queued", "pending", "running", "failed"].map(|status| count(queue, status)));
        row.push(yes_or_no(queue, "paused"));
        table.row(&row);
    }
    for column in 3..7 {
        table.align_right(column);
    }
    table.render()
}

/// How many jobs of a queue are in a state.
fn count(queue: &Value, status: &str) -> String {
    show(queue.pointer(&format!("/counts/{status}")).unwrap_or(&Value::Null))
}

async fn switch(session: &Session, name: &str, verb: &str) -> Result<(), Failure> {
    let answer = session.client.send(Call::post(&["v1", "queues", name, verb])).await?;
    if session.is_json {
        return output::print_json(&answer.text);
    }
    output::print(&format!("queue \"{}\" is {verb}d\n", escape(name)))
}

fn yes_or_no(object: &Value, field: &str) -> String {
    match object.get(field) {
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_has_what_waits_runs_and_is_dead() {
        let counts = json!({"pending": 4, "queued": 1200, "running": 2, "succeeded": 9, "failed": 3});
        let queues = [
            json!({"name": "billing", "mode": "pull", "paused": true, "counts": counts, "declared": {"source": "stripe"}}),
            json!({"name": "mail", "mode": "standard", "paused": false, "counts": {}}),
        ];

        assert_eq!(
            table(&queues),
            "NAME     MODE      SOURCE  DEPTH  PENDING  RUNNING  DEAD  PAUSED\n\
             billing  pull      stripe   1200        4        2     3  yes\n\
             mail     standard  -           -        -        -     -  no\n"
        );
    }
}
