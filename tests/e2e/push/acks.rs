//! Ack mode: the endpoint takes a job, the outcome comes later by call, or the clock decides. (I-15, I-16, I-17, I-20)

use std::time::{Duration, Instant};

use outlast_tests::receiver::{Answer, Gate};
use serde_json::{Value, json};

use super::{Push, at_once, attempts, seconds_until, until_phase, until_status};
use crate::api::{dead, publish_many, settle, text};

// I-17: no word within the ack timeout costs an attempt, up to the last.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_ack_costs_an_attempt_up_to_the_last() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "ackTimeout": 1, "maxAttempts": 2, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["attempt"], &job["error"]["reason"]);
    assert_eq!(shown, (&json!("failed"), &json!(2), &json!("attempts_exhausted")), "{job}");
    let deliveries = push.arrivals("work", 2).await;
    let pause = deliveries[1].arrived_at - deliveries[0].arrived_at;
    assert!(pause >= Duration::from_millis(990), "redelivered after {pause:?}");
    assert_ne!(deliveries[0].lease(), deliveries[1].lease());
    assert_eq!(deliveries[0].header("webhook-id"), deliveries[1].header("webhook-id"));
    for attempt in attempts(&push.client, &id).await {
        assert_eq!((&attempt["phase"], &attempt["outcome"]), (&json!("awaiting_ack"), &json!("ack_timeout")));
    }
    assert_eq!(push.count("work"), 2);
}

// With the action "dead" the first silence is the last.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_ack_fails_the_job_at_once_where_the_queue_says_so() {
    let push = Push::set().await;
    let settings = json!({"mode": "ack", "ackTimeout": 1, "ackTimeoutAction": "dead", "maxAttempts": 5});
    push.queue("work", settings).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["attempt"], &job["error"]["reason"]);
    assert_eq!(shown, (&json!("failed"), &json!(1), &json!("ack_timeout")), "{job}");
    assert_eq!((push.count("work"), dead(&push.client, "work").await), (1, vec![id]));
}

// The ack timeout of a job wins over its queue's.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_may_have_an_ack_timeout_of_its_own() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "ackTimeout": 1})).await;
    let request = json!({"payload": 1, "ackTimeout": "2h"});
    let id = text(&push.client.post("/v1/queues/work/jobs", request).await.unwrap().expect(202)["id"]);

    let job = until_phase(&push.client, &id, "awaiting_ack").await;

    let left = seconds_until(&job["leaseExpiresAt"]);
    assert!(left > 7100.0 && left <= 7200.0, "{left}");
    let told = seconds_until(&push.arrival("work").await.json()["leaseExpiresAt"]);
    assert!(told > 7100.0 && told <= 7200.0, "the worker got {told}");
}

// I-20: the deadline is in the store. It fires on a server that was killed and started again, in both ways.
#[tokio::test(flavor = "multi_thread")]
async fn the_ack_timeout_fires_after_a_crash_too() {
    let mut push = Push::set().await;
    // All of it must be under way, and the server dead, before the deadline.
    let settings = json!({"mode": "ack", "ackTimeout": 10, "maxAttempts": 2, "backoff": at_once()});
    push.queue("again", settings).await;
    push.queue("dead", json!({"mode": "ack", "ackTimeout": 10, "ackTimeoutAction": "dead"})).await;
    let (again, dies) = (push.publish("again", json!(1)).await, push.publish("dead", json!(1)).await);
    for id in [&again, &dies] {
        until_phase(&push.client, id, "awaiting_ack").await;
    }

    push.crash_and_restart().await;

    assert_eq!((push.count("again"), push.count("dead")), (1, 1), "the crash was before the deadline");
    let deliveries = push.arrivals("again", 2).await;
    assert_eq!(deliveries[1].json()["attempt"], json!(2));
    assert!(deliveries[1].arrived_at - deliveries[0].arrived_at >= Duration::from_millis(9900), "never before");
    let job = push.ended(&dies).await;
    assert_eq!((&job["error"]["reason"], &job["attempt"]), (&json!("ack_timeout"), &json!(1)));
    settle(&push.client, &again, "ack", json!({"lease": deliveries[1].lease()})).await;
}

