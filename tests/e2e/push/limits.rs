//! Limits that hold over all nodes together: rates and concurrency, as they arrive where they matter. (I-25)

use std::time::Duration;

use outlast_tests::receiver::{Answer, Gate, Receiver};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{DEADLINE, Push, queue_to};
use crate::api::{make_queue, publish_many, receive, settle, text};

const RATE: usize = 20;
const JOBS: usize = 60;

/// The times of all first hand-outs of a queue, in milliseconds, as the store has them: of one clock, whatever the machine
/// is busy with.
async fn starts(push: &Push, queue: &str) -> Vec<i64> {
    let page = push.client.get(&format!("/v1/jobs?queue={queue}&limit=200")).await.unwrap().expect(200);
    let at = |job: &Value| text(&job["startedAt"]).parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let mut starts: Vec<i64> = page["items"].as_array().unwrap().iter().map(at).collect();
    starts.sort_unstable();
    starts
}

/// No second has more hand-outs than the rate, and the rate is used.
fn check_rate(starts: &[i64]) {
    assert_eq!(starts.len(), JOBS);
    let within = |first: usize| starts[first..].iter().take_while(|at| **at - starts[first] < 1000).count();
    let most = (0..starts.len()).map(within).max().unwrap();
    println!("{most} within a second, {} ms for all", starts[JOBS - 1] - starts[0]);
    assert!(most <= RATE, "{most} within one second");
    assert!(most > RATE / 2, "only {most} within one second");
}

// I-25: no second sees more deliveries than the rate says.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_queue_keeps_its_rate() {
    let push = Push::set().await;
    push.queue("work", json!({"rateLimit": {"limit": RATE, "per": "1s"}})).await;
    publish_many(&push.client, "work", JOBS).await;

    push.arrivals("work", JOBS).await;

    check_rate(&starts(&push, "work").await);
    assert_eq!(push.count("work"), JOBS);
}

// I-25: pullers get no more than the rate says either, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn pullers_never_get_more_than_the_rate() {
    let push = Push::set().await;
    make_queue(&push.client, "pull", json!({"rateLimit": {"limit": RATE, "per": "1s"}, "visibilityTimeout": "1h"}))
        .await;
    publish_many(&push.client, "pull", JOBS).await;
    let mut pullers = JoinSet::new();
    for _ in 0..6 {
        let client = push.client.clone();
        pullers.spawn(async move {
            let mut received = 0;
            loop {
                let jobs = receive(&client, "pull", json!({"batch": 10, "wait": 2})).await;
                if jobs.is_empty() {
                    return received;
                }
                received += jobs.len();
            }
        });
    }

    let received: usize = pullers.join_all().await.into_iter().sum();

    assert_eq!(received, JOBS);
    check_rate(&starts(&push, "pull").await);
}

// I-25: never more requests under way than the concurrency says, counted at the endpoint; and all of it is used.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_queue_keeps_its_concurrency() {
    let push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).after(Duration::from_millis(5)).once_open(&gate)]);
    push.queue("work", json!({"concurrency": 3, "maxAttempts": 1})).await;
    push.queue("other", json!({})).await;
    publish_many(&push.client, "work", 40).await;
    push.arrivals("work", 3).await;

    // Thirty jobs of another queue later there are still three, and no more have come.
    for id in publish_many(&push.client, "other", 30).await {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }
    assert_eq!((push.count("work"), push.show("work").await["counts"]["running"].clone()), (3, json!(3)));
    gate.open();
    wait::until("all jobs to succeed", DEADLINE, async || {
        (push.show("work").await["counts"]["succeeded"] == 40).then_some(())
    })
    .await;

    assert_eq!((push.receiver.most_under_way("/work"), push.count("work")), (3, 40));
}

// Jobs that wait for their ack are running, and count.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_for_their_ack_count_for_the_concurrency() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "concurrency": 2})).await;
    push.queue("other", json!({})).await;
    publish_many(&push.client, "work", 3).await;
    let first = push.arrivals("work", 2).await.remove(0);
    for id in publish_many(&push.client, "other", 10).await {
        push.ended(&id).await;
    }
    assert_eq!(push.count("work"), 2);

    let id = text(&first.json()["id"]);
    settle(&push.client, &id, "ack", json!({"lease": first.lease()})).await;

    assert_eq!(push.arrivals("work", 3).await.len(), 3);
}

// A paused queue delivers nothing; resumed, it delivers everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_delivers_nothing_until_it_is_resumed() {
    let push = Push::set().await;
    push.queue("work", json!({})).await;
    push.queue("other", json!({})).await;
    push.client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    let ids = publish_many(&push.client, "work", 20).await;
    for id in publish_many(&push.client, "other", 20).await {
        push.ended(&id).await;
    }
    assert_eq!(push.count("work"), 0);

    push.client.post("/v1/queues/work/resume", json!({})).await.unwrap().expect(200);

    for id in ids {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }
    assert_eq!(push.count("work"), 20);
}

// A pause lets what is under way come to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_does_not_harm_what_is_under_way() {
    let push = Push::set().await;
    let gate = Gate::shut();
    push.receiver.answer("/work", [Answer::status(200).once_open(&gate)]);
    push.queue("work", json!({"maxAttempts": 1})).await;
    let id = push.publish("work", json!(1)).await;
    push.arrival("work").await;

    push.client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    gate.open();

    assert_eq!(push.ended(&id).await["status"], "succeeded");
}

// One queue with an endpoint that never answers does not hold up another one, however many jobs wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_endpoint_holds_up_no_other_queue() {
    let push = Push::set().await;
    let gate = Gate::shut();
    // On a host of its own, since requests to one host share a cap.
    let dead = Receiver::at("127.0.0.2:0").await;
    dead.answer("/dead", [Answer::status(200).once_open(&gate)]);
    queue_to(&push.client, &dead, "dead", json!({"concurrency": 100_000, "webhookTimeout": 60})).await;
    push.queue("alive", json!({})).await;
    publish_many(&push.client, "dead", 2000).await;
    dead.arrivals("/dead", 100, DEADLINE).await;

    let started = Stopwatch::start();
    for id in publish_many(&push.client, "alive", 50).await {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }

    let taken = started.charged();
    println!("50 jobs took {taken:?} beside {} that wait for a silent endpoint", dead.count("/dead"));
    assert!(taken < Duration::from_secs(20), "50 jobs took {taken:?}");
}
