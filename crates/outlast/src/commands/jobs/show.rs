//! `outlast jobs show`: one job with its worker, lease and progress, its payload, attempts, callback and last events.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::attempts::{self as attempt_log, is_attempt};
use super::{attempts, error, last_error};
use crate::age;
use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::display::{Display, Style};
use crate::failure::Failure;
use crate::output::{self, cell, escape, show, show_pairs};
use crate::progress_bar::{self, size};
use crate::table::{Cell, Column, Pairs, Table};

/// Shown as they come, in this order, where they are set.
const FIELDS: [&str; 8] =
    ["pendingReason", "cancelReason", "replays", "deferCount", "priority", "key", "idempotencyKey", "version"];
const TIMES: [&str; 5] = ["createdAt", "scheduledFor", "queuedAt", "startedAt", "finishedAt"];

/// The most events a page of the API has, and the most pages that are read for one job.
const EVENTS_PAGE: usize = 1_000;
const PAGES_MAX: usize = 50;

pub(crate) async fn run(session: &Session, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], Duration::ZERO).await?;
    if session.is_json {
        return output::print_json(&job.text);
    }
    let events = job.json.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
    output::print(&render(&job, &events, session.display))
}

/// The same with the whole log and the stored responses of webhooks.
pub(crate) async fn run_full(session: &Session, id: &str) -> Result<(), Failure> {
    let job = session.client.job(id, &[], Duration::ZERO).await?;
    if session.is_json {
        return output::print_json(&job.text);
    }
    let events = all_events(session, id).await?;
    output::print(&render(&job, &events, session.display))?;
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

fn render(job: &Answer, events: &[Value], display: Display) -> String {
    let mut text = summary(&job.json, display);
    if let Some(payload) = job.raw("payload") {
        text.push_str(&format!("\n{}\n{}\n", display.paint("payload", Style::Heading), escape(&payload)));
    }
    if let Some(callback) = attempt_log::callback(&job.json, display) {
        text.push_str(&format!("\n{}\n{callback}", display.paint("callback", Style::Heading)));
    }
    if let Some(attempts) = attempt_log::table(events, display) {
        text.push_str(&format!("\n{attempts}"));
    }
    let mut table =
        Table::new(&[Column::number("seq"), Column::fixed("at"), Column::fixed("type"), Column::text("event")]);
    let others: Vec<&Value> = events.iter().filter(|event| !is_attempt(event)).collect();
    for event in &others {
        table.row([cell(event, "seq"), cell(event, "at"), cell(event, "type"), describe(event)].map(Cell::from));
    }
    if !others.is_empty() {
        text.push_str(&format!("\n{}", table.render(display)));
    }
    text
}

/// The job's own fields: what it is, who works on it and how far that is, what came of it, and when.
fn summary(job: &Value, display: Display) -> String {
    let (mut pairs, now) = (Pairs::default(), age::now());
    let set = |name: &str| job.get(name).filter(|value| !value.is_null());
    pairs.row("id", cell(job, "id"));
    pairs.row("queue", cell(job, "queue"));
    pairs.row("status", Cell::status(cell(job, "status")));
    pairs.row("attempts", attempts(job));
    if job.get("status").and_then(Value::as_str) == Some("running") {
        running(&mut pairs, job, now);
    }
    let progress = set("progress").map(|progress| progress_bar::describe(progress, now));
    pairs.row_some("progress", progress.filter(|progress| !progress.is_empty()));
    pairs.row_some("error", error(job).map(|error| Cell::styled(error, Style::Bad)));
    pairs.row_some("lastError", last_error(job).filter(|_| error(job).is_none()));
    pairs.row_some("checkpoint", set("checkpoint").map(|checkpoint| checkpoint_line(checkpoint, now)));
    pairs.row_some("result", set("resultMeta").map(result_line));
    for field in FIELDS {
        // Zero is the default of every number here.
        pairs.row_some(field, set(field).map(show).filter(|value| value != "0"));
    }
    pairs.row_some("tags", Some(show_pairs(job.get("tags"))).filter(|tags| tags != "-"));
    for field in TIMES {
        pairs.row_some(field, set(field).map(|at| age::stamp(at, now)));
    }
    pairs.render(display)
}

/// The worker of the job and whether it makes progress.
fn running(pairs: &mut Pairs, job: &Value, now: Timestamp) {
    let set = |name: &str| job.get(name).filter(|value| !value.is_null());
    pairs.row_some("phase", set("runningPhase").map(show));
    pairs.row("worker", set("worker").map_or("(unnamed)".to_owned(), show));
    pairs.row_some("leaseExpiresAt", set("leaseExpiresAt").map(|at| age::stamp(at, now)));
    pairs.row("lastHeartbeatAt", set("lastHeartbeatAt").map_or("(none yet)".to_owned(), |at| age::stamp(at, now)));
    pairs.row_some("liveness", set("liveness").map(|word| Cell::status(show(word))));
    if job.get("stalled") == Some(&Value::Bool(true)) {
        pairs.row("stalled", Cell::styled("yes: heartbeats come, and no progress", Style::Bad));
    }
    if job.get("cancelRequested") == Some(&Value::Bool(true)) {
        pairs.row("cancelRequested", Cell::styled("yes", Style::Waiting));
    }
}

fn checkpoint_line(checkpoint: &Value, now: Timestamp) -> String {
    let mut parts = Vec::new();
    let set = |name: &str| checkpoint.get(name).filter(|value| !value.is_null());
    parts.extend(set("schemaVersion").map(|version| format!("schema version {}", show(version))));
    parts.extend(set("length").and_then(Value::as_u64).map(size));
    parts.extend(
        set("sections").and_then(Value::as_u64).filter(|count| *count > 0).map(|count| format!("{count} sections")),
    );
    parts.extend(set("at").and_then(|at| age::relative(at, now)).map(|age| format!("saved {age}")));
    parts.join(", ")
}

fn result_line(meta: &Value) -> String {
    let mut parts = Vec::new();
    parts.extend(meta.get("length").and_then(Value::as_u64).map(size));
    parts.extend(["contentType", "filename"].map(|name| cell(meta, name)).into_iter().filter(|part| part != "-"));
    if meta.get("partial") == Some(&Value::Bool(true)) {
        parts.push("partial".to_owned());
    }
    parts.join(", ")
}

/// The members of an event beside its number, time and type.
pub(crate) fn describe(event: &Value) -> String {
    let mut parts = Vec::new();
    if let (Some(from), Some(to)) = (event.get("from"), event.get("to")) {
        parts.push(match from {
            Value::Null => show(to),
            _ => format!("{} → {}", show(from), show(to)),
        });
    }
    for (name, value) in event.as_object().into_iter().flatten() {
        // A job that was never replayed needs no count of its replays.
        let says_nothing = value.is_null() || (name == "replays" && *value == 0);
        if !says_nothing && !matches!(name.as_str(), "seq" | "at" | "type" | "from" | "to") {
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

    fn shown(text: &str) -> String {
        let json: Value = serde_json::from_str(text).unwrap();
        let events = json["events"].as_array().cloned().unwrap_or_default();
        render(&Answer { status: StatusCode::OK, text: text.to_owned(), json }, &events, Display::PLAIN)
    }

    #[test]
    fn a_job_is_shown_with_payload_and_events() {
        let shown = shown(
            r#"{"id":"j1","queue":"mail","status":"running","attempt":2,"maxAttempts":5,"version":4,
            "payload":{"amount":12345678901234567890.10},"key":null,
            "events":[{"seq":1,"at":"2026-01-01T00:00:00.000Z","type":"state","from":null,"to":"queued"},
                      {"seq":2,"at":"2026-01-01T00:00:01.000Z","type":"attempt","number":1,"outcome":"nacked","error":"\u001b[2J"}]}"#,
        );

        assert!(shown.contains("attempts         2/5\n"), "{shown}");
        assert!(shown.contains("{\"amount\":12345678901234567890.10}"), "{shown}");
        assert!(shown.contains("\n      1  nacked      -  ") && shown.contains("  \\u{1b}[2J  "), "{shown}");
        assert!(shown.contains("\n  1  2026-01-01T00:00:00.000Z  state  queued\n"), "{shown}");
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn a_running_job_shows_its_worker_lease_heartbeat_progress_and_stall() {
        let shown = shown(
            r#"{"id":"j1","queue":"mail","status":"running","attempt":1,"maxAttempts":5,"runningPhase":"leased",
            "worker":"w-7","leaseExpiresAt":"2026-01-01T00:01:00.000Z","lastHeartbeatAt":"2026-01-01T00:00:30.000Z",
            "liveness":"stuck","stalled":true,"cancelRequested":true,"progress":{"pct":50,"stage":"render"},
            "checkpoint":{"schemaVersion":2,"length":2048,"at":"2026-01-01T00:00:20.000Z","sections":3},
            "lastError":"late","events":[]}"#,
        );

        for line in [
            "worker           w-7\n",
            "leaseExpiresAt   2026-01-01T00:01:00.000Z (",
            "lastHeartbeatAt  2026-01-01T00:00:30.000Z (",
            "liveness         stuck\n",
            "stalled          yes: heartbeats come, and no progress\n",
            "cancelRequested  yes\n",
            "progress         50.0%  render\n",
            "lastError        late\n",
            "checkpoint       schema version 2, 2.0 KiB, 3 sections, saved ",
        ] {
            assert!(shown.contains(line), "{line:?} is not in\n{shown}");
        }
    }

    #[test]
    fn a_job_that_succeeded_shows_its_result_and_no_error() {
        let shown = shown(
            r#"{"id":"j1","queue":"mail","status":"succeeded","attempt":2,"maxAttempts":5,"lastError":"late","error":null,
            "resultMeta":{"length":3000000,"contentType":"text/csv","filename":"report.csv"},"events":[]}"#,
        );

        assert!(shown.contains("result    2.8 MiB, text/csv, report.csv\n"), "{shown}");
        assert!(!shown.contains("late") && !shown.to_lowercase().contains("error"), "{shown}");
    }

    #[test]
    fn a_state_event_reads_as_a_change() {
        let event =
            json!({"seq": 3, "at": "x", "type": "state", "from": "running", "to": "queued", "reason": "lease_lost"});

        assert_eq!(describe(&event), "running → queued reason=lease_lost");
    }
}
