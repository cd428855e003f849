//! `outlast jobs show`: one job with its payload, its attempts, its callback and its last events.

use std::time::Duration;

use serde_json::Value;

use super::attempts::{self as attempt_log, is_attempt};
use super::{attempts, error};
use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{self, Table, cell, escape, show, show_pairs};

/// Shown as they come, in this order, where they are set.
const FIELDS: [&str; 15] = [
    "pendingReason",
    "runningPhase",
    "cancelReason",
    "liveness",
    "replays",
    "deferCount",
    "priority",
    "key",
    "idempotencyKey",
    "createdAt",
    "scheduledFor",
    "queuedAt",
    "startedAt",
    "finishedAt",
    "version",
];

/// The most events a page of the API has, and the most pages that are read for one job.
const EVENTS_PAGE: usize = 1_000;
const PAGES_MAX: usize = 50;

pub(crate) async fn run(session: &Session, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], Duration::ZERO).await?;
    if session.is_json {
        return output::print_json(&job.text);
    }
    let events = job.json.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
    output::print(&render(&job, &events))
}

/// The same with the whole log in place of its end, and with what webhooks have answered.
pub(crate) async fn run_full(session: &Session, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], Duration::ZERO).await?;
    if session.is_json {
        return output::print_json(&job.text);
    }
    let events = all_events(session, id).await?;
    output::print(&render(&job, &events))?;
    output::print(&attempt_log::answers(&events))
}

async fn all_events(session: &Session, id: &str) -> Result<Vec<Value>, Failure> {
    let mut events = Vec::new();
    let mut after = 0;
    for _ in 0..PAGES_MAX {
        let path = ["v1", "jobs", id, "events"];
        let call = Call::get(&path).query("after", after.to_string()).query("limit", EVENTS_PAGE.to_string());
        let page = session.client.send(call).await?.json;
        let items = page.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let next = page.get("nextAfter").and_then(Value::as_u64).unwrap_or(after);
        if items.is_empty() || next <= after {
            return Ok(events);
        }
        after = next;
        events.extend(items);
    }
    output::note(&format!("the job has more events; these are the first {}", events.len()));
    Ok(events)
}

fn render(job: &Answer, events: &[Value]) -> String {
    let mut table = Table::bare();
    for field in ["id", "queue", "status"] {
        table.row(&[field.to_owned(), cell(&job.json, field)]);
    }
    table.row(&["attempt".to_owned(), attempts(&job.json)]);
    for field in FIELDS {
        if job.json.get(field).is_some_and(|value| !value.is_null()) {
            table.row(&[field.to_owned(), cell(&job.json, field)]);
        }
    }
    for (name, value) in [("tags", show_pairs(job.json.get("tags"))), ("error", error(&job.json))] {
        if value != "-" {
            table.row(&[name.to_owned(), value]);
        }
    }
    let mut text = table.render();
    if let Some(payload) = job.raw("payload") {
        text.push_str(&format!("\npayload\n{}\n", escape(&payload)));
    }
    if let Some(callback) = attempt_log::callback(&job.json) {
        text.push_str(&format!("\ncallback\n{callback}"));
    }
    if let Some(attempts) = attempt_log::table(events) {
        text.push_str(&format!("\n{attempts}"));
    }
    let mut table = Table::new(&["seq", "at", "type", "event"]);
    let others: Vec<&Value> = events.iter().filter(|event| !is_attempt(event)).collect();
    for event in &others {
        table.row(&[cell(event, "seq"), cell(event, "at"), cell(event, "type"), describe(event)]);
    }
    if !others.is_empty() {
        text.push_str(&format!("\n{}", table.render()));
    }
    text
}

/// What an event says beyond its place, time and type.
pub(crate) fn describe(event: &Value) -> String {
    let mut parts = Vec::new();
    if let (Some(from), Some(to)) = (event.get("from"), event.get("to")) {
        parts.push(match from {
            Value::Null => show(to),
            _ => format!("{} → {}", show(from), show(to)),
        });
    }
    for (name, value) in event.as_object().into_iter().flatten() {
        if !value.is_null() && !matches!(name.as_str(), "seq" | "at" | "type" | "from" | "to") {
            parts.push(format!("{name}={}", show(value)));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_shown_with_payload_and_events() {
        let text = r#"{"id":"j1","queue":"mail","status":"running","attempt":2,"maxAttempts":5,"version":4,
            "payload":{"amount":12345678901234567890.10},"key":null,
            "events":[{"seq":1,"at":"2026-01-01T00:00:00.000Z","type":"state","from":null,"to":"queued"},
                      {"seq":2,"at":"2026-01-01T00:00:01.000Z","type":"attempt","number":1,"outcome":"nack","error":"\u001b[2J"}]}"#;
        let json: Value = serde_json::from_str(text).unwrap();
        let events = json["events"].as_array().unwrap().clone();

        let shown = render(&Answer { status: StatusCode::OK, text: text.to_owned(), json }, &events);

        assert!(shown.contains("attempt  2/5\n"), "{shown}");
        assert!(shown.contains("{\"amount\":12345678901234567890.10}"), "{shown}");
        assert!(
            shown.contains("\n1        2026-01-01T00:00:01.000Z  -      nack     -       -     \\u{1b}[2J"),
            "{shown}"
        );
        assert!(shown.contains("\n1    2026-01-01T00:00:00.000Z  state  queued\n"), "{shown}");
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn a_state_event_reads_as_a_change() {
        let event =
            json!({"seq": 3, "at": "x", "type": "state", "from": "running", "to": "queued", "reason": "lease_lost"});

        assert_eq!(describe(&event), "running → queued reason=lease_lost");
    }
}
