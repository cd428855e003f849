//! Completion callbacks: the callback URL gets a notification of how a job ended, by separate deliveries that can fail,
//! be looked at and be replayed, and that never change the job. (I-28)

use outlast_tests::receiver::{Answer, Delivery};
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Push, at_once, until_status};
use crate::api::{dead, make_queue, receive_one, settle, text};

/// A server whose callbacks are repeated at once, with a receiver that knows their secret.
async fn scene(path: &str, settings: Value) -> Push {
    let push = Push::set().await;
    push.patch("_callbacks", settings).await;
    let rotated = push.client.post("/v1/queues/_callbacks/rotate-secret", json!({"overlap": 0})).await.unwrap();
    push.receiver.trust(path, &text(&rotated.expect(200)["signingSecret"]));
    make_queue(&push.client, "work", json!({})).await;
    push
}

/// Publishes a job whose callback goes to the path.
async fn publish_with_callback(push: &Push, path: &str, mut job: Value) -> String {
    job["callbackUrl"] = json!(push.receiver.url(path));
    text(&push.client.post("/v1/queues/work/jobs", job).await.unwrap().expect(202)["id"])
}

/// A job that has failed, and will not change any more.
async fn failed_job(push: &Push, path: &str) -> Value {
    let id = publish_with_callback(push, path, json!({"payload": 1})).await;
    let held = receive_one(&push.client, "work").await;
    settle(&push.client, &id, "nack", json!({"lease": held["lease"], "retryable": false, "reason": "bad input"})).await;
    push.job(&id).await
}

/// Waits until the job shows its callback in this state.
async fn until_callback(push: &Push, id: &str, status: &str) -> Value {
    wait::until(&format!("the callback to be {status}"), DEADLINE, async || {
        let job = push.job(id).await;
        (job["callback"]["status"] == status).then_some(job)
    })
    .await
}

fn check_headers(delivery: &Delivery) {
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(delivery.header("x-signature-256"), delivery.header("x-outlast-signature"));
    assert!(!delivery.headers.contains_key("x-outlast-lease"), "a callback cannot be acked: {}", delivery.head);
}

// I-28: the callback of a success has its result, byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn the_callback_of_a_success_has_its_result() {
    let push = scene("/done", json!({})).await;
    let id = publish_with_callback(&push, "/done", json!({"payload": {"in": 1}})).await;
    assert_eq!(push.job(&id).await["callback"]["status"], "waiting");
    let held = receive_one(&push.client, "work").await;
    let body = format!(r#"{{"lease":{},"result":{{"big":12345678901234567890123,"a":[1.50]}}}}"#, held["lease"]);
    let request = push.client.request(Method::POST, &format!("/v1/jobs/{id}/ack")).body(body);
    push.client.send(request).await.unwrap().expect(200);

    let delivery = push.arrival("done").await;
    let job = until_callback(&push, &id, "succeeded").await;

    check_headers(&delivery);
    let told = delivery.json();
    for field in ["id", "queue", "status", "replays", "finishedAt"] {
        assert_eq!(told[field], job[field], "{field}");
    }
    assert_eq!((&told["status"], &told["error"]), (&json!("succeeded"), &Value::Null));
    let sent = String::from_utf8(delivery.body.clone()).unwrap();
    assert!(sent.contains(r#""result":{"big":12345678901234567890123,"a":[1.50]}"#), "{sent}");
    assert!(told.get("payload").is_none(), "what was published is not repeated");
    let callback = &job["callback"];
    assert_eq!((&callback["attempt"], &callback["url"]), (&json!(1), &json!(push.receiver.url("/done"))));
    assert_eq!(delivery.header("webhook-id"), text(&callback["id"]));
}

// I-28: so are a failure, a cancel and the end of time, each with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_a_cancel_and_a_timeout_have_callbacks() {
    let push = scene("/told", json!({})).await;
    let failed = text(&failed_job(&push, "/told").await["id"]);
    let cancelled = publish_with_callback(&push, "/told", json!({"payload": 1, "delay": 3600})).await;
    push.client.post(&format!("/v1/jobs/{cancelled}/cancel"), json!({})).await.unwrap().expect(200);
    let late = publish_with_callback(&push, "/told", json!({"payload": 1, "jobTimeout": 1})).await;
    receive_one(&push.client, "work").await;
    let unstarted = json!({"payload": 1, "delay": 3600, "startBy": (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1)).to_string()});
    let unstarted = publish_with_callback(&push, "/told", unstarted).await;

    let deliveries = push.arrivals("told", 4).await;

    for (id, status, reason) in [
        (&failed, "failed", "not_retryable"),
        (&cancelled, "cancelled", "user"),
        (&late, "cancelled", "timeout"),
        (&unstarted, "cancelled", "timeout"),
    ] {
        let mut mine = deliveries.iter().filter(|delivery| delivery.json()["id"] == json!(id));
        let delivery = mine.next().unwrap_or_else(|| panic!("no callback of {status} for {reason}"));
        assert!(mine.next().is_none(), "sent once");
        check_headers(delivery);
        let told = delivery.json();
        assert_eq!((&told["status"], &told["error"]["reason"]), (&json!(status), &json!(reason)), "{told}");
        assert!(told.get("result").is_none());
        until_callback(&push, id, "succeeded").await;
    }
    assert_eq!(deliveries[0].json()["error"]["message"], "bad input");
}

