//! How deliveries look on the terminal, or as one JSON document per line. Everything in them was written by somebody
//! else and is escaped.

use std::time::Duration;

use outlast_core::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::delivery::{Delivery, Verdict};
use super::outcome::Reported;
use crate::display::Display;
use crate::output::{self, escape, escape_json};

/// So much of a payload is shown to people; `--json` has all of it.
const SHOWN_BYTES_MAX: usize = 16 * 1024;
const INDENT: &str = "  ";
const PLAIN_DIFFERS: &str = "the plain header is made with another secret, as after a rotation";
const CALLBACKS_DIFFER: &str = "callbacks have a secret of their own, see `outlast queues rotate-secret _callbacks`";

#[derive(Debug, Clone, Copy)]
pub(crate) enum Printer {
    People,
    Json,
    Quiet,
}

impl Printer {
    pub(crate) fn new(is_json: bool, is_quiet: bool) -> Printer {
        match (is_quiet, is_json) {
            (true, _) => Printer::Quiet,
            (false, true) => Printer::Json,
            (false, false) => Printer::People,
        }
    }

    /// One block, in one write: deliveries that come together are not mixed up.
    pub(crate) fn delivery(self, delivery: &Delivery, answer: &Answer) {
        self.print(|| block(delivery, answer), || document(delivery, answer));
    }

    pub(crate) fn reported(self, reported: &Reported, at: Timestamp) {
        self.print(|| reported_line(reported, at), || reported_document(reported, at));
    }

    fn print(self, people: impl Fn() -> String, json: impl Fn() -> String) {
        let printed = match self {
            Printer::People => output::print(&people()),
            Printer::Json => output::print_json_line(&json()),
            Printer::Quiet => Ok(()),
        };
        if let Err(failure) = printed {
            failure.print(Display { width: None, has_colour: false });
        }
    }
}

fn block(delivery: &Delivery, answer: &Answer) -> String {
    let mut head = vec![format!("{}  {} {}", delivery.at, delivery.method, delivery.path)];
    if delivery.is_callback() {
        head.push("callback".to_owned());
    }
    for (name, shown) in [("queue", "queue"), ("id", "job"), ("status", "status")] {
        head.extend(delivery.field(name).map(|value| format!("{shown} {value}")));
    }
    if let Some(attempt) = delivery.field("attempt") {
        let most = delivery.field("maxAttempts").map(|most| format!("/{most}"));
        head.push(format!("attempt {attempt}{}", most.unwrap_or_default()));
    }
    for (name, shown, usual) in [("replays", "replays", "0"), ("deferCount", "deferred", "0")] {
        head.extend(delivery.field(name).filter(|value| value != usual).map(|value| format!("{shown} {value}")));
    }
    head.push(judged(delivery));
    format!("{}\n{}{INDENT}{}\n\n", escape(&head.join("  ")), content(delivery), escape(&answered(answer)))
}

fn judged(delivery: &Delivery) -> String {
    match &delivery.verdict {
        Verdict::Unchecked => "signature not checked".to_owned(),
        Verdict::Right => "signature ok".to_owned(),
        Verdict::RightButPlain => format!("signature ok, but {PLAIN_DIFFERS}"),
        Verdict::Wrong(reason) if delivery.is_callback() => format!("WRONG SIGNATURE: {reason}; {CALLBACKS_DIFFER}"),
        Verdict::Wrong(reason) => format!("WRONG SIGNATURE: {reason}"),
    }
}

/// The payload or, where there is none, the whole body, indented.
fn content(delivery: &Delivery) -> String {
    let body = String::from_utf8_lossy(&delivery.body);
    let raw = match delivery.fields.get("payload") {
        Some(payload) => Some(payload.get()),
        None => serde_json::from_str::<&RawValue>(&body).ok().map(RawValue::get),
    };
    let mut text = match raw {
        Some(json) => escape_json(&pretty(json)),
        None => escape(&body),
    };
    if text.len() > SHOWN_BYTES_MAX {
        let length = text.len();
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push_str(&format!("\n… ({length} bytes in all; --json prints everything)"));
    }
    text.lines().map(|line| format!("{INDENT}{line}\n")).collect()
}

