//! I-20 where nodes share a database: an outage is when none of them could hear, or none could reach the database. One
//! single paused node is none, since its workers could report to the others.

use std::time::Duration;

use jiff::Timestamp;
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{events, make_queue, publish_many, receive, text};
use crate::cluster::{blocking, clients, three_nodes, until_it_publishes};
use crate::outages::{Crew, lengths};
use crate::time_limits::{LATE_MAX, time};

const PAUSED: usize = 0;
const JOBS: usize = 50;
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than what counts as an outage, had all nodes been away for it.
const PAUSE: Duration = Duration::from_secs(10);

// I-20, F17: the database is away for longer than the leases are.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_away_costs_no_lease_of_workers_that_go_on() {
    let mut postgres = blocking(Postgres::start);
    let launch = Launch::on_database(blocking(|| postgres.database()), Some(Redis::shared()), CLUSTER_NODES);
    let server = launch.start().await;
    let (lease, away) = lengths();
    let mut crew = Crew::hire(&server, lease).await;
    make_queue(&server.client(), "probe", json!({})).await;
    crew.beat(&server).await;
    let stopped_at = Timestamp::now();
    blocking(|| postgres.stop_immediate());
    assert!(!postgres.is_running());

    // Not a wait for anything: the length of the outage is the input of the rig.
    tokio::time::sleep(away).await;
    crew.assert_all_ran_out();
    blocking(|| postgres.start_again());
    until_it_publishes(&server.client(), "probe", DEADLINE).await;
    let back_at = Timestamp::now();

    crew.go_on_until_the_gone_are_lost(&server, stopped_at, back_at).await;
    crew.finish(&server).await;
}

// I-20, F14, negative control: the others take the leases of dead workers on time, and there is no grace afterwards
// either.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_paused_node_is_no_outage() {
    let server = three_nodes().start().await;
    let nodes = clients(&server);
    let stopwatch = Stopwatch::start();
    make_queue(&nodes[1], "work", json!({"visibilityTimeout": 3})).await;
    publish_many(&nodes[1], "work", 2 * JOBS).await;
    let before = receive(&nodes[PAUSED], "work", json!({ "batch": JOBS })).await;
    let frozen_at = Timestamp::now();
    server.nodes[PAUSED].freeze().await;

    assert_lost_in_time(&nodes[1], &before, &stopwatch).await;
    let left = PAUSE.saturating_sub(Timestamp::now().duration_since(frozen_at).unsigned_abs());
    tokio::time::sleep(left).await;
    server.nodes[PAUSED].resume();

    let after = receive(&nodes[PAUSED], "work", json!({"batch": JOBS, "wait": 5})).await;
    assert_eq!(after.len(), JOBS);
    assert_lost_in_time(&nodes[PAUSED], &after, &stopwatch).await;
    assert!(!server.log().contains("extending running leases"), "an outage was noted");
}

/// Each lease is lost at its deadline, and not later than it may be.
async fn assert_lost_in_time(client: &Client, held: &[Value], stopwatch: &Stopwatch) {
    assert_eq!(held.len(), JOBS);
    for held in held {
        let (id, deadline) = (text(&held["id"]), time(&held["leaseExpiresAt"]));
        let attempt = held["attempt"].as_u64().expect("a number");
        let lost_at = wait::until("a lease to be lost", DEADLINE, async || {
            let ends: Vec<Value> =
                events(client, &id).await.into_iter().filter(|event| event["type"] == "attempt").collect();
            ends.into_iter().find(|end| end["number"] == attempt).map(|end| time(&end["at"]))
        })
        .await;
        let late = lost_at.duration_since(deadline);
        let most = LATE_MAX + stopwatch.withheld();
        assert!(!late.is_negative() && late.unsigned_abs() <= most, "lost {late:?} after its deadline");
    }
}