// Push jobs tell their end, too; so does each replay of a job.
#[tokio::test(flavor = "multi_thread")]
async fn every_replay_of_a_push_job_has_a_callback() {
    let push = scene("/told", json!({})).await;
    push.receiver.answer("/push", [Answer::status(410), Answer::json(200, &json!({"fine": true}))]);
    push.queue("push", json!({})).await;
    let request = json!({"payload": 1, "callbackUrl": push.receiver.url("/told")});
    let id = text(&push.client.post("/v1/queues/push/jobs", request).await.unwrap().expect(202)["id"]);
    push.arrivals("told", 1).await;

    push.client.post(&format!("/v1/jobs/{id}/replay"), json!({})).await.unwrap().expect(200);

    let told = push.arrivals("told", 2).await;
    let shown: Vec<Value> = told
        .iter()
        .map(|delivery| json!([delivery.json()["replays"], delivery.json()["status"], delivery.json()["result"]]))
        .collect();
    assert_eq!(shown, [json!([0, "failed", null]), json!([1, "succeeded", {"fine": true}])]);
    assert_ne!(told[0].header("webhook-id"), told[1].header("webhook-id"));
}

// I-28: a callback is repeated by its schedule, every copy with the same id and the same words, and the job does not
// change.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_is_repeated_and_the_job_does_not_change() {
    let backoff = json!({"type": "schedule", "delays": ["200ms", "400ms", "10ms"], "jitter": 0});
    let push = scene("/told", json!({ "backoff": backoff })).await;
    let closing = Answer::with(500, &[("connection", "close")], b"");
    push.receiver.answer("/told", [closing, Answer::reset(), Answer::status(404), Answer::status(204)]);
    let job = failed_job(&push, "/told").await;
    let id = text(&job["id"]);

    let copies = push.arrivals("told", 4).await;
    let after = until_callback(&push, &id, "succeeded").await;

    assert_eq!(after["callback"]["attempt"], json!(4));
    for field in ["version", "status", "attempt", "error", "lastError", "finishedAt", "transitions"] {
        assert_eq!(after[field], job[field], "{field} of the job");
    }
    for copy in &copies {
        assert_eq!(copy.body, copies[0].body);
        assert_eq!(copy.header("webhook-id"), copies[0].header("webhook-id"));
    }
    let waits: Vec<u128> =
        copies.windows(2).map(|pair| (pair[1].arrived_at - pair[0].arrived_at).as_millis()).collect();
    assert!(waits[0] >= 190 && waits[1] >= 390, "{waits:?}");
}