fn answered(answer: &Answer) -> String {
    let mut text = format!("answered {}", answer.status);
    if let Some(retry_after) = &answer.retry_after {
        text.push_str(&format!(", retry-after: {retry_after}"));
    }
    if answer.forbids_retry {
        text.push_str(", x-outlast-retry: false");
    }
    if answer.body.is_some() {
        text.push_str(", with a body");
    }
    if answer.delay > Duration::ZERO {
        text.push_str(&format!(", after {:?}", answer.delay));
    }
    text
}

fn reported_line(reported: &Reported, at: Timestamp) -> String {
    let said = match &reported.status {
        Ok(status) => format!("the job is {status}"),
        Err(reason) => format!("refused: {reason}"),
    };
    format!("{}\n\n", escape(&format!("{at}  {} of job {}: {said}", reported.verb, reported.id)))
}

fn document(delivery: &Delivery, answer: &Answer) -> String {
    let body = String::from_utf8_lossy(&delivery.body);
    let (signature, reason) = match &delivery.verdict {
        Verdict::Unchecked => ("unchecked", None),
        Verdict::Right => ("ok", None),
        Verdict::RightButPlain => ("ok", Some(PLAIN_DIFFERS)),
        Verdict::Wrong(reason) => ("wrong", Some(reason.as_str())),
    };
    let headers: Map<String, Value> =
        delivery.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let head = json!({
        "type": "delivery",
        "at": delivery.at.to_string(),
        "method": delivery.method,
        "path": delivery.path,
        "signature": signature,
        "signatureError": reason,
        "answer": {
            "status": answer.status,
            "retryAfter": answer.retry_after,
            "noRetry": answer.forbids_retry,
            "delayMs": u64::try_from(answer.delay.as_millis()).unwrap_or(u64::MAX),
        },
        "headers": headers,
    });
    // The body goes in as it came, so that big numbers are not rounded.
    let raw = serde_json::from_str::<&RawValue>(&body).map_or_else(|_| json!(body).to_string(), |raw| raw.to_string());
    let mut text = head.to_string();
    text.pop();
    format!("{text},\"body\":{raw}}}")
}

fn reported_document(reported: &Reported, at: Timestamp) -> String {
    let (status, error) = match &reported.status {
        Ok(status) => (Some(status), None),
        Err(reason) => (None, Some(reason)),
    };
    json!({
        "type": "outcome",
        "at": at.to_string(),
        "id": reported.id,
        "outcome": reported.verb,
        "status": status,
        "error": error,
    })
    .to_string()
}

/// JSON over several lines. Works on the text, so that numbers keep all their digits. The JSON must be valid.
fn pretty(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut in_string = false;
    let mut is_escaped = false;
    let mut last = ' ';
    for character in json.chars() {
        if in_string {
            text.push(character);
            in_string = is_escaped || character != '"';
            is_escaped = character == '\\' && !is_escaped;
            last = character;
            continue;
        }
        match character {
            ' ' | '\n' | '\r' | '\t' => continue,
            '}' | ']' => {
                depth -= 1;
                if !matches!(last, '{' | '[') {
                    break_line(&mut text, depth);
                }
            }
            _ if matches!(last, '{' | '[' | ',') => break_line(&mut text, depth),
            _ => {}
        }
        match character {
            '{' | '[' => depth += 1,
            '"' => in_string = true,
            _ => {}
        }
        text.push(character);
        if character == ':' {
            text.push(' ');
        }
        last = character;
    }
    text
}

