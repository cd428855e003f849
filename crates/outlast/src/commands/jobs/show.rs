//! `outlast jobs show`: one job with its payload and its last events.

use std::time::Duration;

use serde_json::Value;

use super::{attempts, error};
use crate::client::Answer;
use crate::commands::Session;
use crate::failure::Failure;
use crate::output::{self, Table, cell, escape, show, show_pairs};

/// Shown as they come, in this order, where they are set.
const FIELDS: [&str; 15] = [
    "pendingReason",
    "runningPhase",
    "cancelReason",
    "liveness",
    "run",
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

pub(crate) async fn run(session: &Session, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], Duration::ZERO).await?;
    if session.is_json {
        return output::print_json(&job.text);
    }
    output::print(&render(&job))
}

fn render(job: &Answer) -> String {
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
    let events = job.json.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
    if !events.is_empty() {
        let mut table = Table::new(&["seq", "at", "type", "event"]);
        for event in &events {
            table.row(&[cell(event, "seq"), cell(event, "at"), cell(event, "type"), describe(event)]);
        }
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
        let json = serde_json::from_str(text).unwrap();

        let shown = render(&Answer { status: StatusCode::OK, text: text.to_owned(), json });

        assert!(shown.contains("attempt  2/5\n"), "{shown}");
        assert!(shown.contains("{\"amount\":12345678901234567890.10}"), "{shown}");
        assert!(shown.contains("number=1 outcome=nack error=\\u{1b}[2J"), "{shown}");
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn a_state_event_reads_as_a_change() {
        let event =
            json!({"seq": 3, "at": "x", "type": "state", "from": "running", "to": "queued", "reason": "lease_lost"});

        assert_eq!(describe(&event), "running → queued reason=lease_lost");
    }
}
