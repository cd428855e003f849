//! `outlast queues`: make, inspect and operate queues.

mod flags;
mod create;
mod secret;
mod dead;

use std::time::Duration;

use clap::Subcommand;
use serde_json::Value;

use super::{Session, jobs, operation};
use crate::client::{Call, Remote};
use crate::config::Environment;
use crate::failure::{EXIT_CODES, Exit, Failure};
use crate::output::{self, Table, cell, escape, show, show_pairs};

/// More queues than a list is good for; reached only with a queue per customer.
const QUEUES_MAX: usize = 10_000;

/// How many waiting jobs `peek` looks at to find the next ones: the API lists the newest first.
const PEEK_WINDOW: usize = 5_000;

const STATUSES: [&str; 7] = ["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"];

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
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
    Inspect {
        name: String,
        /// How many recent jobs
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show the next waiting jobs without taking them
    #[command(after_help = EXIT_CODES)]
    Peek {
        name: String,
        /// How many jobs
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
        limit: u16,
    },
    /// Show the dead letters, the newest first
    #[command(after_help = EXIT_CODES)]
    Dlq {
        name: String,
        /// How many dead letters
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Go on behind the nextCursor of an earlier list
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Replay dead letters: all of them, or one
    #[command(after_help = EXIT_CODES)]
    Retry(dead::Retry),
    /// Cancel every waiting job
    #[command(after_help = EXIT_CODES)]
    Drain {
        name: String,
        /// Really do it
        #[arg(long)]
        force: bool,
    },
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
        Action::Inspect { name, limit } => inspect(&session, &name, limit).await,
        Action::Peek { name, limit } => peek(&session, &name, usize::from(limit)).await,
        Action::Dlq { name, limit, cursor } => dead::list(&session, &name, limit, cursor).await,
        Action::Retry(retry) => dead::retry(&session, &retry).await,
        Action::Drain { name, force } => drain(&session, &name, force).await,
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
    let mut header = vec!["name", "mode", "paused"];
    header.extend(STATUSES);
    let mut table = Table::new(&header);
    for queue in page.values() {
        let mut row = vec![cell(&queue, "name"), cell(&queue, "mode"), yes_or_no(&queue, "paused")];
        row.extend(STATUSES.map(|status| show(queue.pointer(&format!("/counts/{status}")).unwrap_or(&Value::Null))));
        table.row(&row);
    }
    for column in 3..3 + STATUSES.len() {
        table.align_right(column);
    }
    output::print(&table.render())
}

async fn inspect(session: &Session, name: &str, limit: usize) -> Result<(), Failure> {
    let queue = session.client.send(Call::get(&["v1", "queues", name])).await?;
    let query = [("queue", name.to_owned())];
    let recent = session.client.list(&["v1", "jobs"], &query, None, limit).await?;
    if session.is_json {
        return output::print_json(&format!("{{\"queue\":{},\"jobs\":{}}}", queue.text.trim(), recent.to_json()?));
    }
    output::print(&settings_table(&queue.json))?;
    output::print(&format!("\n{}", counts_table(&queue.json)))?;
    if recent.items.is_empty() {
        return output::print("\nno jobs\n");
    }
    output::print(&format!("\n{}", jobs::table(&recent.values())))
}

/// What a reader looks for first; the rest follows as it came.
const FIRST: [&str; 6] = ["name", "mode", "webhookUrl", "paused", "hold", "pace"];

/// Everything that is set, names as in the API.
fn settings_table(queue: &Value) -> String {
    let mut table = Table::bare();
    let fields: Vec<(&str, &Value)> =
        queue.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)).collect();
    let first = FIRST.iter().filter_map(|name| queue.get(name).map(|value| (*name, value)));
    let rest = fields.into_iter().filter(|(name, _)| !FIRST.contains(name) && *name != "counts");
    for (name, value) in first.chain(rest) {
        let shown = if value.is_object() { show_pairs(Some(value)) } else { show(value) };
        if shown != "-" {
            table.row(&[name.to_owned(), shown]);
        }
    }
    table.render()
}

