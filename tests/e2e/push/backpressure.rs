//! Backpressure: an endpoint that asks for a pause gets it, for the whole queue or for one job, free of charge,
//! bounded, and without a word to other queues. (I-18, F26)

use futures_util::StreamExt;
use outlast_tests::chance::volume;
use outlast_tests::receiver::{Answer, Gate};
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Push, at_once, seconds_until};
use crate::api::{dead, publish_many};

// I-18: one hundred refusals and then a success: one attempt charged, which is all this job has.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_refusals_cost_no_attempt() {
    let push = Push::set().await;
    let asks = |status| Answer::with(status, &[("retry-after", "0")], b"");
    let ways = [
        ("too-many", asks(429)),
        ("unavailable", asks(503)),
        ("overloaded", asks(529)),
        ("silent", Answer::status(429)),
    ];
    let mut ids = Vec::new();
    for (queue, refused) in ways {
        let refused = refused.times(100);
        push.receiver.answer(&format!("/{queue}"), refused.chain([Answer::status(200)]));
        push.queue(queue, json!({"maxAttempts": 1, "backpressureDelay": "10ms"})).await;
        ids.push((queue, push.publish(queue, json!(1)).await));
    }

    for (queue, id) in ids {
        let job = push.ended(&id).await;

        let shown = (&job["status"], &job["attempt"], &job["deferCount"]);
        assert_eq!(shown, (&json!("succeeded"), &json!(1), &json!(100)), "{queue}: {job}");
        let deliveries = push.arrivals(queue, 101).await;
        assert_eq!(deliveries.len(), 101, "{queue}");
        for (number, delivery) in deliveries.iter().enumerate() {
            let body = delivery.json();
            assert_eq!((&body["attempt"], &body["deferCount"]), (&json!(1), &json!(number)), "{queue}");
            assert_eq!(delivery.header("webhook-id"), id, "{queue}: no replay, one id");
        }
        assert_eq!(push.show(queue).await["hold"], Value::Null, "{queue}: the success lifts the hold");
    }
}

// F26: while a queue is on hold nothing of it goes out; then one probe; only its success lets the others through.
// Another queue with the same endpoint flows all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_queue_sends_nothing_but_the_probe_while_others_flow() {
    let push = Push::set().await;
    let gate = Gate::shut();
    let refused = Answer::with(429, &[("retry-after", "1")], b"");
    let probe = Answer::with(503, &[("retry-after", "1")], b"").once_open(&gate);
    push.receiver.answer("/held", [refused, probe, Answer::status(200)]);
    push.queue("held", json!({"maxAttempts": 1})).await;
    push.queue("free", json!({"maxAttempts": 1})).await;
    push.publish("held", json!("first")).await;
    push.held("held").await;

    let waiting = publish_many(&push.client, "held", 40).await;
    let first_hold = push.show("held").await["hold"].clone();
    assert!(seconds_until(&first_hold["until"]) > 0.0 || first_hold["probing"] == json!(true), "{first_hold}");
    let probing = push.arrivals("held", 2).await;
    let pause = probing[1].arrived_at - probing[0].arrived_at;
    assert!(pause.as_millis() >= 990, "the probe went out after {pause:?}");

    // The probe waits for its answer. Meanwhile thirty jobs go through another queue, and none through this one.
    for id in publish_many(&push.client, "free", 30).await {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }
    assert_eq!(push.show("held").await["hold"]["probing"], json!(true));
    assert_eq!((push.count("held"), push.count("free")), (2, 30));

    // A failed probe starts the next hold; a successful one lifts it.
    gate.open();
    let deliveries = push.arrivals("held", 3).await;
    let pause = deliveries[2].arrived_at - deliveries[1].arrived_at;
    assert!(pause.as_millis() >= 990, "the second probe went out after {pause:?}");
    for id in &waiting {
        assert_eq!(push.ended(id).await["status"], "succeeded");
    }
    let deliveries = push.arrivals("held", 43).await;
    assert_eq!(deliveries.len(), 43, "41 jobs and two refusals");
    assert_eq!(push.show("held").await["hold"], Value::Null);
}

