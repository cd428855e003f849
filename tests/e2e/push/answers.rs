//! The table of answers, row by row, in both modes: what each leads to, what it costs, and what becomes of its body.
//! (I-22, I-23, I-27, F23 to F26, T03)

use std::time::Duration;

use outlast_tests::daemon::free_port;
use outlast_tests::receiver::{Answer, Gate, Receiver};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Push, at_once, attempts, ended, queue_to, seconds_until, until_phase};
use crate::api::{dead, publish, settle};

const MODES: [&str; 2] = ["standard", "ack"];
const RESULT_BYTES_MAX: usize = 256 * 1024;
/// Of an answer that does not say it is JSON.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A row: its answer, whether it comes once or always, and what must have become of the job.
struct Row {
    name: &'static str,
    answer: Answer,
    reason: &'static str,
    deliveries: usize,
}

/// Every row in both modes, each with an endpoint and a queue of its own, so that no circuit is shared.
async fn check_failures(rows: Vec<Row>) {
    let push = Push::set().await;
    let mut cases = Vec::new();
    for (number, row) in rows.into_iter().enumerate() {
        for mode in MODES {
            let receiver = Receiver::start().await;
            let queue = format!("{mode}-{number}");
            receiver.answer(&format!("/{queue}"), [row.answer.clone()]);
            let settings = json!({"mode": mode, "maxAttempts": 2, "backoff": at_once(), "webhookTimeout": 5});
            queue_to(&push.client, &receiver, &queue, settings).await;
            let id = publish(&push.client, &queue, json!(number)).await;
            cases.push((format!("{} in {mode} mode", row.name), row.reason, row.deliveries, queue, id, receiver));
        }
    }

    for (name, reason, deliveries, queue, id, receiver) in cases {
        let job = ended(&push.client, &id).await;
        assert_eq!((&job["status"], &job["error"]["reason"]), (&json!("failed"), &json!(reason)), "{name}: {job}");
        assert_eq!(job["attempt"], json!(deliveries), "{name}: attempts charged");
        assert_eq!(receiver.count(&format!("/{queue}")), deliveries, "{name}: what the endpoint saw");
        assert_eq!(dead(&push.client, &queue).await, [id], "{name}: a dead letter");
    }
}

// I-27: every 2xx ends a standard delivery well, but for 202, and is a receipt in ack mode.
#[tokio::test(flavor = "multi_thread")]
async fn every_2xx_is_a_success_in_standard_mode_and_a_receipt_in_ack_mode() {
    let push = Push::set().await;
    for status in [200, 201, 202, 204, 226, 299] {
        for mode in MODES {
            let queue = format!("{mode}-{status}");
            push.receiver.answer(&format!("/{queue}"), [Answer::status(status)]);
            push.queue(&queue, json!({"mode": mode, "maxAttempts": 1})).await;
            let id = push.publish(&queue, json!(status)).await;

            let done = if mode == "standard" && status != 202 {
                push.ended(&id).await
            } else {
                let received = until_phase(&push.client, &id, "awaiting_ack").await;
                let left = seconds_until(&received["leaseExpiresAt"]);
                assert!(left > 280.0 && left <= 300.0, "{queue}: the ack timeout runs from the receipt, not {left}");
                settle(&push.client, &id, "ack", json!({"lease": push.arrival(&queue).await.lease()})).await;
                push.job(&id).await
            };

            assert_eq!((&done["status"], &done["attempt"]), (&json!("succeeded"), &json!(1)), "{queue}: {done}");
            assert_eq!(push.count(&queue), 1, "{queue}");
        }
    }
}

// I-23: statuses that mean nothing special are charged, and at last the job is a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn other_statuses_are_charged_and_at_last_fail_the_job() {
    let row = |name, status| Row { name, answer: Answer::status(status), reason: "attempts_exhausted", deliveries: 2 };
    check_failures(vec![
        row("400", 400),
        row("401", 401),
        row("404", 404),
        row("418", 418),
        row("500", 500),
        row("501", 501),
        row("502", 502),
        row("504", 504),
        row("599", 599),
        row("304 without a location", 304),
        Row {
            name: "500 with x-outlast-retry: true",
            answer: Answer::with(500, &[("x-outlast-retry", "true")], b""),
            reason: "attempts_exhausted",
            deliveries: 2,
        },
    ])
    .await;
}

