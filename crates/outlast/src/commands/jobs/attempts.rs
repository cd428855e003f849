//! The attempts of a job and the state of its callback, as tables.

use serde_json::Value;

use crate::age;
use crate::display::{Display, Style};
use crate::output::{cell, escape, show};
use crate::table::{Cell, Column, Pairs, Table};

const CALLBACK: [&str; 7] = ["id", "url", "status", "attempt", "lastError", "scheduledFor", "finishedAt"];

/// One line per attempt among the events; nothing where there is none.
pub(crate) fn table(events: &[Value], display: Display) -> Option<String> {
    let mut table = Table::new(&[
        Column::number("attempt"),
        Column::fixed("outcome"),
        Column::number("took"),
        Column::fixed("ended"),
        Column::text("worker").rank(2).optional(),
        Column::number("http").rank(1).optional(),
        Column::text("error").at_least(16).optional(),
        Column::text("response").at_least(12).rank(3).optional(),
        Column::fixed("phase").rank(4),
        Column::fixed("ended at").rank(5),
    ]);
    let (mut is_empty, now) = (true, age::now());
    for attempt in attempts(events) {
        is_empty = false;
        let outcome = cell(attempt, "outcome");
        let style = if outcome == "acked" { Style::Good } else { Style::Plain };
        let ended = attempt.get("at").unwrap_or(&Value::Null);
        table.row([
            cell(attempt, "number").into(),
            Cell::styled(outcome, style),
            took(attempt).into(),
            age::relative(ended, now).unwrap_or("-".to_owned()).into(),
            cell(attempt, "worker").into(),
            cell(attempt, "statusCode").into(),
            cell(attempt, "error").into(),
            first_line(attempt).into(),
            cell(attempt, "phase").into(),
            show(ended).into(),
        ]);
    }
    (!is_empty).then(|| table.render(display))
}

/// The stored responses of webhooks.
pub(crate) fn answers(events: &[Value]) -> String {
    let mut text = String::new();
    for attempt in attempts(events) {
        let Some(excerpt) = excerpt(attempt) else { continue };
        let (number, status) = (cell(attempt, "number"), cell(attempt, "statusCode"));
        text.push_str(&format!("\n{}\n", escape(&format!("response to attempt {number}, status {status}"))));
        for line in excerpt.lines() {
            text.push_str(&format!("  {}\n", escape(line)));
        }
    }
    text
}

/// The completion callback, if the job has one.
pub(crate) fn callback(job: &Value, display: Display) -> Option<String> {
    let callback = job.get("callback").filter(|callback| callback.is_object())?;
    let (mut pairs, now) = (Pairs::default(), age::now());
    for name in CALLBACK {
        let value = callback.get(name).filter(|value| !value.is_null());
        match name {
            "status" => pairs.row_some(name, value.map(|value| Cell::status(show(value)))),
            _ => pairs.row_some(name, value.map(|value| age::stamp(value, now))),
        }
    }
    Some(pairs.render(display))
}

pub(crate) fn is_attempt(event: &Value) -> bool {
    event.get("type").and_then(Value::as_str) == Some("attempt")
}

fn attempts(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| is_attempt(event))
}

fn excerpt(attempt: &Value) -> Option<&str> {
    attempt.get("responseExcerpt").and_then(Value::as_str).filter(|excerpt| !excerpt.trim().is_empty())
}

/// The first line of the response; the rest is marked.
fn first_line(attempt: &Value) -> String {
    let Some(excerpt) = excerpt(attempt) else { return "-".to_owned() };
    let mut lines = excerpt.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default().trim();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}

fn took(attempt: &Value) -> String {
    match attempt.get("durationMs").and_then(Value::as_u64) {
        None => "-".to_owned(),
        Some(millis @ 0..1_000) => format!("{millis}ms"),
        Some(millis @ 1_000..60_000) => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        Some(millis) => format!("{}m{}s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attempt(number: u32, millis: u64, status: Value, error: Value, excerpt: Value) -> Value {
        json!({
            "seq": number, "at": "2026-01-01T00:00:00.000Z", "type": "attempt", "number": number, "phase": "delivering",
            "outcome": "nacked", "durationMs": millis, "statusCode": status, "error": error, "responseExcerpt": excerpt,
        })
    }

    #[test]
    fn attempts_are_shown_one_per_line() {
        let events = [
            json!({"seq": 1, "at": "x", "type": "state", "from": null, "to": "queued"}),
            attempt(1, 412, json!(500), json!(null), json!("<html>\n<body>sorry\u{1b}[2J</body>")),
            attempt(2, 15_012, json!(null), json!("no answer within 15 s"), json!(null)),
        ];

        let shown = table(&events, Display::PLAIN).unwrap();

        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert!(lines[0].starts_with("ATTEMPT  OUTCOME   TOOK  ENDED"), "{shown}");
        assert!(lines[1].starts_with("      1  nacked   412ms  ") && lines[1].contains("  <html> …  "), "{shown}");
        assert!(
            lines[2].starts_with("      2  nacked   15.0s  ") && lines[2].contains("no answer within 15 s"),
            "{shown}"
        );
        assert_eq!(answers(&events), "\nresponse to attempt 1, status 500\n  <html>\n  <body>sorry\\u{1b}[2J</body>\n");
        let narrow = table(&events, Display { width: Some(80), has_colour: false }).unwrap();
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    }

    #[test]
    fn a_job_without_attempts_has_no_table() {
        assert_eq!(table(&[json!({"type": "state"})], Display::PLAIN), None);
        assert_eq!(answers(&[]), "");
    }

    #[test]
    fn long_durations_are_shown_in_minutes() {
        for (millis, shown) in [(0, "0ms"), (999, "999ms"), (1_500, "1.5s"), (59_999, "59.9s"), (125_000, "2m5s")] {
            assert_eq!(took(&attempt(1, millis, json!(null), json!(null), json!(null))), shown);
        }
    }

    #[test]
    fn a_callback_is_shown_as_far_as_it_has_come() {
        let job = json!({"callback": {
            "id": "c1", "url": "https://example.com/", "status": "pending", "attempt": 2, "lastError": "status\n500",
            "finishedAt": null,
        }});

        let shown = callback(&job, Display::PLAIN).unwrap();

        assert_eq!(
            shown,
            "id         c1\nurl        https://example.com/\nstatus     pending\nattempt    2\nlastError  status\\n500\n"
        );
        assert_eq!(callback(&json!({"callback": null}), Display::PLAIN), None);
    }
}
