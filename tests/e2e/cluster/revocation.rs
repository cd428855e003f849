//! Keys over nodes: one that was made on one node works on all at once, one that was revoked on one works nowhere soon.
//! (F33, T09)

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::text;
use crate::cluster::{clients, three_deaf_nodes, three_nodes};

/// The promised time, with and without Redis.
const REVOKED_MAX: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_by_all_nodes_within_five_seconds() {
    let slowest = revoke_on_each(three_nodes()).await;

    println!("with Redis: refused everywhere after {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_a_revoked_key_is_refused_by_all_nodes_within_five_seconds() {
    let slowest = revoke_on_each(three_deaf_nodes()).await;

    println!("without Redis: refused everywhere after {slowest:?}");
}

/// A key per node, made there, used on all, revoked there; the longest that one worked on after its revocation.
async fn revoke_on_each(launch: Launch) -> Duration {
    let server = launch.start().await;
    let nodes = clients(&server);
    let mut slowest = Duration::ZERO;
    for admin in &nodes {
        let key = admin.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
        let holders: Vec<Client> = nodes.iter().map(|node| Client::new(&node.base, &text(&key["key"]))).collect();
        for holder in &holders {
            holder.get("/v1/queues").await.unwrap().expect(200);
        }

        let revoked = Stopwatch::start();
        admin.delete(&format!("/v1/keys/{}", text(&key["id"]))).await.unwrap().expect(200);
        for holder in &holders {
            wait::until("the key to be refused", REVOKED_MAX, async || {
                (holder.get("/v1/queues").await.unwrap().status == 401).then_some(())
            })
            .await;
        }
        slowest = slowest.max(revoked.charged());
    }
    assert!(slowest < REVOKED_MAX, "{slowest:?}");
    slowest
}