fn counts_table(queue: &Value) -> String {
    let mut table = Table::new(&STATUSES);
    table.row(&STATUSES.map(|status| show(queue.pointer(&format!("/counts/{status}")).unwrap_or(&Value::Null))));
    table.render()
}

async fn peek(session: &Session, name: &str, limit: usize) -> Result<(), Failure> {
    // An unknown queue must be told apart from an empty one.
    session.client.send(Call::get(&["v1", "queues", name])).await?;
    let query = [("queue", name.to_owned()), ("status", "queued".to_owned())];
    let window = session.client.list(&["v1", "jobs"], &query, None, PEEK_WINDOW).await?;
    if window.next_cursor.is_some() {
        output::note(&format!("more than {PEEK_WINDOW} jobs wait; these are the first of the newest {PEEK_WINDOW}"));
    }
    let mut texts = Vec::new();
    let mut waiting = Vec::new();
    for id in first_ids(window.values(), limit) {
        match session.client.job(&id, &[], Duration::ZERO).await {
            Ok(job) => {
                waiting.push((cell(&job.json, "id"), job.raw("payload"), job.json));
                texts.push(job.text);
            }
            // Purged between the two calls.
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    if session.is_json {
        return output::print_json(&format!("{{\"items\":[{}],\"nextCursor\":null}}", texts.join(",")));
    }
    if waiting.is_empty() {
        return output::print(&format!("nothing waits in queue \"{}\"\n", escape(name)));
    }
    let mut table = Table::new(&["id", "priority", "attempt", "queued", "payload"]);
    for (id, payload, job) in waiting {
        let payload = payload.unwrap_or_else(|| "-".to_owned());
        table.row(&[id, cell(&job, "priority"), jobs::attempts(&job), cell(&job, "queuedAt"), payload]);
    }
    output::print(&table.render())
}

/// Ids in the order of hand-out: higher priority first, then the one that waits longest.
fn first_ids(mut jobs: Vec<Value>, limit: usize) -> Vec<String> {
    jobs.sort_by_cached_key(|job| {
        let priority = job.get("priority").and_then(Value::as_i64).unwrap_or_default();
        (-priority, cell(job, "queuedAt"), cell(job, "id"))
    });
    jobs.iter().take(limit).map(|job| cell(job, "id")).collect()
}

async fn drain(session: &Session, name: &str, force: bool) -> Result<(), Failure> {
    if !force {
        return Err(Failure::usage(format!("draining cancels every waiting job of queue \"{name}\""))
            .with_hint("repeat the command with --force if that is what you want"));
    }
    let started = session.client.send(Call::post(&["v1", "queues", name, "purge"])).await?;
    operation::follow(session, started).await
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
    fn peek_orders_by_priority_and_then_by_waiting_time() {
        let jobs = vec![
            json!({"id": "c", "priority": 0, "queuedAt": "2026-01-03T00:00:00.000Z"}),
            json!({"id": "b", "priority": 0, "queuedAt": "2026-01-01T00:00:00.000Z"}),
            json!({"id": "z", "priority": 9, "queuedAt": "2026-01-09T00:00:00.000Z"}),
            json!({"id": "low", "priority": -5, "queuedAt": "2025-01-01T00:00:00.000Z"}),
        ];

        assert_eq!(first_ids(jobs.clone(), 10), ["z", "b", "c", "low"]);
        assert_eq!(first_ids(jobs, 2), ["z", "b"]);
    }

    #[test]
    fn settings_show_what_is_set_and_nothing_else() {
        let queue = json!({
            "maxAttempts": 5, "jobTimeout": null, "headers": {}, "counts": {"queued": 1}, "name": "mail",
            "webhookUrl": "https://example.com/", "hold": {"reason": "http_429", "probing": false},
        });

        assert_eq!(
            settings_table(&queue),
            "name         mail\nwebhookUrl   https://example.com/\nhold         reason=http_429 probing=false\nmaxAttempts  5\n"
        );
    }
}
