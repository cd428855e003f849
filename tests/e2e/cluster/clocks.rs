//! Nodes whose clocks are five minutes off, one ahead and one behind: nothing but their log shows it. The database's
//! clock decides. (F36, I-13, I-40)

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use outlast_tests::daemon::find_program;
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{job, make_queue, publish, receive, receive_one, settle, text};
use crate::cluster::{clients, three_nodes};

/// By node: ahead, behind, right.
const SKEWS: [(&str, i64); 3] = [("+5m", 300), ("-5m", -300), ("+0", 0)];
const DELAY: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(3);
/// No client waits for this one: it must outlast the test.
const LONG_LEASE: Duration = Duration::from_secs(60);
/// From the moment at which something is due until it is seen to have happened. A node that used a wrong clock would be
/// late by minutes; how late a right one may be is the matter of other tests.
const LATE_MAX: Duration = Duration::from_secs(30);
/// The clock of the database and ours are the same; this is what an answer may take, and far less than clocks are off.
const STAMP_MAX: SignedDuration = SignedDuration::from_secs(30);

// I-13, F36: a delayed job comes when it is due by the database's clock, whichever nodes accept it and hand it out.
#[tokio::test(flavor = "multi_thread")]
async fn delayed_jobs_come_neither_early_nor_late_on_nodes_with_wrong_clocks() {
    let server = skewed().await;
    let mut pairs = JoinSet::new();
    for (into, publisher) in clients(&server).into_iter().enumerate() {
        for (out_of, consumer) in clients(&server).into_iter().enumerate() {
            for by_time in [false, true] {
                let (publisher, consumer) = (publisher.clone(), consumer.clone());
                let queue = format!("q-{into}-{out_of}-{by_time}");
                pairs.spawn(async move { delayed(&publisher, &consumer, &queue, by_time).await });
            }
        }
    }

    let taken = pairs.join_all().await;

    assert_eq!(taken.len(), 18);
    for (queue, taken, charged) in taken {
        assert!(taken >= DELAY, "{queue}: after {taken:?}, before it was due");
        assert!(charged <= DELAY + LATE_MAX, "{queue}: after {taken:?}");
    }
}

/// How long after its publish the job was handed out, and what of it is charged.
async fn delayed(publisher: &Client, consumer: &Client, queue: &str, by_time: bool) -> (String, Duration, Duration) {
    make_queue(publisher, queue, json!({})).await;
    // Before the publish, which may take its time: the due moment lies after this one by at least the delay.
    let (started, due) = (Stopwatch::start(), Timestamp::now() + DELAY);
    let when = if by_time { json!({"runAt": due.to_string()}) } else { json!({"delay": DELAY.as_secs()}) };
    publisher.post(&format!("/v1/queues/{queue}/jobs"), when).await.unwrap().expect(202);
    receive_one(consumer, queue).await;
    (queue.to_owned(), started.elapsed(), started.charged())
}

// F36: a lease lasts its full time, whichever nodes grant and revoke it.
#[tokio::test(flavor = "multi_thread")]
async fn leases_end_neither_early_nor_late_on_nodes_with_wrong_clocks() {
    let server = skewed().await;
    let nodes = clients(&server);
    for (number, node) in nodes.iter().enumerate() {
        let queue = format!("lease-{number}");
        make_queue(node, &queue, json!({"visibilityTimeout": LONG_LEASE.as_secs()})).await;
        let kept = publish(node, &queue, json!("kept")).await;
        let held = receive_one(node, &queue).await;
        let other = &nodes[(number + 1) % nodes.len()];

        // No other worker gets it while the lease lasts, and its holder may end it through any node.
        let early = receive(other, &queue, json!({"wait": 2})).await;
        assert_eq!(early.len(), 0, "handed out while its lease lasts");
        assert_eq!(settle(other, &kept, "ack", json!({"lease": held["lease"]})).await["status"], "succeeded");

        let queue = format!("short-{number}");
        make_queue(node, &queue, json!({"visibilityTimeout": LEASE.as_secs()})).await;
        publish(node, &queue, json!("dropped")).await;
        let started = Stopwatch::start();
        receive_one(node, &queue).await;
        let again = receive_one(other, &queue).await;
        let (taken, charged) = (started.elapsed(), started.charged());
        assert_eq!(again["attempt"], 2);
        assert!(taken >= LEASE && charged <= LEASE + LATE_MAX, "node {number}: reaped after {taken:?}");
    }
}

// F36: every time in an answer is the database's.
#[tokio::test(flavor = "multi_thread")]
async fn times_in_answers_are_those_of_the_database() {
    let server = skewed().await;
    let nodes = clients(&server);
    for (number, node) in nodes.iter().enumerate() {
        let queue = format!("stamps-{number}");
        make_queue(node, &queue, json!({"visibilityTimeout": 60})).await;
        let id = publish(node, &queue, json!(1)).await;
        let held = receive_one(node, &queue).await;
        assert_near(&held["leaseExpiresAt"], 60, number);
        settle(node, &id, "ack", json!({"lease": held["lease"]})).await;
        let key = json!({"name": "short", "scopes": ["read"], "expiresIn": 600});
        let key = node.post("/v1/keys", key).await.unwrap().expect(201);
        assert_near(&key["createdAt"], 0, number);
        assert_near(&key["expiresAt"], 600, number);
        // A key that lasts is good on all nodes, also where the clock says that it has expired or is not valid yet.
        for reader in &nodes {
            let theirs = Client::new(&reader.base, &text(&key["key"]));
            let job = job(&theirs, &id).await;
            for field in ["createdAt", "startedAt", "finishedAt"] {
                assert_near(&job[field], 0, number);
            }
            for event in job["events"].as_array().unwrap() {
                assert_near(&event["at"], 0, number);
            }
        }
    }
}

/// Near so many seconds from this moment.
#[track_caller]
fn assert_near(stamp: &Value, seconds: i64, node: usize) {
    let stamp: Timestamp = text(stamp).parse().expect("a time");
    let off = stamp.duration_since(Timestamp::now()) - SignedDuration::from_secs(seconds);
    assert!(off.abs() <= STAMP_MAX, "node {node}: {stamp} is off by {off:?}");
}

/// Three nodes with their clocks set wrong; the log of each shows that they are.
async fn skewed() -> Server {
    let faketime = find_program("faketime", &[], "faketime").display().to_string();
    let mut launch: Launch =
        three_nodes().with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1").with_env("OUTLAST_LOG", "info");
    for (node, (skew, _)) in SKEWS.iter().enumerate() {
        launch = launch.wrapped_on(node, vec![faketime.clone(), "-f".to_owned(), (*skew).to_owned()]);
    }
    let server = launch.start().await;
    for (node, (_, seconds)) in server.nodes.iter().zip(SKEWS) {
        let log = node.log();
        let line: Value = serde_json::from_str(log.lines().next().expect("a start is logged")).expect("a JSON line");
        let stamp: Timestamp = text(&line["timestamp"]).parse().expect("a time");
        let off = stamp.duration_since(Timestamp::now()).as_secs();
        assert!((off - seconds).abs() < 120, "node {} is off by {off} s, not {seconds}", node.number);
    }
    server
}
