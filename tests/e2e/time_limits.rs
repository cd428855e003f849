//! The clocks of a job: lease, heartbeat, soft and hard limit, the limit of the whole job, the latest start. Each acts
//! within two seconds after its deadline and never before it, also over a crash and when settings change in between.

mod heartbeats;

use std::time::Duration;

use jiff::Timestamp;
use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{events, job, make_queue, publish, publish_many, receive, receive_one, settle, text};

/// A deadline is acted on within this. (I-20)
pub(crate) const LATE_MAX: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(60);
/// Jobs of each kind.
const JOBS: usize = 20;

/// A job that will be ended by a clock.
#[derive(Debug)]
struct Timed {
    id: String,
    deadline: Timestamp,
    /// How the log names the end.
    reason: &'static str,
    /// The attempt that the job is in afterwards.
    attempt: u64,
}

// I-20: every clock that ends something, on twenty jobs each.
#[tokio::test(flavor = "multi_thread")]
async fn every_limit_ends_its_job_at_its_deadline_and_never_before() {
    let server = Server::fresh().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    let timed = bring_under_limits(&client, Duration::from_secs(8)).await;
    let count = timed.len();

    let late = ends_of(&client, timed, Duration::ZERO, &stopwatch).await;

    println!("{count} deadlines; the latest was acted on after {late:?}");
}

// I-20: the deadlines are in the store. After kill -9 none is forgotten, and none comes early.
#[tokio::test(flavor = "multi_thread")]
async fn every_limit_holds_over_a_crash() {
    let mut server = Server::fresh().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    let timed = bring_under_limits(&client, Duration::from_secs(15)).await;
    let first = timed.iter().map(|timed| timed.deadline).min().expect("there are some");
    // The last sign of life before the crash.
    publish(&client, "start", json!("alive")).await;
    let died_at = Timestamp::now();

    server.crash_and_restart().await;

    assert!(died_at < first, "the crash was before every deadline");
    // The deadlines are extended by the downtime, because no worker could report.
    let outage = Timestamp::now().duration_since(died_at).unsigned_abs();
    let late = ends_of(&server.client(), timed, outage, &stopwatch).await;
    println!("away for {outage:?}; the latest deadline was acted on after {late:?}");
}

/// Jobs under each of the limits, which are all `limit` long.
async fn bring_under_limits(client: &Client, limit: Duration) -> Vec<Timed> {
    let seconds = limit.as_secs_f64();
    // All at the same time: a slow machine must not be past the first limit before the last job is there.
    let mut setups = JoinSet::new();
    for (queue, settings, reason) in [
        ("lease", json!({ "visibilityTimeout": seconds }), "lease_expired"),
        ("beat", json!({"visibilityTimeout": 600, "heartbeatTimeout": seconds}), "heartbeat_lost"),
        ("hard", json!({"visibilityTimeout": 600, "hardTimeLimit": seconds}), "hard_time_limit"),
        ("whole", json!({"visibilityTimeout": 600, "jobTimeout": seconds}), "cancelled_by_timeout"),
    ] {
        setups.spawn(in_their_first_attempt(client.clone(), queue, settings, reason, limit));
    }
    for (queue, delay) in [("second", 0), ("between", 600)] {
        setups.spawn(in_their_second_attempt(client.clone(), queue, delay, limit));
    }
    setups.spawn(waiting_to_start(client.clone(), limit));
    setups.join_all().await.into_iter().flatten().collect()
}

async fn in_their_first_attempt(
    client: Client,
    queue: &'static str,
    settings: Value,
    reason: &'static str,
    limit: Duration,
) -> Vec<Timed> {
    make_queue(&client, queue, settings).await;
    publish_many(&client, queue, JOBS).await;
    let mut all = Vec::new();
    for held in receive(&client, queue, json!({ "batch": JOBS })).await {
        let id = text(&held["id"]);
        let deadline = time(&job(&client, &id).await["startedAt"]) + limit;
        let attempt = if reason == "cancelled_by_timeout" { 1 } else { 2 };
        all.push(Timed { id, deadline, reason, attempt });
    }
    all
}

/// The limit of the whole job counts from the first attempt: while a second one runs, and while one is waited for.
async fn in_their_second_attempt(client: Client, queue: &'static str, delay: u64, limit: Duration) -> Vec<Timed> {
    make_queue(&client, queue, json!({"visibilityTimeout": 600, "jobTimeout": limit.as_secs_f64()})).await;
    publish_many(&client, queue, JOBS).await;
    // In few calls: all of it must be over before the limit.
    let held = receive(&client, queue, json!({ "batch": JOBS })).await;
    let nack = |job: &Value| json!({"id": job["id"], "lease": job["lease"], "outcome": "nack", "delay": delay});
    let nacks: Vec<Value> = held.iter().map(nack).collect();
    let results = client.post("/v1/outcomes", json!({ "outcomes": nacks })).await.unwrap().expect(200);
    assert!(results["results"].as_array().unwrap().iter().all(|result| result["accepted"] == true), "{results}");
    let again = receive(&client, queue, json!({ "batch": JOBS })).await.len();
    assert_eq!(again, if delay == 0 { JOBS } else { 0 }, "{queue}");
    let mut all = Vec::new();
    for id in held.iter().map(|held| text(&held["id"])) {
        let deadline = time(&job(&client, &id).await["startedAt"]) + limit;
        all.push(Timed { id, deadline, reason: "cancelled_by_timeout", attempt: 2 });
    }
    all
}