// I-23: 410 and a forbidden retry fail at once, with attempts to spare.
#[tokio::test(flavor = "multi_thread")]
async fn gone_and_a_forbidden_retry_fail_at_once() {
    let forbidden = |name, status, value| Row {
        name,
        answer: Answer::with(status, &[("x-outlast-retry", value)], b"never again"),
        reason: "not_retryable",
        deliveries: 1,
    };
    check_failures(vec![
        Row { name: "410", answer: Answer::status(410), reason: "not_retryable", deliveries: 1 },
        forbidden("500 without retry", 500, "false"),
        forbidden("400 without retry", 400, "False"),
        forbidden("302 without retry", 302, " false "),
        forbidden("410 with retry", 410, "true"),
        forbidden("429 without retry", 429, "false"),
        forbidden("503 without retry", 503, "false"),
    ])
    .await;
}

// F23: an endpoint that breaks the connection is charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_charged() {
    let row = |name, answer| Row { name, answer, reason: "attempts_exhausted", deliveries: 2 };
    check_failures(vec![
        row("reset without a byte", Answer::reset()),
        row("closed without a byte", Answer::cut(b"")),
        row("closed in the status line", Answer::cut(b"HTTP/1.1 20")),
        row("closed in the headers", Answer::cut(b"HTTP/1.1 200 OK\r\ncontent-le")),
        row("no HTTP at all", Answer::cut(b"SSH-2.0-OpenSSH_9.9\r\n")),
    ])
    .await;
}

// F24: an endpoint that does not answer in time is charged, and the delivery ends with the timeout of its queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_endpoint_is_charged_after_the_webhook_timeout() {
    let push = Push::set().await;
    let (gate, stopwatch) = (Gate::shut(), Stopwatch::start());
    for mode in MODES {
        push.receiver.answer(&format!("/{mode}"), [Answer::status(200).once_open(&gate)]);
        let settings = json!({"mode": mode, "webhookTimeout": 1, "maxAttempts": 2, "backoff": at_once()});
        push.queue(mode, settings).await;
        let id = push.publish(mode, json!(1)).await;

        let job = push.ended(&id).await;

        assert_eq!((&job["status"], &job["attempt"]), (&json!("failed"), &json!(2)), "{job}");
        let attempts = attempts(&push.client, &id).await;
        for attempt in &attempts {
            let taken = Duration::from_millis(attempt["durationMs"].as_u64().unwrap());
            let most = Duration::from_secs(5) + stopwatch.withheld();
            assert!((Duration::from_millis(990)..most).contains(&taken), "{attempt}");
            assert!(attempt["error"].as_str().unwrap().starts_with("first_byte: "), "{attempt}");
        }
        assert_eq!((attempts.len(), push.count(mode)), (2, 2));
    }
    gate.open();
}

// F23: nothing listens there.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_charged() {
    let push = Push::set().await;
    for mode in MODES {
        let url = format!("http://127.0.0.1:{}/", free_port());
        let settings = json!({"mode": mode, "webhookUrl": url, "maxAttempts": 2, "backoff": at_once()});
        push.queue(mode, settings).await;
        let id = push.publish(mode, json!(1)).await;

        let job = push.ended(&id).await;

        assert_eq!((&job["status"], &job["attempt"]), (&json!("failed"), &json!(2)), "{job}");
        assert!(job["lastError"].as_str().unwrap().starts_with("connect: "), "{job}");
    }
}

// T03, F25: a redirect is a failure. The server does not follow it, and does not show its target.
#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_a_failure_and_never_followed() {
    let push = Push::set().await;
    let trap = Receiver::start().await;
    let location = trap.url("/trap?token=hunter2");
    let mut ids = Vec::new();
    for status in [300, 301, 302, 303, 305, 307, 308] {
        for mode in MODES {
            let receiver = Receiver::start().await;
            let queue = format!("{mode}-{status}");
            let headers = [("location", location.as_str()), ("refresh", "0; url=/trap"), ("alt-svc", "h2=\":443\"")];
            receiver.answer(&format!("/{queue}"), [Answer::with(status, &headers, b"moved")]);
            let settings = json!({"mode": mode, "maxAttempts": 2, "backoff": at_once()});
            queue_to(&push.client, &receiver, &queue, settings).await;
            ids.push((status, publish(&push.client, &queue, json!(1)).await, queue, receiver));
        }
    }

    for (status, id, queue, receiver) in &ids {
        let job = push.ended(id).await;
        assert_eq!((&job["status"], &job["attempt"]), (&json!("failed"), &json!(2)), "{queue}: {job}");
        assert_eq!(receiver.count(&format!("/{queue}")), 2, "{queue}: nothing but the two attempts arrived");
        let attempts = attempts(&push.client, id).await;
        assert!(attempts.iter().all(|attempt| attempt["statusCode"] == json!(status)), "{attempts:?}");
        assert!(!job.to_string().contains("hunter2"), "{queue}: the location is in {job}");
    }
    assert_eq!(trap.connections(), 0, "somebody went where a redirect leads");
    assert!(!push.server.log().contains("hunter2"));
}