fn break_line(text: &mut String, depth: usize) {
    text.push('\n');
    for _ in 0..depth {
        text.push_str(INDENT);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn delivery(body: &str, verdict: Verdict) -> Delivery {
        Delivery {
            at: Timestamp::EPOCH,
            method: "POST".to_owned(),
            path: "/hook".to_owned(),
            headers: vec![("webhook-id".to_owned(), "j1".to_owned())],
            body: Bytes::from(body.to_owned()),
            fields: serde_json::from_str(body).unwrap_or_default(),
            verdict,
        }
    }

    fn answer(status: u16) -> Answer {
        Answer { status, retry_after: None, forbids_retry: false, body: None, delay: Duration::ZERO }
    }

    #[test]
    fn a_delivery_is_shown_with_all_that_matters() {
        let body = r#"{"id":"j1","queue":"demo","payload":{"hello":"world","n":12345678901234567890.10},"attempt":2,
            "maxAttempts":5,"deferCount":0,"replays":0}"#;

        let shown = block(&delivery(body, Verdict::Right), &answer(200));

        assert_eq!(
            shown,
            "1970-01-01T00:00:00.000Z  POST /hook  queue demo  job j1  attempt 2/5  signature ok\n  {\n    \
             \"hello\": \"world\",\n    \"n\": 12345678901234567890.10\n  }\n  answered 200\n\n"
        );
    }

    #[test]
    fn a_hostile_delivery_cannot_steer_the_terminal() {
        let evil = "\u{1b}[2J\u{9b}31m\u{202e}\r\n";
        let body = json!({"id": evil, "queue": evil, "payload": {evil: evil}, "attempt": evil}).to_string();
        let deliveries = [
            delivery(&body, Verdict::Wrong("x".to_owned())),
            delivery(evil, Verdict::Unchecked),
            Delivery { path: evil.to_owned(), method: evil.to_owned(), ..delivery("{}", Verdict::Unchecked) },
        ];
        for delivery in &deliveries {
            let both = block(delivery, &answer(200)) + &escape_json(&document(delivery, &answer(200)));
            let unsafe_one = both.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
            assert_eq!(unsafe_one, None, "{both:?}");
        }
    }

    #[test]
    fn an_answer_is_shown_with_its_headers_body_and_delay() {
        let answer = Answer {
            status: 429,
            retry_after: Some("5".to_owned()),
            forbids_retry: true,
            body: Some("{}".to_owned()),
            delay: Duration::from_millis(1500),
        };

        let shown = answered(&answer);

        assert_eq!(shown, "answered 429, retry-after: 5, x-outlast-retry: false, with a body, after 1.5s");
    }

    #[test]
    fn a_document_has_the_body_as_it_came() {
        let shown = document(&delivery(r#"{"n": 1234567890123456789012}"#, Verdict::Right), &answer(200));
        let text = document(&delivery("not json", Verdict::Wrong("why".to_owned())), &answer(500));

        assert!(shown.ends_with(r#","body":{"n": 1234567890123456789012}}"#), "{shown}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&read["body"], &read["signature"], &read["signatureError"], &read["answer"]["status"]),
            (&json!("not json"), &json!("wrong"), &json!("why"), &json!(500))
        );
    }

    #[test]
    fn a_long_payload_is_cut_for_people() {
        let long = format!(r#"{{"payload":"{}"}}"#, "é".repeat(SHOWN_BYTES_MAX));

        let shown = content(&delivery(&long, Verdict::Unchecked));

        assert!(shown.len() < SHOWN_BYTES_MAX + 200 && shown.contains("bytes in all"), "{}", shown.len());
    }

    #[test]
    fn pretty_json_means_the_same() {
        for json in [
            "1",
            "\"a\\\"b,{\\\\\"",
            "[]",
            "{}",
            "[ ]",
            "[{}]",
            "[1,[2,3],{\"a\":[],\"b\":{\"c\":null}}]",
            "{ \"x\" : [ 1 , 2 ] , \"y\\\\\" : \"}\" }",
        ] {
            let (before, after): (Value, Value) =
                (serde_json::from_str(json).unwrap(), serde_json::from_str(&pretty(json)).unwrap());
            assert_eq!(before, after, "{json}");
        }
        assert_eq!(pretty("{\"a\":[1,2],\"b\":{}}"), "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
    }
}
