//! The log of attempts: every one with its number, phase, outcome, status, duration, error and the beginning of what
//! the endpoint said. (I-23, T05)

use outlast_tests::receiver::{Answer, Gate};
use outlast_tests::server::Launch;
use serde_json::{Value, json};

use super::{Push, at_once, attempts, until_phase};
use crate::api::settle;

const EXCERPT_BYTES_MAX: usize = 4096;

// I-23: each attempt is in the events and in the job, in order, with all there is to know.
#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_in_the_log_with_its_evidence() {
    let push = Push::set().await;
    let answers = [
        // Connections are closed, so that it is a fresh one that is reset.
        Answer::with(404, &[("connection", "close")], b"no such user"),
        Answer::with(429, &[("retry-after", "0"), ("connection", "close")], b"slow down"),
        Answer::reset(),
        Answer::with(302, &[("location", "/x")], b"over there"),
        Answer::status(500),
        Answer::with(200, &[], b"{\"ok\":true}"),
    ];
    push.receiver.answer("/work", answers);
    push.queue("work", json!({"maxAttempts": 6, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let attempts = attempts(&push.client, &id).await;
    let shown: Vec<Value> = attempts
        .iter()
        .map(|attempt| {
            json!([attempt["number"], attempt["outcome"], attempt["statusCode"], attempt["responseExcerpt"]])
        })
        .collect();
    let wanted = [
        json!([1, "nacked", 404, "no such user"]),
        json!([2, "deferred", 429, "slow down"]),
        json!([2, "nacked", null, null]),
        json!([3, "nacked", 302, "over there"]),
        json!([4, "nacked", 500, null]),
        json!([5, "acked", 200, null]),
    ];
    assert_eq!(shown, wanted);
    let errors: Vec<&Value> = attempts.iter().map(|attempt| &attempt["error"]).collect();
    assert_eq!(*errors[0], json!("the endpoint answered 404"));
    assert!(errors[2].as_str().is_some_and(|error| error.starts_with("first_byte: ")), "{}", errors[2]);
    assert_eq!(*errors[5], Value::Null);
    for attempt in &attempts {
        assert_eq!(attempt["phase"], "delivering");
        assert!(attempt["durationMs"].as_u64().is_some_and(|taken| taken < 40_000), "{attempt}");
    }
    let in_job: Vec<&Value> =
        job["events"].as_array().unwrap().iter().filter(|event| event["type"] == "attempt").collect();
    assert_eq!(in_job, attempts.iter().collect::<Vec<_>>());
    assert_eq!(job["lastError"], json!("the endpoint answered 500"));
}

// An attempt in ack mode says how its waiting ended.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_in_ack_mode_says_how_the_waiting_ended() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "maxAttempts": 3, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;
    for (number, verb, body) in [
        (1, "nack", json!({"reason": "out of memory"})),
        (2, "defer", json!({"retryAfter": 0, "scope": "job", "reason": "model busy"})),
        (3, "ack", json!({})),
    ] {
        push.arrivals("work", number).await;
        until_phase(&push.client, &id, "awaiting_ack").await;
        settle(&push.client, &id, verb, body).await;
    }

    let attempts = attempts(&push.client, &id).await;

    let shown: Vec<Value> =
        attempts.iter().map(|attempt| json!([attempt["number"], attempt["outcome"], attempt["error"]])).collect();
    let wanted =
        [json!([1, "nacked", "out of memory"]), json!([2, "deferred", "model busy"]), json!([2, "acked", null])];
    assert_eq!(shown, wanted);
    assert!(attempts.iter().all(|attempt| attempt["phase"] == "awaiting_ack"), "{attempts:?}");
}

// The excerpt is bounded, cut between two characters, and readable whatever the endpoint said.
#[tokio::test(flavor = "multi_thread")]
async fn an_excerpt_is_bounded_and_cut_between_characters() {
    let push = Push::set().await;
    let bodies: Vec<(String, Vec<u8>)> = (0..4)
        .map(|lead| (format!("emoji-{lead}"), ["a".repeat(lead).as_str(), &"😀".repeat(2000)].concat().into_bytes()))
        .chain([
            ("exact".to_owned(), "x".repeat(EXCERPT_BYTES_MAX).into_bytes()),
            ("long".to_owned(), "y".repeat(300_000).into_bytes()),
            ("bytes".to_owned(), vec![0xff; 5000]),
        ])
        .collect();
    for (queue, body) in bodies {
        push.receiver.answer(&format!("/{queue}"), [Answer::with(400, &[], &body)]);
        push.queue(&queue, json!({"maxAttempts": 1})).await;
        let id = push.publish(&queue, json!(1)).await;
        push.ended(&id).await;

        let attempts = attempts(&push.client, &id).await;

        let excerpt = attempts[0]["responseExcerpt"].as_str().unwrap();
        assert!(
            excerpt.len() <= EXCERPT_BYTES_MAX && excerpt.len() > EXCERPT_BYTES_MAX - 4,
            "{queue}: {}",
            excerpt.len()
        );
        if let Ok(text) = std::str::from_utf8(&body) {
            assert!(text.starts_with(excerpt), "{queue}: ends with {:?}", excerpt.chars().last());
        }
    }
}

// T05: the operator can switch excerpts off; everything else is still there.
#[tokio::test(flavor = "multi_thread")]
async fn excerpts_can_be_switched_off() {
    let push = Push::set_on(Launch::fresh().with_config("push:\n  response_excerpts: false\n")).await;
    push.receiver.answer("/work", [Answer::with(404, &[], b"the secret of the inner network")]);
    push.queue("work", json!({"maxAttempts": 1})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let attempts = attempts(&push.client, &id).await;
    assert_eq!((&attempts[0]["statusCode"], &attempts[0]["responseExcerpt"]), (&json!(404), &Value::Null));
    assert!(!job.to_string().contains("inner network"), "{job}");
}

// F27, I-19: the outcome of a delivery that a crash interrupted is unknown: it is charged, and repeated under the same
// id.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_a_crash_interrupted_is_charged_as_unknown() {
    let mut push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).once_open(&gate), Answer::status(200)]);
    push.queue("work", json!({"maxAttempts": 2, "backoff": at_once(), "webhookTimeout": 5})).await;
    let id = push.publish("work", json!(1)).await;
    push.arrival("work").await;

    push.crash_and_restart().await;

    let job = push.ended(&id).await;
    assert_eq!((&job["status"], &job["attempt"]), (&json!("succeeded"), &json!(2)), "{job}");
    let attempts = attempts(&push.client, &id).await;
    let outcomes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
    assert!(outcomes[0] == "unknown" || outcomes[0] == "lease_expired", "{outcomes:?}");
    assert_eq!(outcomes[1], "acked");
    let deliveries = push.arrivals("work", 2).await;
    assert_eq!(deliveries[0].header("webhook-id"), deliveries[1].header("webhook-id"), "F27: the same id");
    gate.open();
}

// I-17, F23: a connection that was used before and breaks without a word costs no attempt, since the endpoint may have
// closed it for being idle; a fresh one does. Either way the request is in the log: there are as many attempts as the
// endpoint saw.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_in_the_log_also_over_connections_that_break() {
    let push = Push::set().await;
    let broken = Answer::reset().times(2);
    push.receiver.answer("/work", [Answer::status(200)].into_iter().chain(broken).chain([Answer::status(200)]));
    push.queue("work", json!({"maxAttempts": 3, "backoff": at_once()})).await;
    let first = push.publish("work", json!(1)).await;
    push.ended(&first).await;
    let id = push.publish("work", json!(2)).await;

    let job = push.ended(&id).await;

    let count = |field: &str| job[field].as_u64().unwrap();
    assert_eq!((&job["status"], push.count("work")), (&json!("succeeded"), 4), "{job}");
    assert_eq!(attempts(&push.client, &id).await.len(), 3);
    assert_eq!(count("attempt") - 1 + count("deferCount"), 2, "two endings, each charged or free: {job}");
    assert!(count("deferCount") <= 1, "a fresh connection is charged: {job}");
}
