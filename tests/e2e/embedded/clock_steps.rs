//! The system's clock is set back between two starts.

use std::time::Duration;

use outlast_tests::daemon::find_program;
use outlast_tests::server::Launch;
use outlast_tests::stopwatch::Stopwatch;
use serde_json::json;

use crate::api::{make_queue, publish, receive};
use crate::cli::Cli;

const LEASE: Duration = Duration::from_secs(5);
/// For a start and a poll on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

// F13: after a step back of an hour leases and delays end as long after their beginning as they were meant to.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_set_back_freezes_neither_leases_nor_delays() {
    let faketime = find_program("faketime", &[], "faketime").display().to_string();
    let launch = Launch::embedded();
    let mut server = launch.start().await;
    make_queue(&server.client(), "leased", json!({"visibilityTimeout": LEASE.as_secs()})).await;
    make_queue(&server.client(), "delayed", json!({})).await;
    publish(&server.client(), "leased", json!(1)).await;
    let delay = json!({"payload": 2, "delay": LEASE.as_secs()});
    server.client().post("/v1/queues/delayed/jobs", delay).await.unwrap().expect(202);
    assert_eq!(receive(&server.client(), "leased", json!({"batch": 1, "wait": 10})).await.len(), 1);
    server.kill9().await;

    let skewed = launch.clone().with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1").wrapped_by(vec![
        faketime,
        "-f".to_owned(),
        "-3600s".to_owned(),
    ]);
    let server = skewed.start().await;
    let stopwatch = Stopwatch::start();
    assert!(server.log().contains("behind the last commit"), "a step back is logged: {}", server.log());
    for queue in ["leased", "delayed"] {
        let jobs = receive(&server.client(), queue, json!({"batch": 1, "wait": 25})).await;
        assert_eq!(jobs.len(), 1, "{queue}: frozen by the step");
    }
    assert!(stopwatch.charged() < LEASE + SLACK, "{:?}", stopwatch.charged());
}

// F13: the doctor says that the clock is behind.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_sees_a_clock_that_is_behind() {
    let faketime = find_program("faketime", &[], "faketime").display().to_string();
    let launch = Launch::embedded();
    let ahead = launch.clone().with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1").wrapped_by(vec![
        faketime,
        "-f".to_owned(),
        "+3600s".to_owned(),
    ]);
    let mut server = ahead.start().await;
    make_queue(&server.client(), "work", json!({})).await;
    server.kill9().await;

    let found = Cli::without_server(&launch).run(&["doctor", "--data", launch.data.to_str().unwrap()]);

    assert!(found.out.contains("behind the last commit"), "{}", found.out);
}