// I-28: exhaustion is visible in the job and among the dead letters, and can be replayed; the job stays as it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_callback_is_visible_and_can_be_replayed() {
    let push = scene("/told", json!({"maxAttempts": 2, "backoff": at_once()})).await;
    push.receiver.answer("/told", Answer::status(404).times(2).chain([Answer::status(200)]));
    let job = failed_job(&push, "/told").await;
    let id = text(&job["id"]);

    let exhausted = until_callback(&push, &id, "failed").await;
    let callback = text(&exhausted["callback"]["id"]);
    assert_eq!(exhausted["callback"]["lastError"], "the endpoint answered 404");
    assert_eq!(dead(&push.client, "_callbacks").await, std::slice::from_ref(&callback));
    let other =
        push.client.post(&format!("/v1/jobs/{callback}/replay"), json!({"payload": {"status": "succeeded"}})).await;
    other.unwrap().expect_problem(409, "payload_fixed");
    push.client.post(&format!("/v1/jobs/{callback}/replay"), json!({})).await.unwrap().expect(200);

    let told = push.arrivals("told", 3).await;
    let after = until_callback(&push, &id, "succeeded").await;
    assert_eq!(told[2].body, told[0].body, "a replay says what was said before");
    assert_eq!(after["version"], job["version"], "the job has not changed");
    assert_eq!(dead(&push.client, "_callbacks").await, Vec::<String>::new());
}

// Dead callbacks can be replayed in bulk, as any others.
#[tokio::test(flavor = "multi_thread")]
async fn dead_callbacks_can_be_replayed_in_bulk() {
    let push = scene("/told", json!({"maxAttempts": 1})).await;
    push.receiver.answer("/told", [Answer::status(404)]);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(text(&failed_job(&push, "/told").await["id"]));
    }
    for id in &ids {
        until_callback(&push, id, "failed").await;
    }
    push.receiver.answer("/told", [Answer::status(200)]);

    push.client.post("/v1/queues/_callbacks/dead/replay", json!({})).await.unwrap().expect(202);

    for id in &ids {
        until_callback(&push, id, "succeeded").await;
    }
    assert_eq!(push.count("told"), 10);
}

// A callback URL that asks for a pause gets one, alone: other callbacks go on, and no attempt is charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_url_that_asks_for_a_pause_delays_no_other_callback() {
    let push = scene("/told", json!({"maxAttempts": 1})).await;
    push.receiver.answer("/told", [Answer::with(429, &[("retry-after", "3600")], b""), Answer::status(202)]);
    let held = text(&failed_job(&push, "/told").await["id"]);
    until_callback(&push, &held, "pending").await;

    let other = text(&failed_job(&push, "/told").await["id"]);

    until_callback(&push, &other, "succeeded").await;
    let callback = push.job(&held).await["callback"].clone();
    assert_eq!((&callback["attempt"], &callback["deferCount"]), (&json!(1), &json!(1)), "{callback}");
    assert_eq!(push.show("_callbacks").await["hold"], Value::Null);
}

// I-28: the word of a callback is in the transaction that ended the job: a crash right after it loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_end_of_a_job_loses_no_callback() {
    let mut push = scene("/told", json!({"maxAttempts": 10, "backoff": at_once(), "webhookTimeout": 1})).await;
    let mut ids = Vec::new();
    for round in 0..3 {
        for _ in 0..5 {
            ids.push(text(&failed_job(&push, "/told").await["id"]));
        }
        push.crash_and_restart().await;
        println!("crash {round}: {} of {} callbacks had arrived", push.count("told"), ids.len());
    }

    for id in &ids {
        let job = until_callback(&push, id, "succeeded").await;
        let copies: Vec<Delivery> =
            push.receiver.deliveries("/told").into_iter().filter(|copy| copy.json()["id"] == json!(id)).collect();
        assert!(!copies.is_empty(), "no callback of {id}");
        for copy in &copies {
            assert_eq!(copy.body, copies[0].body);
            assert_eq!(copy.header("webhook-id"), text(&job["callback"]["id"]));
        }
    }
}

