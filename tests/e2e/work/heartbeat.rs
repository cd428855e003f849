//! The heartbeat as the control channel: what it keeps in one transaction, and every word it can bring back.

use jiff::Timestamp;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Work};
use crate::api::{events, publish, receive_one, settle, text};

fn time(value: &Value) -> Timestamp {
    text(value).parse().unwrap()
}

// Progress, checkpoint and lease in one call; the answer has exactly what the contract names.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_extends_the_lease_and_keeps_progress_and_checkpoint() {
    let mut work = Work::begin(json!({"visibilityTimeout": 30})).await;
    let before = work.job().await;

    let body = json!({
        "extend": 300, "progress": {"pct": 12, "stage": "two"},
        "checkpoint": {"schemaVersion": 3, "data": {"page": 7}},
    });
    let told = work.heartbeat(body).await;
    let job = work.job().await;
    let saved = work.client.get(&work.path("checkpoint")).await.unwrap().expect(200);

    let mut fields: Vec<&String> = told.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(
        fields,
        ["accepted", "cancelRequested", "deadline", "directives", "id", "leaseExpiresAt", "softLimitReached"]
    );
    assert_eq!((&told["directives"], &told["deadline"]), (&json!([]), &Value::Null));
    assert_eq!((&told["cancelRequested"], &told["softLimitReached"]), (&json!(false), &json!(false)));
    assert_eq!(told["leaseExpiresAt"], job["leaseExpiresAt"]);
    let lease = time(&job["leaseExpiresAt"]).duration_since(time(&job["lastHeartbeatAt"]));
    assert_eq!(lease.as_secs_f64(), 300.0);
    assert_eq!((&job["progress"]["pct"], &job["progress"]["stage"]), (&json!(12), &json!("two")));
    assert_eq!((&saved["schemaVersion"], &saved["data"]), (&json!(3), &json!({"page": 7})));
    assert_eq!(job["version"].as_u64(), before["version"].as_u64().map(|version| version + 1), "one change");
    work.fail().await;
    assert_eq!(work.take().await["checkpoint"]["data"], json!({"page": 7}));
}

