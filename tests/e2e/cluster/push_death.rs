//! Nodes that die while they deliver, and a Redis that does: the others go on. (F01, F20, I-40)

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::deliveries;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};
use outlast_tests::sink::{Say, Sink};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::{make_queue, publish, publish_many};
use crate::cluster::{blocking, clients, three_nodes};
use crate::push_load::{PushLoad, assert_sound, drained, endings, pushing};

/// A delivery's lease is its timeout and five seconds.
const LEASE: Duration = Duration::from_secs(8);
/// The time that the promise allows beyond the lease, and the backoff of the queue here.
const LATE_MAX: Duration = Duration::from_millis(2000 + 100);
const DEADLINE: Duration = Duration::from_secs(60);

// F01: deliveries of a dead node are made again by others within their lease and two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn others_take_over_the_deliveries_of_a_killed_node_in_time() {
    let mut server = pushing(three_nodes()).start().await;
    let stopwatch = Stopwatch::start();
    let sink = Sink::open(|arrival| match arrival.attempt {
        1 => Say::Nothing,
        _ => Say::Status(200),
    })
    .await;
    let settings =
        json!({"webhookUrl": sink.url("/"), "webhookTimeout": 3, "backoff": {"type": "fixed", "delay": 0.1}});
    make_queue(&server.client(), "work", settings).await;
    // Only one node is awake, so this one delivers.
    for node in &server.nodes[1..] {
        node.freeze().await;
    }
    let ids = publish_many(&server.nodes[0].client(), "work", 20).await;
    wait::until_now("the deliveries", DEADLINE, || (sink.count() > 0).then_some(())).await;
    server.kill_node(0).await;
    let sent = sink.count();
    for node in &server.nodes[1..] {
        node.resume();
    }

    let other = server.nodes[1].client();
    drained(&other, "work", DEADLINE).await;

    let arrivals = sink.arrivals();
    let jobs = deliveries::read(&other, &ids).await;
    // From its claim, by the clock that all nodes share: a claim may wait for a lock before anything is sent.
    let lost: Vec<Duration> = jobs.iter().flat_map(|told| told.lasted("unknown")).collect();
    let (first, last) = (lost.iter().min().unwrap(), lost.iter().max().unwrap());
    println!("node death: {sent} of {} were under way, found lost {first:?} to {last:?} after their claim", lost.len());
    assert!(sent > 0 && lost.len() >= sent, "{sent} had left, {} were lost", lost.len());
    let most = LEASE + LATE_MAX + stopwatch.withheld();
    assert!(*first >= LEASE && *last <= most, "{lost:?}");
    for first in &arrivals[..sent] {
        let again =
            arrivals.iter().find(|other| other.job == first.job && other.attempt == 2).expect("delivered again");
        assert!(again.at - first.at <= most, "{:?}", again.at - first.at);
    }
    assert_sound("node death", &deliveries::Account { jobs, deliveries: arrivals, ..Default::default() });
}

// I-17, I-27, I-28, I-40: one node after another is killed under load; nothing is lost, nothing sent too often.
#[tokio::test(flavor = "multi_thread")]
async fn every_job_ends_delivered_or_failed_with_evidence_whichever_node_dies() {
    let seed = seed("K9 push nodes");
    let mut chance = Chance::seeded(!seed);
    let mut server = pushing(three_nodes()).start().await;
    let mut load = PushLoad::open(server.client(), seed).await;
    load.publish(6, Duration::from_millis(40));
    for _ in 0..volume(12, 1000) {
        // Not a wait for anything: the moment of the crash is the random input of the rig.
        tokio::time::sleep(Duration::from_millis(chance.between(5, 300))).await;
        let victim = chance.below(server.nodes.len() as u64) as usize;
        server.kill_node(victim).await;
        assert!(!server.nodes[victim].is_running());
        server.start_node_again(victim).await;
    }
    let account = load.finish(&server.client()).await;

    assert_sound("K9 push nodes", &account);
    let endings = endings(&account);
    assert!(endings.contains_key("unknown"), "no node died while it delivered: {endings:?}");
}

// F20: without Redis nodes learn of each other's jobs by looking; deliveries go on.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_go_on_without_redis() {
    let mut redis = blocking(Redis::start);
    let launch = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES);
    let server = pushing(launch).start().await;
    let sink = Sink::open(|_| Say::Status(200)).await;
    make_queue(&server.client(), "work", json!({"webhookUrl": sink.url("/")})).await;
    publish(&server.client(), "work", json!("before")).await;
    drained(&server.client(), "work", DEADLINE).await;

    blocking(|| redis.kill());
    assert!(!redis.is_running());
    let started = Stopwatch::start();
    for client in clients(&server) {
        make_queue(&client, "late", json!({"webhookUrl": sink.url("/late")})).await;
        for number in 0..10 {
            publish(&client, "work", json!(number)).await;
            publish(&client, "late", json!(number)).await;
        }
    }
    drained(&server.client(), "work", DEADLINE).await;
    drained(&server.client(), "late", DEADLINE).await;

    println!("without Redis: 60 deliveries in {:?}", started.elapsed());
    assert_eq!(sink.count(), 61);
}
