//! How the work goes, in a word; and work that does not move though its worker lives: an event, a flag, a count, and a
//! retry where the queue asks for one.

use std::time::{Duration, Instant};

use outlast_tests::http::Client;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Work};
use crate::api::{events, text};

async fn until_word(work: &Work, word: &str) -> Duration {
    let began = Instant::now();
    wait::until(&format!("the work to be {word}"), DEADLINE, async || {
        (work.job().await["liveness"] == word).then_some(())
    })
    .await;
    began.elapsed()
}

/// Heartbeats until the job says so.
async fn beat_until<T>(work: &Work, what: &str, mut is_so: impl FnMut(&Value) -> Option<T>) -> T {
    wait::until(what, DEADLINE, async || {
        let beat = work.client.post(&work.path("heartbeat"), json!({})).await.unwrap();
        assert!(matches!(beat.status, 200 | 409), "{}", beat.body);
        is_so(&work.job().await)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_heartbeats_is_slow_and_one_with_heartbeats_works() {
    let work = Work::begin(json!({"visibilityTimeout": 15, "stallTimeout": 60})).await;
    assert_eq!(work.job().await["liveness"], json!("working"));

    let silent = until_word(&work, "slow").await;
    work.heartbeat(json!({})).await;

    assert_eq!(work.job().await["liveness"], json!("working"));
    assert!(silent > Duration::from_secs(7), "two thirds of the lease have passed, not {silent:?}");
    assert_eq!(work.job().await["attempt"], json!(1), "it was never taken away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_over_its_soft_limit_is_slow() {
    let work = Work::begin(json!({"softTimeLimit": 1})).await;

    until_word(&work, "slow").await;

    let told = work.heartbeat(json!({})).await;
    assert_eq!((&told["softLimitReached"], &told["directives"]), (&json!(true), &json!(["checkpoint_now"])));
}

// Without any report the server cannot know whether the job makes progress, so the job is never `stuck`.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_reports_no_progress_is_never_stuck() {
    let work = Work::begin(json!({"stallTimeout": 1})).await;
    let began = Instant::now();

    let job = beat_until(&work, "three times the timeout", |job| {
        (began.elapsed() > Duration::from_secs(3)).then(|| job.clone())
    })
    .await;

    assert_eq!((&job["liveness"], &job["stalled"]), (&json!("working"), &json!(false)));
    assert!(events(&work.client, &work.id).await.iter().all(|event| event["type"] != "note"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_is_an_event_a_flag_and_a_count_until_work_moves_again() {
    let work = Work::begin(json!({"stallTimeout": 4})).await;
    let began = Stopwatch::start();
    work.report(json!({"pct": 10})).await;

    beat_until(&work, "the stall", |job| (job["stalled"] == true).then_some(())).await;
    let (taken, charged) = (began.elapsed(), began.charged());
    let stuck = work.job().await;
    // Other words are no work.
    work.report(json!({"pct": 10, "message": "still trying"})).await;
    assert_eq!(work.job().await["stalled"], json!(true));
    let notes = notes(&work).await;
    let counted = stalls(&work).await;
    work.heartbeat(json!({"progress": {"pct": 11}})).await;
    let moving = work.job().await;

    assert!(taken >= Duration::from_secs(4) && charged < Duration::from_secs(8), "{taken:?}, {charged:?} charged");
    assert_eq!((&stuck["liveness"], &stuck["status"]), (&json!("stuck"), &json!("running")));
    assert_eq!(notes, ["progress_stall: no progress for 4 s"], "said once");
    assert_eq!(counted, 1);
    assert_eq!((&moving["stalled"], &moving["liveness"]), (&json!(false), &json!("working")));
    work.ack().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_ends_the_attempt_where_the_queue_asks_for_it() {
    let mut work = Work::begin(json!({"stallTimeout": 4, "stallAction": "retry"})).await;
    work.report(json!({"pct": 10})).await;
    work.checkpoint(1, json!({"at": 10})).await;
    let zombie = work.lease.clone();

    beat_until(&work, "the attempt to end", |job| (job["attempt"] == 2).then_some(())).await;
    let held = work.take().await;

    assert_eq!(held["checkpoint"]["data"], json!({"at": 10}), "what was saved is not lost with it");
    let log = events(&work.client, &work.id).await;
    assert!(log.iter().any(|event| event["reason"] == "stalled"), "{log:?}");
    assert_eq!(work.job().await["lastError"], json!("stalled"));
    assert_eq!(stalls(&work).await, 1);
    let late = work.client.post(&work.path("ack"), json!({ "lease": zombie })).await.unwrap();
    late.expect_problem(409, "lease_lost");
}

// Reports that are only held in memory count: moving work is never called stuck, whatever is written down of it.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_moves_is_never_stuck() {
    let work = Work::begin(json!({"stallTimeout": 4, "stallAction": "retry"})).await;
    let began = Instant::now();
    let mut done = 0;
    wait::until("two timeouts of steady work", DEADLINE, async || {
        done += 1;
        work.report(json!({ "itemsDone": done })).await;
        (began.elapsed() > Duration::from_secs(9)).then_some(())
    })
    .await;

    let job = work.job().await;
    assert_eq!((&job["attempt"], &job["stalled"], &job["liveness"]), (&json!(1), &json!(false), &json!("working")));
    assert_eq!(notes(&work).await, Vec::<String>::new());
}

async fn notes(work: &Work) -> Vec<String> {
    let log = events(&work.client, &work.id).await;
    log.iter().filter(|event| event["type"] == "note").map(|event| text(&event["text"])).collect()
}

/// Over all nodes: whichever served the alarm has counted it.
async fn stalls(work: &Work) -> u64 {
    let mut all = 0;
    for node in &work.server.nodes {
        all += counter(&node.client(), "outlast_jobs_stalled_total").await;
    }
    all
}

async fn counter(client: &Client, name: &str) -> u64 {
    let metrics = client.get("/metrics").await.unwrap().expect(200);
    let line = metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("there is no {name}")).trim().parse().unwrap()
}