// I-20: a crash while a job waits for its ack burns nothing: the worker acks on the restarted server with the same
// lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_acks_over_a_crash_with_the_lease_it_has() {
    let mut push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "maxAttempts": 1})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;
    let lease = push.arrival("work").await.lease();

    push.crash_and_restart().await;
    let answer = settle(&push.client, &id, "ack", json!({"lease": lease, "result": 7})).await;

    assert_eq!(answer["status"], "succeeded");
    assert_eq!(push.count("work"), 1);
}

// An ack before the deadline prevents redelivery, also where the server is killed right after it. A second job without
// an ack shows that the deadline of the first has passed.
#[tokio::test(flavor = "multi_thread")]
async fn an_acked_job_is_not_delivered_again_after_a_crash() {
    let mut push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "ackTimeout": 10, "maxAttempts": 5, "backoff": at_once()})).await;
    let acked = push.publish("work", json!("acked")).await;
    until_phase(&push.client, &acked, "awaiting_ack").await;
    let unacked = push.publish("work", json!("unacked")).await;
    until_phase(&push.client, &unacked, "awaiting_ack").await;
    settle(&push.client, &acked, "ack", json!({"lease": push.arrival("work").await.lease()})).await;

    push.crash_and_restart().await;
    push.arrivals("work", 3).await;

    let ids: Vec<Value> = push.arrivals("work", 3).await.iter().map(|delivery| delivery.json()["id"].clone()).collect();
    assert_eq!(ids, [json!(acked), json!(unacked), json!(unacked)]);
    assert_eq!(push.job(&acked).await["status"], "succeeded");
    settle(&push.client, &unacked, "ack", json!({})).await;
}

// I-16: of an ack and a nack at the same time one wins, the other one is refused, and the job ends as the winner
// reported.
#[tokio::test(flavor = "multi_thread")]
async fn ack_and_nack_at_once_have_one_outcome() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack"})).await;
    let ids = publish_many(&push.client, "work", 60).await;
    push.arrivals("work", ids.len()).await;
    let mut wins = [0, 0];
    for id in &ids {
        until_phase(&push.client, id, "awaiting_ack").await;
        let deliveries = push.arrivals("work", ids.len()).await;
        let lease = deliveries.iter().find(|delivery| delivery.json()["id"] == json!(id)).unwrap().lease();
        let report = json!({"lease": lease});
        let refuse = json!({"lease": lease, "retryable": false});
        let (ack_path, nack_path) = (format!("/v1/jobs/{id}/ack"), format!("/v1/jobs/{id}/nack"));

        let (ack, nack) = tokio::join!(push.client.post(&ack_path, report), push.client.post(&nack_path, refuse));

        let (ack, nack) = (ack.unwrap(), nack.unwrap());
        let is_acked = ack.status == 200;
        let (winner, loser) = if is_acked { (ack, nack) } else { (nack, ack) };
        let version = winner.expect(200)["version"].clone();
        loser.expect_problem(409, "outcome_conflict");
        let job = push.job(id).await;
        assert_eq!(job["status"], if is_acked { "succeeded" } else { "failed" }, "{job}");
        assert_eq!((&job["version"], &job["attempt"]), (&version, &json!(1)));
        wins[usize::from(is_acked)] += 1;
    }
    println!("nack won {} times, ack {} times", wins[0], wins[1]);
    assert_eq!(push.count("work"), ids.len());
}

// I-16: the same ack again is 200 and changes nothing; one with another result is a conflict and changes nothing
// either.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_ack_with_the_same_lease_changes_nothing() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack"})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;
    let lease = push.arrival("work").await.lease();
    let first = settle(&push.client, &id, "ack", json!({"lease": lease, "result": "first"})).await;

    let second = settle(&push.client, &id, "ack", json!({"lease": lease, "result": "first"})).await;
    let other = push.client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": lease, "result": "second"})).await;

    other.unwrap().expect_problem(409, "outcome_conflict");
    assert_eq!((&second["accepted"], &second["version"]), (&json!(true), &first["version"]));
    let result = push.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    assert_eq!(result, "first");
}

// I-15: a late report is refused and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_after_redelivery_is_refused() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "ackTimeout": 5, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;
    push.patch("work", json!({"ackTimeout": 600})).await;
    let deliveries = push.arrivals("work", 2).await;
    let before = until_phase(&push.client, &id, "awaiting_ack").await;

    let late = json!({"lease": deliveries[0].lease(), "result": "late"});
    push.client.post(&format!("/v1/jobs/{id}/ack"), late).await.unwrap().expect_problem(409, "lease_lost");

    assert_eq!(push.job(&id).await["version"], before["version"]);
    settle(&push.client, &id, "ack", json!({"lease": deliveries[1].lease()})).await;
}

