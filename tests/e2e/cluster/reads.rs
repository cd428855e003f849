//! Reads over nodes: every node shows an acknowledged change at once, and no client ever sees an older state than
//! somebody saw before. (I-12, I-39)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outlast_tests::chance::volume;
use outlast_tests::http::Client;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::cluster::{clients, three_nodes};

const PUBLISHERS: usize = 6;

// I-12: read through each node right after the 202.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_is_readable_on_every_node_at_once() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({})).await;
    let each = volume(200, 50_000);

    let mut publishers = JoinSet::new();
    for number in 0..PUBLISHERS {
        let nodes = nodes.clone();
        publishers.spawn(async move {
            let mut missing = 0;
            for turn in 0..each {
                let reply =
                    nodes[(number + turn) % 3].post("/v1/queues/work/jobs", json!({"payload": turn})).await.unwrap();
                let url = text(&reply.expect(202)["statusUrl"]);
                let (a, b, c) = tokio::join!(nodes[0].get(&url), nodes[1].get(&url), nodes[2].get(&url));
                missing += [a, b, c].into_iter().filter(|reply| reply.as_ref().unwrap().status != 200).count();
            }
            missing
        });
    }
    let missing: usize = publishers.join_all().await.into_iter().sum();

    println!("{} reads, {missing} missing", PUBLISHERS * each * 3);
    assert_eq!(missing, 0);
}

// I-39: versions never go back, over all readers and nodes, in the order of real time.
#[tokio::test(flavor = "multi_thread")]
async fn reads_are_monotonic_over_nodes() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({"maxDeferrals": 1000, "visibilityTimeout": 600})).await;
    let id = publish(&nodes[0], "work", json!(1)).await;
    let (newest, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut readers = JoinSet::new();
    for reader in 0..PUBLISHERS {
        let (node, id) = (nodes[reader % 3].clone(), id.clone());
        readers.spawn(read_on(node, id, Arc::clone(&newest), Arc::clone(&over)));
    }

    for turn in 0..volume(100, 900) {
        let held = receive_one(&nodes[turn % 3], "work").await;
        let defer = json!({"lease": held["lease"], "retryAfter": 0, "scope": "job"});
        let told = settle(&nodes[(turn + 1) % 3], &id, "defer", defer).await["version"].as_u64().unwrap();
        // A client that got a version has seen it.
        newest.fetch_max(told, Ordering::SeqCst);
    }
    over.store(true, Ordering::SeqCst);
    let reads: usize = readers.join_all().await.into_iter().sum();

    let versions = newest.load(Ordering::SeqCst);
    println!("{reads} reads of {versions} versions");
    assert!(reads > 500 && versions > 100, "{reads} reads of {versions} versions are too few to mean anything");
}

/// Reads until the test stops it; panics at a version that is older than one that anybody had seen before the read
/// began.
async fn read_on(node: Client, id: String, newest: Arc<AtomicU64>, over: Arc<AtomicBool>) -> usize {
    let mut reads = 0;
    while !over.load(Ordering::SeqCst) {
        let seen_before = newest.load(Ordering::SeqCst);
        let job = node.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
        let version = job["version"].as_u64().unwrap();
        assert!(version >= seen_before, "version {version} after {seen_before} had been seen");
        newest.fetch_max(version, Ordering::SeqCst);
        reads += 1;
    }
    reads
}
