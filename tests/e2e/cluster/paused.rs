//! A node that is paused for longer than its leases, also in the middle of a transaction, and then goes on as if
//! nothing had happened. (F14, I-15)

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_tests::chance::{Chance, seed};
use outlast_tests::http::Client;
use outlast_tests::postgres::Database;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::accounting::Accounting;
use crate::api::{make_queue, publish_many, receive, receive_one, settle, text};
use crate::cluster::{blocking, clients, three_nodes, until_it_publishes};

const PAUSED: usize = 0;
const JOBS: usize = 20;
/// Leases of two seconds, and the node that revokes them.
const EXPIRY_DEADLINE: Duration = Duration::from_secs(20);
/// The delay that a paused transaction may cause: the database ends it within this time.
const HANG_MAX: Duration = Duration::from_secs(15);
const RECOVERY_DEADLINE: Duration = Duration::from_secs(20);
/// Under load a node is in the middle of a transaction every few tries.
const PAUSES_MAX: usize = 100;
/// Idle for this long means that its node is paused, not just between two statements.
const STANDS_STILL: Duration = Duration::from_millis(250);

// I-15, F14: others take over its jobs; what comes through it afterwards with the old leases is refused.
#[tokio::test(flavor = "multi_thread")]
async fn reports_through_a_node_that_was_paused_past_its_leases_are_refused() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[1], "work", json!({"visibilityTimeout": 2})).await;
    publish_many(&nodes[1], "work", JOBS).await;
    let held = receive(&nodes[PAUSED], "work", json!({"batch": JOBS})).await;
    assert_eq!(held.len(), JOBS);

    server.nodes[PAUSED].freeze().await;
    let mut zombies = JoinSet::new();
    for job in held {
        let node = nodes[PAUSED].clone();
        zombies.spawn(async move {
            node.post(&format!("/v1/jobs/{}/ack", text(&job["id"])), json!({"lease": job["lease"]})).await
        });
    }
    let taken_over = take_over(&nodes[1..]).await;
    server.nodes[PAUSED].resume();

    for answer in zombies.join_all().await {
        answer.expect("a node that goes on answers").expect_problem(409, "lease_lost");
    }
    for (number, (id, job)) in taken_over.iter().enumerate() {
        assert_eq!(job["attempt"], 2, "one lease ran out");
        let answer = settle(&nodes[number % nodes.len()], id, "ack", json!({"lease": job["lease"]})).await;
        assert_eq!(answer["status"], "succeeded");
    }
}

/// Receives all jobs again, through the other nodes, for long.
async fn take_over(others: &[Client]) -> BTreeMap<String, Value> {
    let mut taken = BTreeMap::new();
    let started = Stopwatch::start();
    while taken.len() < JOBS {
        assert!(!started.has_passed(EXPIRY_DEADLINE), "{} of {JOBS} jobs came back", taken.len());
        for client in others {
            let request = json!({"batch": JOBS, "wait": 1, "visibilityTimeout": 600});
            for job in receive(client, "work", request).await {
                let twice = taken.insert(text(&job["id"]), job);
                assert!(twice.is_none(), "handed out twice: {twice:?}");
            }
        }
    }
    taken
}

// F14: a transaction that a paused node holds open does not delay the others for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_paused_in_the_middle_of_a_transaction_does_not_hold_up_the_others() {
    let launch = three_nodes();
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("paused")).await;
    let database = launch.database().expect("nodes share a database");
    make_queue(&accounting.server().client(), "side", json!({"visibilityTimeout": 600})).await;
    accounting
        .during(async |server, chance| {
            until_under_way(&server.client()).await;
            let pauses = pause_in_a_transaction(server, database, chance).await;
            server.leave_out(PAUSED);
            let slowest = slowest_round_trip(&clients(server)[1..]).await;
            println!("paused: in a transaction at try {pauses}, the slowest call of others took {slowest:?}");
            assert!(slowest < HANG_MAX, "a call took {slowest:?}");
            server.nodes[PAUSED].resume();
            server.take_in(PAUSED);
            until_it_publishes(&server.nodes[PAUSED].client(), "probe", RECOVERY_DEADLINE).await;
        })
        .await;

    accounting.assert_sound("paused").await;
}

/// Every publisher of the load has published by then.
async fn until_under_way(client: &Client) {
    wait::until("the load to be under way", RECOVERY_DEADLINE, async || {
        let queue = client.get("/v1/queues/work").await.unwrap().expect(200);
        let jobs: u64 = queue["counts"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        (jobs > 300).then_some(())
    })
    .await;
}

/// Freezes the node at random moments until the database shows an idle transaction.
async fn pause_in_a_transaction(server: &Server, database: &Database, chance: &mut Chance) -> usize {
    let look = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '{} ms'",
        STANDS_STILL.as_millis()
    );
    for pause in 1..=PAUSES_MAX {
        tokio::time::sleep(Duration::from_millis(chance.between(5, 100))).await;
        server.nodes[PAUSED].freeze().await;
        // As long as it takes for a transaction to stand out; nothing else tells it from a busy one.
        tokio::time::sleep(STANDS_STILL + Duration::from_millis(50)).await;
        if blocking(|| database.psql(&look)) != "0" {
            return pause;
        }
        server.nodes[PAUSED].resume();
    }
    panic!("{PAUSES_MAX} pauses under load, none of them in a transaction");
}

/// Publish, receive and ack on the other nodes, on the busy queue and beside it, for a while; the slowest call.
async fn slowest_round_trip(others: &[Client]) -> Duration {
    let (begun, mut slowest) = (Stopwatch::start(), Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(10) {
        for client in others {
            let started = Stopwatch::start();
            // The load has published this one, so this is a duplicate and changes nothing.
            client.post("/v1/queues/work/jobs", json!({"idempotencyKey": "p0-1"})).await.unwrap().expect(200);
            slowest = slowest.max(started.charged());

            let started = Stopwatch::start();
            client.post("/v1/queues/side/jobs", json!({"payload": 1})).await.unwrap().expect(202);
            let job = receive_one(client, "side").await;
            settle(client, &text(&job["id"]), "ack", json!({"lease": job["lease"]})).await;
            slowest = slowest.max(started.charged());
        }
    }
    slowest
}