// A fast worker acks before the answer of its own webhook is back. The ack counts; the answer says nothing new,
// whatever it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_may_come_before_the_answer_of_the_webhook() {
    let push = Push::set().await;
    for (number, (mode, status)) in
        [("ack", 200), ("ack", 500), ("standard", 200), ("standard", 500)].iter().enumerate()
    {
        let (queue, gate) = (format!("work-{number}"), Gate::shut());
        push.receiver.answer(&format!("/{queue}"), [Answer::status(*status).once_open(&gate)]);
        push.queue(&queue, json!({"mode": mode, "maxAttempts": 3, "backoff": at_once()})).await;
        let id = push.publish(&queue, json!(1)).await;
        let lease = push.arrival(&queue).await.lease();

        let answer = settle(&push.client, &id, "ack", json!({"lease": lease, "result": 1})).await;
        gate.open();
        push.all_quiet().await;

        let job = push.job(&id).await;
        assert_eq!((&job["status"], &job["version"]), (&json!("succeeded"), &answer["version"]), "{queue}: {job}");
        assert_eq!(push.count(&queue), 1, "{queue}");
    }
}

// 202 turns a standard delivery into ack mode on the spot: its outcome comes by call, or the ack timeout ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_202_turns_a_standard_delivery_into_ack_mode() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::status(202)]);
    push.queue("work", json!({"ackTimeout": 5, "maxAttempts": 2, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;
    push.patch("work", json!({"ackTimeout": 600})).await;
    let deliveries = push.arrivals("work", 2).await;
    until_phase(&push.client, &id, "awaiting_ack").await;

    let refuse = json!({"lease": deliveries[1].lease(), "retryable": false, "reason": "bad input"});
    settle(&push.client, &id, "nack", refuse).await;

    let job = push.job(&id).await;
    let shown = (&job["status"], &job["attempt"], &job["error"]["reason"]);
    assert_eq!(shown, (&json!("failed"), &json!(2), &json!("not_retryable")), "{job}");
}

// A worker that meets backpressure itself holds the whole queue, free of charge; the probe is then the deferred job or
// a waiting one, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_defers_and_holds_the_queue() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "maxAttempts": 1})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;
    let deferred = Instant::now();
    let lease = push.arrival("work").await.lease();
    let report = json!({"lease": lease, "retryAfter": 2, "scope": "queue", "reason": "the model is busy"});
    settle(&push.client, &id, "defer", report).await;

    let hold = push.show("work").await["hold"].clone();
    let others = publish_many(&push.client, "work", 10).await;
    assert_eq!(hold["reason"], "deferred");
    let probing = push.arrivals("work", 2).await;
    assert!(deferred.elapsed() >= Duration::from_millis(1990), "the probe went out {:?} after", deferred.elapsed());
    until_phase(&push.client, &text(&probing[1].json()["id"]), "awaiting_ack").await;
    assert_eq!(push.count("work"), 2, "the probe is alone until its outcome is known");
    settle(&push.client, &text(&probing[1].json()["id"]), "ack", json!({"lease": probing[1].lease()})).await;

    let deliveries = push.arrivals("work", 12).await;
    for delivery in &deliveries[2..] {
        assert_eq!(delivery.json()["attempt"], json!(1));
        settle(&push.client, &text(&delivery.json()["id"]), "ack", json!({"lease": delivery.lease()})).await;
    }
    for id in others.iter().chain([&id]) {
        assert_eq!(push.job(id).await["status"], "succeeded");
    }
    assert_eq!(push.count("work"), 12);
}

// A worker that shuts down hands its job back: delivered again at once, free.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_job_is_delivered_again_free() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "maxAttempts": 1})).await;
    let id = push.publish("work", json!(1)).await;
    until_phase(&push.client, &id, "awaiting_ack").await;

    settle(&push.client, &id, "release", json!({"lease": push.arrival("work").await.lease()})).await;

    let deliveries = push.arrivals("work", 2).await;
    assert_eq!((&deliveries[1].json()["attempt"], &deliveries[1].json()["deferCount"]), (&json!(1), &json!(0)));
    until_phase(&push.client, &id, "awaiting_ack").await;
    settle(&push.client, &id, "nack", json!({"lease": deliveries[1].lease(), "retryable": false})).await;
    until_status(&push.client, &id, "failed").await;
}
