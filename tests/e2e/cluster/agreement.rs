//! Agreement of racing nodes: one job per key, one holder per slot, one end per job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Reply};
use outlast_tests::workload::snapshot::{listed, read_jobs};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{job, make_queue, publish_many, receive, settle, text};
use crate::cluster::{clients, three_nodes};

const RACERS: usize = 64;
const CONCURRENCY: usize = 5;
const WORKERS: usize = 24;

// I-09: 64 clients on three nodes with one key, key after key: one job each, and one client gets the answer that it is
// new.
#[tokio::test(flavor = "multi_thread")]
async fn one_key_published_through_three_nodes_at_once_makes_one_job() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({})).await;
    let keys = volume(25, 5000);

    for number in 0..keys {
        let mut racing = JoinSet::new();
        for racer in 0..RACERS {
            let node = nodes[racer % nodes.len()].clone();
            racing.spawn(async move {
                let body = json!({"payload": {"same": true}, "idempotencyKey": format!("key-{number}")});
                node.post("/v1/queues/work/jobs", body).await.expect("an answer")
            });
        }
        let answers = racing.join_all().await;

        let ids: BTreeSet<String> = answers.iter().map(|reply| text(&reply.body["id"])).collect();
        assert_eq!(ids.len(), 1, "key {number} has these jobs: {ids:?}");
        let statuses = |status| answers.iter().filter(|reply| reply.status == status).count();
        assert_eq!((statuses(202), statuses(200)), (1, RACERS - 1), "key {number}");
    }

    assert_eq!(listed(&nodes[2], "work").await.len(), keys);
}

// I-14: pullers on all nodes never hold the same job, and no job is left out.
#[tokio::test(flavor = "multi_thread")]
async fn pullers_on_three_nodes_never_hold_the_same_job() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({"visibilityTimeout": 600})).await;
    let published: BTreeSet<String> = publish_many(&nodes[0], "work", 900).await.into_iter().collect();

    let mut pullers = JoinSet::new();
    for puller in 0..WORKERS {
        let node = nodes[puller % nodes.len()].clone();
        pullers.spawn(async move {
            let mut held = Vec::new();
            loop {
                // Others may have taken all that was in sight, so an empty answer alone is not the end.
                let jobs = receive(&node, "work", json!({"batch": 1 + puller % 7, "wait": 1.5})).await;
                if jobs.is_empty() {
                    return held;
                }
                held.extend(jobs.iter().map(|job| (text(&job["id"]), text(&job["lease"]))));
            }
        });
    }
    let held: Vec<(String, String)> = pullers.join_all().await.into_iter().flatten().collect();

    let ids: BTreeSet<String> = held.iter().map(|(id, _)| id.clone()).collect();
    let leases: BTreeSet<&String> = held.iter().map(|(_, lease)| lease).collect();
    assert_eq!((held.len(), leases.len()), (900, 900), "each job was handed out once, under its own lease");
    assert_eq!(ids, published);
}

