//! The attempts of a job and the state of its callback, for people.

use serde_json::Value;

use crate::output::{Table, cell, escape, show};

const CALLBACK: [&str; 7] = ["id", "url", "status", "attempt", "lastError", "scheduledFor", "finishedAt"];

/// One line per attempt among the events; nothing where there is none.
pub(crate) fn table(events: &[Value]) -> Option<String> {
    let mut table = Table::new(&["attempt", "ended", "phase", "outcome", "status", "took", "error", "answer"]);
    let mut is_empty = true;
    for attempt in attempts(events) {
        is_empty = false;
        table.row(&[
            cell(attempt, "number"),
            cell(attempt, "at"),
            cell(attempt, "phase"),
            cell(attempt, "outcome"),
            cell(attempt, "statusCode"),
            took(attempt),
            cell(attempt, "error"),
            first_line(attempt),
        ]);
    }
    (!is_empty).then(|| table.render())
}

/// What webhooks have answered, as far as it was kept.
pub(crate) fn answers(events: &[Value]) -> String {
    let mut text = String::new();
    for attempt in attempts(events) {
        let Some(excerpt) = excerpt(attempt) else { continue };
        let (number, status) = (cell(attempt, "number"), cell(attempt, "statusCode"));
        text.push_str(&format!("\n{}\n", escape(&format!("answer to attempt {number}, status {status}"))));
        for line in excerpt.lines() {
            text.push_str(&format!("  {}\n", escape(line)));
        }
    }
    text
}

/// The completion callback, if the job has one.
pub(crate) fn callback(job: &Value) -> Option<String> {
    let callback = job.get("callback").filter(|callback| callback.is_object())?;
    let mut table = Table::bare();
    for name in CALLBACK {
        let value = callback.get(name).unwrap_or(&Value::Null);
        if !value.is_null() {
            table.row(&[name.to_owned(), show(value)]);
        }
    }
    Some(table.render())
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

/// The beginning of the answer; the rest is marked.
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

        let shown = table(&events).unwrap();

        assert_eq!(
            shown,
            "ATTEMPT  ENDED                     PHASE       OUTCOME  STATUS  TOOK   ERROR                  ANSWER\n\
             1        2026-01-01T00:00:00.000Z  delivering  nacked   500     412ms  -                      <html> …\n\
             2        2026-01-01T00:00:00.000Z  delivering  nacked   -       15.0s  no answer within 15 s  -\n"
        );
        assert_eq!(answers(&events), "\nanswer to attempt 1, status 500\n  <html>\n  <body>sorry\\u{1b}[2J</body>\n");
    }

    #[test]
    fn a_job_without_attempts_has_no_table() {
        assert_eq!(table(&[json!({"type": "state"})]), None);
        assert_eq!(answers(&[]), "");
    }

    #[test]
    fn long_durations_are_told_in_minutes() {
        for (millis, told) in [(0, "0ms"), (999, "999ms"), (1_500, "1.5s"), (59_999, "59.9s"), (125_000, "2m5s")] {
            assert_eq!(took(&attempt(1, millis, json!(null), json!(null), json!(null))), told);
        }
    }

    #[test]
    fn a_callback_is_shown_as_far_as_it_has_come() {
        let job = json!({"callback": {
            "id": "c1", "url": "https://example.com/", "status": "pending", "attempt": 2, "lastError": "status\n500",
            "finishedAt": null,
        }});

        let shown = callback(&job).unwrap();

        assert_eq!(
            shown,
            "id         c1\nurl        https://example.com/\nstatus     pending\nattempt    2\nlastError  status\\n500\n"
        );
        assert_eq!(callback(&json!({"callback": null})), None);
    }
}