/// The endpoint's `Retry-After`, and the expected length of the hold, in seconds.
fn retry_afters() -> Vec<(Option<String>, f64)> {
    let date = |seconds: i64| {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    let texts = |texts: &[&str], seconds| texts.iter().map(|text| (Some((*text).to_owned()), seconds)).collect();
    let groups: [Vec<(Option<String>, f64)>; 5] = [
        vec![(None, 300.0)],
        texts(&["120"], 120.0),
        texts(&["99999", "31536000"], 86_400.0),
        texts(
            &[
                "99999999999999999999999999",
                "31536001",
                "soon",
                "-1",
                "1.5",
                "12 minutes",
                "Sun, 99 Nov 1994 08:49:37 GMT",
                "0x10",
            ],
            300.0,
        ),
        vec![(Some(date(200)), 200.0), (Some(date(8 * 86_400)), 86_400.0)],
    ];
    groups.concat()
}

// I-22, F26: 429, 503 and 529 hold the queue for as long as they ask, within a day; without a readable wish for as long
// as the queue says. No attempt is charged.
#[tokio::test(flavor = "multi_thread")]
async fn backpressure_holds_for_as_long_as_the_endpoint_asks() {
    let push = Push::set().await;
    let mut number = 0;
    for (text, seconds) in retry_afters() {
        let (status, mode) = ([429, 503, 529][number % 3], MODES[number % 2]);
        number += 1;
        let queue = format!("held-{number}");
        let headers: Vec<(&str, &str)> = text.iter().map(|text| ("retry-after", text.as_str())).collect();
        push.receiver.answer(&format!("/{queue}"), [Answer::with(status, &headers, b"")]);
        let settings = json!({"mode": mode, "backpressureDelay": 300, "maxAttempts": 1, "maxAge": "7d"});
        push.queue(&queue, settings).await;
        let id = push.publish(&queue, json!(1)).await;

        let hold = push.held(&queue).await;

        let left = seconds_until(&hold["until"]);
        let name = format!("{status} with {text:?}");
        assert!(left <= seconds && left > seconds - 20.0, "{name}: held for {left} s instead of {seconds}");
        assert_eq!(hold["reason"], "backpressure", "{name}");
        let job = push.job(&id).await;
        let shown = (&job["status"], &job["pendingReason"], &job["attempt"], &job["deferCount"]);
        assert_eq!(shown, (&json!("pending"), &json!("deferred"), &json!(1), &json!(1)), "{name}: {job}");
        assert_eq!(push.count(&queue), 1, "{name}");
    }
}

// I-22: a wish of no time at all, or of a time that has passed, is served at once.
#[tokio::test(flavor = "multi_thread")]
async fn backpressure_of_no_time_is_served_at_once() {
    let push = Push::set().await;
    for (number, text) in ["0", "Sun, 06 Nov 1994 08:49:37 GMT"].iter().enumerate() {
        for status in [429, 503, 529] {
            let queue = format!("none-{number}-{status}");
            let refused = Answer::with(status, &[("retry-after", text)], b"");
            push.receiver.answer(&format!("/{queue}"), [refused, Answer::status(200)]);
            push.queue(&queue, json!({"backpressureDelay": "1h", "maxAttempts": 1})).await;
            let id = push.publish(&queue, json!(1)).await;

            let job = push.ended(&id).await;

            let shown = (&job["status"], &job["attempt"], &job["deferCount"]);
            assert_eq!(shown, (&json!("succeeded"), &json!(1), &json!(1)), "{queue}: {job}");
        }
    }
}

/// The result as it is stored, byte for byte; `None` if there is none.
async fn result(push: &Push, id: &str) -> Option<String> {
    let answer = push.client.request(Method::GET, &format!("/v1/jobs/{id}/result")).send().await.unwrap();
    let found = answer.status() == 200;
    let text = answer.text().await.unwrap();
    assert!(found || text.contains("result_not_found"), "{text}");
    found.then_some(text)
}

/// A JSON text of this length.
fn json_text(length: usize) -> Vec<u8> {
    format!("\"{}\"", "x".repeat(length - 2)).into_bytes()
}

// A JSON body becomes the result, byte for byte: up to 256 KiB where the answer says that it is JSON, up to 64 KiB
// where it says nothing. Any other body is no reason to fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_json_body_becomes_the_result_and_no_other_does() {
    let push = Push::set().await;
    let exact = r#"{"b":1.10, "a":123456789012345678901234567890,"z":"\u00e9 é  "}"#;
    let silent = "";
    let bodies: [(&str, &str, Vec<u8>, bool); 15] = [
        ("object", "application/json", exact.into(), true),
        ("number", silent, b"1e400".to_vec(), true),
        ("null", "text/plain", b"null".to_vec(), true),
        ("text", silent, b"\"done\"".to_vec(), true),
        ("largest", "application/json", json_text(RESULT_BYTES_MAX), true),
        ("largest-of-a-kind", "Application/vnd.mine+JSON; charset=utf-8", json_text(RESULT_BYTES_MAX), true),
        ("largest-silent", silent, json_text(ANSWER_BYTES_MAX), true),
        ("too-large", "application/json", json_text(RESULT_BYTES_MAX + 1), false),
        ("too-large-silent", silent, json_text(ANSWER_BYTES_MAX + 1), false),
        ("empty", "application/json", Vec::new(), false),
        ("html", "text/html", b"<html>ok</html>".to_vec(), false),
        ("two", "application/json", b"{} {}".to_vec(), false),
        ("open", "application/json", b"{\"a\":".to_vec(), false),
        ("bytes", "application/json", b"\"\xff\xfe\"".to_vec(), false),
        ("bare", "application/json", b"OK".to_vec(), false),
    ];
    for (name, kind, body, is_result) in bodies {
        let headers: &[(&str, &str)] = if kind == silent { &[] } else { &[("content-type", kind)] };
        push.receiver.answer(&format!("/{name}"), [Answer::with(200, headers, &body)]);
        push.queue(name, json!({"maxAttempts": 1})).await;
        let id = push.publish(name, json!(1)).await;

        let job = push.ended(&id).await;

        assert_eq!(job["status"], "succeeded", "{name}: {job}");
        let stored = result(&push, &id).await;
        assert_eq!(stored.is_some(), is_result, "{name}");
        assert!(stored.is_none_or(|stored| stored.as_bytes() == body), "{name} was changed");
        assert_eq!(job["resultUrl"].is_null(), !is_result, "{name}");
    }
}