// I-25: a queue's limit on jobs running at once holds over all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn the_concurrency_of_a_queue_is_never_exceeded_over_three_nodes() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    let settings = json!({"concurrency": CONCURRENCY, "visibilityTimeout": 600});
    make_queue(&nodes[0], "work", settings).await;
    let count = volume(300, 20_000);
    publish_many(&nodes[0], "work", count + CONCURRENCY).await;
    the_limit_is_reached(&nodes).await;
    let (running, most, done) =
        (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());

    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let node = nodes[worker % nodes.len()].clone();
        let (running, most, done) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&done));
        workers.spawn(async move {
            while done.load(Ordering::SeqCst) < count {
                let jobs = receive(&node, "work", json!({"batch": 1 + worker % 3, "wait": 1})).await;
                // Counted after the answer and until before the report: never more than the server counts.
                most.fetch_max(running.fetch_add(jobs.len(), Ordering::SeqCst) + jobs.len(), Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
                for job in jobs {
                    running.fetch_sub(1, Ordering::SeqCst);
                    settle(&node, &text(&job["id"]), "ack", json!({"lease": job["lease"]})).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    workers.join_all().await;

    let most = most.load(Ordering::SeqCst);
    assert!(most <= CONCURRENCY, "{most} ran at once");
    assert_eq!(done.load(Ordering::SeqCst), count);
}

/// Takes as much as there is leave for, from one node after the other; then no node gives more, until some is done.
async fn the_limit_is_reached(nodes: &[Client]) {
    let mut held = Vec::new();
    for node in nodes.iter().cycle().take(4 * nodes.len()) {
        held.extend(receive(node, "work", json!({"batch": 2, "wait": 0.2})).await);
    }
    assert_eq!(held.len(), CONCURRENCY);
    for job in held {
        settle(&nodes[0], &text(&job["id"]), "ack", json!({"lease": job["lease"]})).await;
    }
}

// I-16: ack, nack and cancel race on three nodes: one end, and everybody learns which.
#[tokio::test(flavor = "multi_thread")]
async fn ack_nack_and_cancel_racing_on_three_nodes_have_one_winner() {
    let mut chance = Chance::seeded(seed("races"));
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({"visibilityTimeout": 600, "drainTimeout": 0})).await;
    let count = volume(150, 20_000);
    publish_many(&nodes[0], "work", count).await;
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    let mut ids = Vec::new();

    while ids.len() < count {
        for held in receive(&nodes[0], "work", json!({"batch": 10, "wait": 5})).await {
            let first = chance.below(3) as usize;
            let [ack, nack, cancel] = race(&nodes, &held, first).await;
            let id = text(&held["id"]);
            let end = text(&job(&nodes[chance.below(3) as usize], &id).await["status"]);
            assert_one_winner(&end, &ack, &nack, &cancel);
            *ends.entry(end).or_default() += 1;
            ids.push(id);
        }
    }

    println!("races: {ends:?}");
    assert!(ends.len() > 1, "one side won them all: that is no race");
    let finals = read_jobs(&nodes[1], ids).await;
    assert_eq!(finals.len(), count);
}

async fn race(nodes: &[Client], held: &Value, first: usize) -> [Reply; 3] {
    let id = text(&held["id"]);
    let node = |turn: usize| &nodes[(first + turn) % nodes.len()];
    let lease = json!({"lease": held["lease"]});
    let final_nack = json!({"lease": held["lease"], "retryable": false});
    let (ack_path, nack_path, cancel_path) =
        (format!("/v1/jobs/{id}/ack"), format!("/v1/jobs/{id}/nack"), format!("/v1/jobs/{id}/cancel"));
    let (ack, nack, cancel) = tokio::join!(
        node(0).post(&ack_path, lease),
        node(1).post(&nack_path, final_nack),
        node(2).post(&cancel_path, json!({})),
    );
    [ack, nack, cancel].map(|answer| answer.expect("an answer"))
}

/// A report is either the one that ended the job or is refused; a cancel is answered with the job as it is.
#[track_caller]
fn assert_one_winner(end: &str, ack: &Reply, nack: &Reply, cancel: &Reply) {
    let accepted = |reply: &Reply| match reply.status {
        200 => true,
        409 => false,
        _ => panic!("unexpected answer: {} {}", reply.status, reply.body),
    };
    let (ack_won, nack_won) = (accepted(ack), accepted(nack));
    assert!(!(ack_won && nack_won), "both reports were accepted: {} {}", ack.body, nack.body);
    assert_eq!(cancel.status, 200, "{}", cancel.body);
    assert_eq!(ack_won, end == "succeeded", "{end}: {} {}", ack.body, nack.body);
    let nack_fits = if nack_won { end == "failed" || end == "cancelled" } else { end != "failed" };
    assert!(nack_fits, "{end}: {} {}", ack.body, nack.body);
    // A cancel names the end, or a state that was still on the way to it.
    let told = text(&cancel.body["status"]);
    assert!(told == end || told == "running", "cancelled as {told}, ended as {end}");
}