// A probe that fails for another reason says that the endpoint takes requests again.
#[tokio::test(flavor = "multi_thread")]
async fn any_other_answer_to_the_probe_lifts_the_hold() {
    let push = Push::set().await;
    let refused = Answer::with(429, &[("retry-after", "1")], b"");
    push.receiver.answer("/work", [refused, Answer::status(404), Answer::status(200)]);
    push.queue("work", json!({"maxAttempts": 1})).await;
    let first = push.publish("work", json!(1)).await;
    push.held("work").await;
    let others = publish_many(&push.client, "work", 5).await;

    let mut endings = vec![push.ended(&first).await["status"].clone()];
    for id in &others {
        endings.push(push.ended(id).await["status"].clone());
    }

    assert_eq!(endings.iter().filter(|status| **status == "failed").count(), 1, "{endings:?}");
    assert_eq!(push.count("work"), 7);
}

// With the scope of one job the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_scope_of_a_job_only_that_job_waits() {
    let push = Push::set().await;
    let refused = Answer::with(429, &[("retry-after", "3600")], b"");
    push.receiver.answer("/work", [refused, Answer::status(200)]);
    push.queue("work", json!({"backpressureScope": "job", "maxAttempts": 1})).await;
    let first = push.publish("work", json!(1)).await;
    let job = super::until_status(&push.client, &first, "pending").await;

    for id in publish_many(&push.client, "work", 10).await {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }

    let left = seconds_until(&job["scheduledFor"]);
    assert!(left > 3580.0 && left <= 3600.0, "{left}");
    assert_eq!(push.show("work").await["hold"], Value::Null);
    assert_eq!((&push.job(&first).await["status"], push.count("work")), (&json!("pending"), 11));
}

// I-18: deferrals are bounded in number, and the bound charges nothing.
#[tokio::test(flavor = "multi_thread")]
async fn deferrals_are_bounded_in_number() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::with(429, &[("retry-after", "0")], b"later")]);
    push.queue("work", json!({"maxDeferrals": 5, "maxAttempts": 3})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["error"]["reason"], &job["attempt"], &job["deferCount"]);
    assert_eq!(shown, (&json!("failed"), &json!("deferral_exhausted"), &json!(1), &json!(5)), "{job}");
    assert_eq!(push.count("work"), 6);
    assert_eq!(dead(&push.client, "work").await, [id]);
}

// I-18: and in age.
#[tokio::test(flavor = "multi_thread")]
async fn deferrals_are_bounded_in_age() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::with(529, &[("retry-after", "1")], b"later")]);
    push.queue("work", json!({"maxAge": 3, "maxAttempts": 3})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["error"]["reason"], &job["attempt"]);
    assert_eq!(shown, (&json!("failed"), &json!("max_age_exceeded"), &json!(1)), "{job}");
    assert!((2..=4).contains(&push.count("work")), "{} deliveries", push.count("work"));
}

// Whatever a header says, the job waits: what makes no sense counts as absent, and what is too long is shortened.
#[tokio::test(flavor = "multi_thread")]
async fn no_retry_after_makes_a_dead_letter_at_once() {
    let push = Push::set().await;
    let absurd = ["100000000000000000000", "18446744073709551615", "-1", "soon", "Sun, 06 Nov 2094 08:49:37 GMT"];
    let long = ["86400", "86401", "31536000"];
    for (number, value) in absurd.into_iter().chain(long).enumerate() {
        let queue = format!("work-{number}");
        push.receiver.answer(&format!("/{queue}"), [Answer::with(503, &[("retry-after", value)], b"")]);
        push.queue(&queue, json!({"maxAge": "1d", "backpressureDelay": 100, "maxAttempts": 1})).await;
        let id = push.publish(&queue, json!(1)).await;

        let hold = push.held(&queue).await;

        let expected = if absurd.contains(&value) { 100.0 } else { 43_200.0 };
        let seconds = seconds_until(&hold["until"]);
        assert!((expected - 60.0..=expected).contains(&seconds), "{value}: {hold}");
        let job = push.job(&id).await;
        assert_eq!((&job["status"], &job["deferCount"]), (&json!("pending"), &json!(1)), "{value}: {job}");
    }
}