// The status counts even if the body breaks off: there is no result then.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_is_no_result_and_no_failure() {
    let push = Push::set().await;
    push.receiver.answer("/cut", [Answer::cut(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half\":")]);
    push.queue("cut", json!({"maxAttempts": 1})).await;
    let id = push.publish("cut", json!(1)).await;

    let job = push.ended(&id).await;

    assert_eq!(job["status"], "succeeded", "{job}");
    assert_eq!(result(&push, &id).await, None);
}

// In ack mode and after 202 the body of the answer is not the result: that one comes with the ack.
#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_receipt_is_not_the_result() {
    let push = Push::set().await;
    for (mode, status) in [("ack", 200), ("standard", 202)] {
        push.receiver.answer(&format!("/{mode}"), [Answer::json(status, &json!({"from": "the receipt"}))]);
        push.queue(mode, json!({"mode": mode})).await;
        let id = push.publish(mode, json!(1)).await;
        until_phase(&push.client, &id, "awaiting_ack").await;

        settle(&push.client, &id, "ack", json!({"result": {"from": "the ack"}})).await;

        assert_eq!(result(&push, &id).await.as_deref(), Some(r#"{"from":"the ack"}"#), "{mode}");
    }
}

// Retries wait for the backoff of the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_never_earlier_than_the_backoff() {
    let push = Push::set().await;
    push.receiver.answer("/slow", [Answer::status(404)]);
    let backoff = json!({"type": "schedule", "delays": ["300ms", "900ms"], "jitter": 0});
    push.queue("slow", json!({"maxAttempts": 3, "backoff": backoff})).await;
    push.publish("slow", json!(1)).await;

    let deliveries = push.arrivals("slow", 3).await;

    let waits: Vec<Duration> = deliveries.windows(2).map(|pair| pair[1].arrived_at - pair[0].arrived_at).collect();
    assert!(waits[0] >= Duration::from_millis(290) && waits[1] >= Duration::from_millis(890), "{waits:?}");
    wait::until("the last failure", DEADLINE, async || {
        (push.show("slow").await["counts"]["failed"] == 1).then_some(())
    })
    .await;
    let numbers: Vec<Value> = deliveries.iter().map(|delivery| delivery.json()["attempt"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2), json!(3)]);
}
