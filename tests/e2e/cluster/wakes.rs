//! Waiting on one node for what happens on another: in milliseconds with Redis, by the poll without.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use outlast_tests::stopwatch::Stopwatch;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::api::{make_queue, publish, receive, receive_one, settle, text};
use crate::cluster::{clients, three_deaf_nodes, three_nodes};

/// Below half the poll floor with Redis, which is five seconds: when all rounds of a test are, only messages can be the
/// cause.
const BY_MESSAGE_MAX: Duration = Duration::from_secs(2);
/// The poll floor without Redis is one second; this is less than the floor with it.
const BY_POLL_MAX: Duration = Duration::from_secs(4);
/// Time enough for a waiter to have looked and found nothing.
const SETTLED: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_is_woken_by_a_publish_on_another_node_in_milliseconds() {
    let taken = wake_receives(three_nodes(), 20).await;

    println!("with Redis: woken after {taken:?} (median {:?})", taken[taken.len() / 2]);
    assert!(taken.iter().all(|taken| *taken < BY_MESSAGE_MAX), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_waiting_receive_is_woken_within_the_poll_floor() {
    let taken = wake_receives(three_deaf_nodes(), 6).await;

    println!("without Redis: woken after {taken:?}");
    assert!(taken.iter().all(|taken| *taken < BY_POLL_MAX), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_on_a_version_ends_when_another_node_changes_the_job() {
    let taken = wake_watchers(three_nodes(), 9).await;

    println!("with Redis: woken after {taken:?}");
    assert!(taken.iter().all(|taken| *taken < BY_MESSAGE_MAX), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_long_poll_on_a_version_ends_within_the_poll_floor() {
    let taken = wake_watchers(three_deaf_nodes(), 6).await;

    println!("without Redis: woken after {taken:?}");
    assert!(taken.iter().all(|taken| *taken < BY_POLL_MAX), "{taken:?}");
}

// A delayed job that becomes due on another node wakes as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_job_wakes_a_receive_on_another_node_when_it_is_due() {
    for launch in [three_nodes(), three_deaf_nodes()] {
        let server = launch.start().await;
        let nodes = clients(&server);
        make_queue(&nodes[0], "work", json!({})).await;
        let waiting = wait_on(&nodes[1], "work").await;

        let started = Stopwatch::start();
        nodes[0].post("/v1/queues/work/jobs", json!({"delay": 1})).await.unwrap().expect(202);
        let jobs = waiting.await.unwrap();

        let (taken, charged) = (started.elapsed(), started.charged());
        assert_eq!(jobs.len(), 1);
        assert!(taken >= Duration::from_secs(1), "before it is due: after {taken:?}");
        assert!(charged < Duration::from_secs(1) + BY_POLL_MAX, "after {taken:?}");
    }
}

/// For each round a receive that waits on one node and a publish on another; how long it took, sorted.
async fn wake_receives(launch: Launch, rounds: usize) -> Vec<Duration> {
    let server = launch.start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({})).await;
    let mut taken = Vec::new();
    for round in 0..rounds {
        let waiting = wait_on(&nodes[round % 3], "work").await;
        let started = Stopwatch::start();
        let id = publish(&nodes[(round + 1) % 3], "work", json!(round)).await;
        let jobs = waiting.await.unwrap();
        taken.push(started.charged());
        assert_eq!(jobs[0]["id"], json!(id));
    }
    taken.sort();
    taken
}

/// The same for a reader that waits for the next version of a job.
async fn wake_watchers(launch: Launch, rounds: usize) -> Vec<Duration> {
    let server = launch.start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({"visibilityTimeout": 600})).await;
    let mut taken = Vec::new();
    for round in 0..rounds {
        let (watching, changing) = (nodes[round % 3].clone(), &nodes[(round + 1) % 3]);
        let id = publish(changing, "work", json!(round)).await;
        let held = receive_one(changing, "work").await;
        let path = format!("/v1/jobs/{id}?wait=30s&version=2");
        let waiting = tokio::spawn(async move { watching.get(&path).await.unwrap().expect(200) });
        tokio::time::sleep(SETTLED).await;
        assert!(!waiting.is_finished(), "nothing has changed yet");

        let started = Stopwatch::start();
        settle(changing, &text(&held["id"]), "ack", json!({"lease": held["lease"]})).await;
        let seen = waiting.await.unwrap();
        taken.push(started.charged());
        assert_eq!((&seen["status"], &seen["version"]), (&json!("succeeded"), &json!(3)));
    }
    taken
}

/// A receive that is known to wait.
async fn wait_on(node: &Client, queue: &str) -> JoinHandle<Vec<Value>> {
    let (node, queue) = (node.clone(), queue.to_owned());
    let waiting = tokio::spawn(async move { receive(&node, &queue, json!({"wait": 30})).await });
    tokio::time::sleep(SETTLED).await;
    assert!(!waiting.is_finished(), "an empty queue is waited on");
    waiting
}
