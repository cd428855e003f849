//! `outlast queues peek`: shows the next waiting jobs without receiving them.

use std::time::Duration;

use serde_json::Value;

use crate::age;
use crate::client::Call;
use crate::commands::{Session, jobs};
use crate::failure::{Exit, Failure};
use crate::output::{self, cell, escape};
use crate::table::{Cell, Column, Table};

/// Waiting jobs that are read to find the next ones: the API lists the newest first.
const WINDOW: usize = 5_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Peek {
    name: String,
    /// Number of jobs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    limit: u16,
}

pub(crate) async fn run(session: &Session, args: &Peek) -> Result<(), Failure> {
    let name = args.name.as_str();
    // Fails for an unknown queue, which the list would show as an empty one.
    session.client.send(Call::get(&["v1", "queues", name])).await?;
    let query = [("queue", name.to_owned()), ("status", "queued".to_owned())];
    let window = session.client.list(&["v1", "jobs"], &query, None, WINDOW).await?;
    if window.next_cursor.is_some() {
        output::note(&format!("more than {WINDOW} jobs are waiting; these are the next of the newest {WINDOW}"));
    }
    let mut texts = Vec::new();
    let mut waiting = Vec::new();
    for id in first_ids(window.values(), usize::from(args.limit)) {
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
        return output::print(&format!("no waiting jobs in queue \"{}\"\n", escape(name)));
    }
    let mut table = Table::new(&[
        Column::fixed("id"),
        Column::number("priority").rank(1),
        Column::fixed("attempts").rank(2),
        Column::fixed("waiting"),
        Column::text("payload").at_least(12),
    ]);
    let now = age::now();
    for (id, payload, job) in waiting {
        let payload = payload.unwrap_or_else(|| "-".to_owned());
        let waiting = age::age(job.get("queuedAt").unwrap_or(&Value::Null), now);
        table.row([id, cell(&job, "priority"), jobs::attempts(&job), waiting, payload].map(Cell::from));
    }
    output::print(&table.render(session.display))
}

/// Ids in the order of hand-out: higher priority first, then the one that waits longest.
fn first_ids(mut jobs: Vec<Value>, limit: usize) -> Vec<String> {
    jobs.sort_by_cached_key(|job| {
        let priority = job.get("priority").and_then(Value::as_i64).unwrap_or_default();
        (-priority, cell(job, "queuedAt"), cell(job, "id"))
    });
    jobs.iter().take(limit).map(|job| cell(job, "id")).collect()
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
}