// The system queue can be inspected and managed, but not published to, received from, replaced or deleted.
#[tokio::test(flavor = "multi_thread")]
async fn the_queue_of_callbacks_is_ours() {
    let push = scene("/told", json!({})).await;
    let job = failed_job(&push, "/told").await;
    until_callback(&push, &text(&job["id"]), "succeeded").await;
    for (method, path, body) in [
        (Method::POST, "/v1/queues/_callbacks/jobs", json!({"payload": 1})),
        (Method::POST, "/v1/queues/_callbacks/jobs/batch", json!({"jobs": [{"payload": 1}]})),
        (Method::POST, "/v1/queues/_callbacks/receive", json!({})),
        (Method::GET, "/api/queues/_callbacks/messages", Value::Null),
        (Method::PUT, "/v1/queues/_callbacks", json!({})),
        (Method::POST, "/v1/queues", json!({"name": "_callbacks"})),
        (Method::DELETE, "/v1/queues/_callbacks", Value::Null),
        (Method::DELETE, "/v1/queues/_callbacks?force=true", Value::Null),
    ] {
        let mut request = push.client.request(method.clone(), path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let reply = push.client.send(request).await.unwrap();
        assert!(matches!(reply.status, 400 | 404), "{method} {path}: {} {}", reply.status, reply.body);
    }
    for (field, value) in [
        ("webhookUrl", json!(push.receiver.url("/x"))),
        ("mode", json!("pull")),
        ("mode", json!("standard")),
        ("allowPull", json!(true)),
    ] {
        let reply = push.client.patch("/v1/queues/_callbacks", json!({ field: value })).await.unwrap();
        reply.expect_problem(400, "invalid_request");
    }

    let shown = push.show("_callbacks").await;
    assert_eq!(shown["counts"]["succeeded"], 1);
    let paused = push.client.post("/v1/queues/_callbacks/pause", json!({})).await.unwrap().expect(200);
    assert_eq!(paused["paused"], true);
    let waiting = failed_job(&push, "/told").await;
    until_callback(&push, &text(&waiting["id"]), "queued").await;
    push.client.post("/v1/queues/_callbacks/resume", json!({})).await.unwrap().expect(200);
    until_callback(&push, &text(&waiting["id"]), "succeeded").await;
}

// The callback is sent even if the queue of the job was deleted meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_outlives_the_queue_of_its_job() {
    let push = scene("/told", json!({})).await;
    push.client.post("/v1/queues/_callbacks/pause", json!({})).await.unwrap().expect(200);
    let job = failed_job(&push, "/told").await;
    push.client.delete("/v1/queues/work?force=true").await.unwrap().expect(202);
    wait::until("the queue to be gone", DEADLINE, async || {
        (push.client.get("/v1/queues/work").await.unwrap().status == 404).then_some(())
    })
    .await;

    push.client.post("/v1/queues/_callbacks/resume", json!({})).await.unwrap().expect(200);

    let told = push.arrival("told").await;
    assert_eq!((&told.json()["id"], &told.json()["queue"]), (&job["id"], &json!("work")));
}

// A job that asked for no callback has none, and a callback has none of its own.
#[tokio::test(flavor = "multi_thread")]
async fn only_jobs_with_a_callback_url_have_callbacks() {
    let push = scene("/told", json!({})).await;
    let id = push.publish("work", json!(1)).await;
    let held = receive_one(&push.client, "work").await;
    settle(&push.client, &id, "ack", json!({"lease": held["lease"]})).await;
    let asked = text(&failed_job(&push, "/told").await["id"]);
    let job = until_callback(&push, &asked, "succeeded").await;

    assert_eq!(push.job(&id).await["callback"], Value::Null);
    let callback = until_status(&push.client, &text(&job["callback"]["id"]), "succeeded").await;
    assert_eq!(callback["queue"], "_callbacks");
    assert_eq!((push.count("told"), push.show("_callbacks").await["counts"]["succeeded"].clone()), (1, json!(1)));
}