// A lease is never shortened by a heartbeat.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_extension_does_not_shorten_a_long_lease() {
    let work = Work::begin(json!({"visibilityTimeout": 600})).await;
    let before = time(&work.job().await["leaseExpiresAt"]);

    let told = work.heartbeat(json!({"extend": 1})).await;

    assert!(time(&told["leaseExpiresAt"]) >= before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_is_the_nearest_end_of_the_attempt_or_the_run() {
    for (settings, from, seconds) in [
        (json!({"hardTimeLimit": 600}), "startedAt", 600.0),
        (json!({"jobTimeout": 900}), "startedAt", 900.0),
        (json!({"hardTimeLimit": 600, "jobTimeout": 300}), "startedAt", 300.0),
    ] {
        let work = Work::begin(settings.clone()).await;
        let told = work.heartbeat(json!({"extend": "12h"})).await;
        let job = work.job().await;

        let limit = time(&told["deadline"]).duration_since(time(&job[from])).as_secs_f64();
        assert!((limit - seconds).abs() < 0.01, "{settings}: {limit}");
        assert_eq!(told["leaseExpiresAt"], told["deadline"], "a lease is no longer than the work may take");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_worker_as_a_directive() {
    let work = Work::begin(json!({"drainTimeout": 60})).await;
    work.client.post(&work.path("cancel"), json!({})).await.unwrap().expect(200);

    let told = work.heartbeat(json!({})).await;
    work.checkpoint(1, json!("saved in time")).await;
    let again = work.heartbeat(json!({})).await;
    settle(&work.client, &work.id, "cancelled", json!({"lease": work.lease})).await;

    assert_eq!((&told["directives"], &told["cancelRequested"]), (&json!(["cancel", "checkpoint_now"]), &json!(true)));
    assert_eq!(again["directives"], told["directives"], "it stays cancelled");
    let saved = work.client.get(&work.path("checkpoint")).await.unwrap().expect(200);
    assert_eq!(saved["data"], json!("saved in time"), "what a cancelled job saved is kept");
    assert_eq!(work.job().await["status"], json!("cancelled"));
}

// An operator's directive lasts as long as the lease, and "save now" until something is saved.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_tells_the_worker_something_with_its_heartbeats() {
    let mut work = Work::begin(json!({})).await;
    let all = ["checkpoint_now", "hand_over", "slow_down"];

    let accepted = work.direct(&all).await;
    let told = work.heartbeat(json!({})).await;
    let still = work.heartbeat(json!({})).await;
    work.checkpoint(1, json!(null)).await;
    let saved = work.heartbeat(json!({})).await;
    work.direct(&["slow_down"]).await;
    let changed = work.heartbeat(json!({})).await;
    work.direct(&[]).await;
    let lifted = work.heartbeat(json!({})).await;
    work.direct(&all).await;
    settle(&work.client, &work.id, "release", json!({"lease": work.lease})).await;
    work.take().await;
    let anew = work.heartbeat(json!({})).await;

    assert_eq!((&accepted["accepted"], &accepted["status"]), (&json!(true), &json!("running")));
    assert_eq!((&told["directives"], &still["directives"]), (&json!(all), &json!(all)));
    assert_eq!(saved["directives"], json!(["hand_over", "slow_down"]));
    assert_eq!(changed["directives"], json!(["slow_down"]), "the latest wish is the one that counts");
    assert_eq!(lifted["directives"], json!([]));
    assert_eq!(anew["directives"], json!([]), "the next holder was asked for nothing");
    let log = events(&work.client, &work.id).await;
    assert!(log.iter().any(|event| event["reason"] == "released"), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_within_the_heartbeat_is_one_as_asked_for() {
    let work = Work::begin(json!({})).await;
    work.direct(&["checkpoint_now"]).await;
    assert_eq!(work.heartbeat(json!({})).await["directives"], json!(["checkpoint_now"]));

    let told = work.heartbeat(json!({"checkpoint": {"schemaVersion": 1, "data": 1}})).await;

    assert_eq!(told["directives"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_run_takes_no_directives() {
    let work = Work::begin(json!({})).await;
    let waiting = publish(&work.client, "work", json!(2)).await;
    work.ack().await;

    for id in [&waiting, &work.id] {
        let path = format!("/v1/jobs/{id}/directives");
        let reply = work.client.post(&path, json!({"directives": ["slow_down"]})).await.unwrap();
        reply.expect_problem(409, "not_running");
    }
    for wrong in [json!({"directives": ["cancel"]}), json!({"directives": "slow_down"}), json!({})] {
        let reply = work.client.post(&work.path("directives"), wrong).await.unwrap();
        reply.expect_problem(400, "invalid_request");
    }
}

// While a provider pushes back, those who are at it already should slow down.
#[tokio::test(flavor = "multi_thread")]
async fn workers_of_a_held_queue_get_the_directive_to_slow_down() {
    let work = Work::begin(json!({"backpressureScope": "queue"})).await;
    let other = publish(&work.client, "work", json!(2)).await;
    let held = receive_one(&work.client, "work").await;
    assert_eq!(work.heartbeat(json!({})).await["directives"], json!([]));

    // As a provider that answers 429 makes its worker say.
    settle(&work.client, &other, "defer", json!({"retryAfter": 2, "scope": "queue", "lease": held["lease"]})).await;
    let queue = work.client.get("/v1/queues/work").await.unwrap().expect(200);
    let told = work.heartbeat(json!({})).await;

    assert!(queue["hold"].is_object(), "{queue}");
    assert_eq!(told["directives"], json!(["slow_down"]), "{queue}");
    wait::until("the hold to end", DEADLINE, async || {
        (work.heartbeat(json!({})).await["directives"] == json!([])).then_some(())
    })
    .await;
}

// I-15: a heartbeat of somebody who has lost the job keeps nothing of what it carries.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_of_a_lost_lease_leaves_no_trace() {
    let mut work = Work::begin(json!({})).await;
    work.checkpoint(1, json!("good")).await;
    let zombie = work.lease.clone();
    work.fail().await;
    work.take().await;
    let before = work.job().await;

    let body = json!({
        "lease": zombie, "progress": {"pct": 99}, "checkpoint": {"schemaVersion": 9, "data": "bad"}, "extend": "12h",
    });
    work.client.post(&work.path("heartbeat"), body).await.unwrap().expect_problem(409, "lease_lost");

    let after = work.job().await;
    assert_eq!(before, after);
    let saved = work.client.get(&work.path("checkpoint")).await.unwrap().expect(200);
    assert_eq!((&saved["schemaVersion"], &saved["data"]), (&json!(1), &json!("good")));
}

// A checkpoint that is too long inside a heartbeat refuses all of it, and says where to put it.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_with_a_checkpoint_that_is_too_long_changes_nothing() {
    let work = Work::begin(json!({})).await;
    let before = work.job().await;
    let long = "x".repeat(300 << 10);

    let body = json!({"progress": {"pct": 50}, "checkpoint": {"schemaVersion": 1, "data": long}});
    let refused = work.call(Method::POST, "heartbeat", &body).await;

    assert_eq!(refused.status, 413, "{}", refused.body);
    assert_eq!(work.job().await, before);
    // One that fits where a checkpoint of its own would fit, fits here as well.
    let fits = "x".repeat(200 << 10);
    work.heartbeat(json!({"checkpoint": {"schemaVersion": 1, "data": fits}})).await;
}