// A hold is in the store: it is there again after a crash, for every node, and ends when it was to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_a_crash() {
    let mut push = Push::set().await;
    let refused = Answer::with(429, &[("retry-after", "6")], b"");
    push.receiver.answer("/work", [refused, Answer::status(200)]);
    push.queue("work", json!({"maxAttempts": 1})).await;
    push.queue("other", json!({})).await;
    push.publish("work", json!(1)).await;
    let hold = push.held("work").await;

    push.crash_and_restart().await;

    let ids = publish_many(&push.client, "work", 5).await;
    let other = push.publish("other", json!(1)).await;
    assert_eq!(push.ended(&other).await["status"], "succeeded", "the restarted server delivers");
    assert_eq!(push.show("work").await["hold"]["until"], hold["until"]);
    let deliveries = push.arrivals("work", 2).await;
    let pause = deliveries[1].arrived_at - deliveries[0].arrived_at;
    assert!(pause.as_millis() >= 5900, "the probe went out after {pause:?}");
    for id in ids {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }
}

// I-18 and I-17 together: refusals between failures are free, failures are not.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_failures_are_counted_apart() {
    let push = Push::set().await;
    let refused = || Answer::with(503, &[("retry-after", "0")], b"");
    let answers = [refused(), Answer::status(404), refused(), refused(), Answer::status(404), Answer::status(200)];
    push.receiver.answer("/work", answers);
    push.queue("work", json!({"maxAttempts": 3, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["attempt"], &job["deferCount"]);
    assert_eq!(shown, (&json!("succeeded"), &json!(3), &json!(3)), "{job}");
    assert_eq!(push.count("work"), 6);
}

// A hold is to be seen where people look.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_visible_in_the_metrics() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::with(429, &[("retry-after", "3600")], b"")]);
    push.queue("work", json!({})).await;
    let metric = async |reason: &str| {
        let page = crate::api::text(&push.server.nodes[0].client().get("/metrics").await.unwrap().expect(200));
        let line = page.lines().find(|line| {
            line.starts_with("outlast_queue_held{")
                && line.contains("\"work\"")
                && line.contains(&format!("\"{reason}\""))
        });
        line.unwrap_or_else(|| panic!("not in\n{page}")).ends_with(" 1")
    };
    assert!(!metric("backpressure").await);
    push.publish("work", json!(1)).await;
    push.held("work").await;

    wait::until("the metric to follow", DEADLINE, async || metric("backpressure").await.then_some(())).await;
    assert!(!metric("circuit").await);
}

/// More publishes at once than this are refused by three nodes on two busy cores.
const ROUNDS_AT_ONCE: usize = 10;

async fn publish_round(push: &Push, queue: &str, jobs: usize) {
    for number in 0..jobs {
        push.publish(queue, json!(number)).await;
    }
}

// The probe of a hold is accepted and its outcome comes later: the receipt ends the hold, and the jobs that waited
// behind it go out at once, not with the next publish or ack timeout. Each queue is one round.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_that_ends_a_hold_lets_the_waiting_jobs_out() {
    const JOBS: usize = 6;
    let push = Push::set().await;
    let rounds = volume(100, 200);
    let queues: Vec<String> = (0..rounds).map(|round| format!("work-{round}")).collect();
    for queue in &queues {
        let refused = Answer::with(503, &[("retry-after", "1")], b"");
        push.receiver.answer(&format!("/{queue}"), [refused, Answer::status(200)]);
        push.queue(queue, json!({"mode": "ack", "ackTimeout": 600})).await;
    }

    let publish_rounds = queues.iter().map(|queue| publish_round(&push, queue, JOBS));
    futures_util::stream::iter(publish_rounds).buffer_unordered(ROUNDS_AT_ONCE).collect::<()>().await;
    wait::until_now("the waiting jobs of every queue to go out", DEADLINE, || {
        queues.iter().all(|queue| push.count(queue) > JOBS).then_some(())
    })
    .await;

    for queue in &queues {
        let hold = push.show(queue).await["hold"].clone();
        assert_eq!((push.count(queue), hold), (JOBS + 1, Value::Null), "{queue}");
    }
}
