//! Several nodes on one database: what they promise together, and what happens to that when a node, the database, the way
//! between them, a clock or Redis fails. Run once, on three nodes, whatever `OUTLAST_ENGINE` says.

mod backup;
mod kill;
mod database;
mod cut_off;
mod lost_commits;
mod inbound;
mod paused;
mod outage;
mod clocks;
mod redis;

mod streams;
mod progress;

mod push_limits;
mod push_cut_off;
mod push_death;
mod push_stop;

mod agreement;
mod reads;
mod wakes;
mod revocation;

mod start;
mod pooler;
mod encrypted;

use std::time::{Duration, Instant};

use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};
use outlast_tests::wait;
use serde_json::json;

/// Three nodes with a database of their own and the Redis of this test process.
fn three_nodes() -> Launch {
    Launch::on_database(Postgres::shared().database(), Some(Redis::shared()), CLUSTER_NODES)
}

/// The same without Redis: the nodes hear nothing of each other.
fn three_deaf_nodes() -> Launch {
    Launch::on_database(Postgres::shared().database(), None, CLUSTER_NODES)
}

/// One client per node, past the balancer.
fn clients(server: &Server) -> Vec<Client> {
    server.nodes.iter().map(|node| node.client()).collect()
}

/// Runs a program to its end without holding up the other tasks of the test.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Waits until the node acknowledges a publish to the queue; tells how long that took.
async fn until_it_publishes(client: &Client, queue: &str, deadline: Duration) -> Duration {
    let started = Instant::now();
    let path = format!("/v1/queues/{queue}/jobs");
    wait::until("a publish to be acknowledged", deadline, async || {
        let reply = client.post(&path, json!({"payload": "are you there"})).await.ok()?;
        (reply.status == 202).then_some(())
    })
    .await;
    started.elapsed()
}