/// Eligible jobs that no worker takes, and jobs that are not eligible yet.
async fn waiting_to_start(client: Client, limit: Duration) -> Vec<Timed> {
    make_queue(&client, "start", json!({})).await;
    let mut all = Vec::new();
    for number in 0..JOBS {
        // As the wire has it: whole milliseconds.
        let start_by = Timestamp::from_millisecond((Timestamp::now() + limit).as_millisecond()).unwrap();
        let delay = if number % 2 == 0 { 0 } else { 600 };
        let request = json!({"payload": number, "delay": delay, "startBy": format!("{start_by:.3}")});
        let id = text(&client.post("/v1/queues/start/jobs", request).await.unwrap().expect(202)["id"]);
        all.push(Timed { id, deadline: start_by, reason: "cancelled_by_timeout", attempt: 1 });
    }
    all
}

/// Waits for all ends and holds each against its deadline; what the machine withheld since the scene began is not late.
/// The greatest lateness.
async fn ends_of(client: &Client, timed: Vec<Timed>, grace: Duration, stopwatch: &Stopwatch) -> Duration {
    let mut latest = Duration::ZERO;
    for timed in timed {
        latest = latest.max(end_of(client, &timed, grace, stopwatch).await);
    }
    latest
}

async fn end_of(client: &Client, timed: &Timed, grace: Duration, stopwatch: &Stopwatch) -> Duration {
    let end = wait::until(&format!("{timed:?}"), DEADLINE, async || {
        let events = events(client, &timed.id).await;
        events.into_iter().find(|event| event["type"] == "state" && event["reason"] == timed.reason)
    })
    .await;
    let late = time(&end["at"]).duration_since(timed.deadline);
    assert!(!late.is_negative(), "{timed:?} ended {late:?} early: {end}");
    let late = late.unsigned_abs();
    assert!(late <= LATE_MAX + grace + stopwatch.withheld(), "{timed:?} ended {late:?} late: {end}");
    let job = job(client, &timed.id).await;
    assert_eq!(job["attempt"], timed.attempt, "{timed:?}: {job}");
    if timed.reason == "cancelled_by_timeout" {
        assert_eq!((&job["status"], &job["cancelReason"]), (&json!("cancelled"), &json!("timeout")), "{timed:?}");
    }
    late
}

// The soft limit tells the worker and ends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_reports_the_soft_limit_which_ends_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600, "softTimeLimit": 2})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;
    assert_eq!(held["softTimeLimit"], 2);
    let limit = time(&job(&client, &id).await["startedAt"]) + Duration::from_secs(2);

    wait::until("the soft limit to be reported", DEADLINE, async || {
        let asked_at = Timestamp::now();
        let beat = settle(&client, &id, "heartbeat", json!({"lease": held["lease"]})).await;
        let is_told = beat["softLimitReached"] == true;
        assert!(!is_told || Timestamp::now() >= limit, "reported before the limit: {beat}");
        assert!(is_told || asked_at < limit, "not reported after the limit: {beat}");
        is_told.then_some(())
    })
    .await;

    let after = job(&client, &id).await;
    assert_eq!((&after["status"], &after["attempt"]), (&json!("running"), &json!(1)));
    assert_eq!(settle(&client, &id, "ack", json!({"lease": held["lease"]})).await["status"], "succeeded");
}

// A worker that reports all the time is ended by the hard limit and by the limit of the job all the same.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_do_not_carry_a_job_over_its_limits() {
    let server = Server::fresh().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    // Leases that are long against the limits: they must not end first if the machine pauses for a moment.
    for (queue, settings, reason, attempt) in [
        ("hard", json!({"visibilityTimeout": 60, "hardTimeLimit": 2}), "hard_time_limit", 2),
        ("whole", json!({"visibilityTimeout": 60, "jobTimeout": 2}), "cancelled_by_timeout", 1),
    ] {
        make_queue(&client, queue, settings).await;
        let id = publish(&client, queue, json!(1)).await;
        let held = receive_one(&client, queue).await;
        let deadline = time(&job(&client, &id).await["startedAt"]) + Duration::from_secs(2);

        let refused = wait::until("the lease to be taken away", DEADLINE, async || {
            let beat = json!({"lease": held["lease"], "extend": 600});
            let reply = client.post(&format!("/v1/jobs/{id}/heartbeat"), beat).await.unwrap();
            (reply.status != 200).then_some(reply)
        })
        .await;

        refused.expect_problem(409, "lease_lost");
        end_of(&client, &Timed { id, deadline, reason, attempt }, Duration::ZERO, &stopwatch).await;
    }
}

// A limit that is made longer is the longer one for who runs already; one that is made shorter acts from the next step
// on.
#[tokio::test(flavor = "multi_thread")]
async fn limits_may_change_while_a_job_runs() {
    let server = Server::fresh().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    for (queue, limit) in [("longer", 6), ("shorter", 600)] {
        make_queue(&client, queue, json!({"visibilityTimeout": 600, "hardTimeLimit": limit})).await;
        publish_many(&client, queue, 5).await;
    }
    let mut timed = Vec::new();
    for (queue, limit) in [("longer", 9), ("shorter", 1)] {
        let held = receive(&client, queue, json!({"batch": 5})).await;
        client.patch(&format!("/v1/queues/{queue}"), json!({"hardTimeLimit": limit})).await.unwrap().expect(200);
        for held in held {
            let id = text(&held["id"]);
            settle(&client, &id, "heartbeat", json!({"lease": held["lease"]})).await;
            let deadline = time(&job(&client, &id).await["startedAt"]) + Duration::from_secs(limit);
            timed.push(Timed { id, deadline, reason: "hard_time_limit", attempt: 2 });
        }
    }

    ends_of(&client, timed, Duration::ZERO, &stopwatch).await;
}

pub(crate) fn time(value: &Value) -> Timestamp {
    text(value).parse().expect("times are RFC 3339")
}
