//! Requests that wait: one token in very many hands, and very many idle workers of another tenant.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::arena::{Arena, addresses, text, volume};
use crate::attack::{Attack, Behaviour};

/// Sends one request and waits for the answer.
fn wait(request: String) -> Behaviour {
    Behaviour {
        first: request.into_bytes().into(),
        then: Arc::new([]),
        every: Duration::from_secs(600),
        is_silent: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_polls_with_one_token_harms_no_other_tenant() {
    let arena = Arena::open().await;
    let job = arena.attacker.post("/v1/queues/work/jobs", json!({"delay": 3600})).await.unwrap().expect(202);
    let id = text(&job["id"]);
    let token = arena.attacker.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read"]})).await.unwrap();
    let token = text(&token.expect(201)["token"]);
    let request = format!("GET /v1/jobs/{id}?wait=30&version=1000&token={token} HTTP/1.1\r\nhost: x\r\n\r\n");
    // The rest of the 50,000 is what the limits on connections and this process's own descriptors leave out.
    let count = volume(1000, 14_000);
    let attack = Attack::plan("polls with one token", &addresses(12), count, wait(request));

    let siege = arena.besiege(attack, 100).await;

    siege.assert_unnoticed();
    // Those of the token, and what the victim waits for.
    assert!((95..=110).contains(&siege.waiting), "{} requests waited", siege.waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_workers_of_a_tenant_harm_no_other_tenant() {
    let arena = Arena::open().await;
    let body = json!({"wait": 30}).to_string();
    let request = format!(
        "POST /v1/queues/work/receive HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        arena.attacker.key,
        body.len()
    );
    let count = volume(1200, 10_000);
    let attack = Attack::plan("idle workers", &addresses(12), count, wait(request));

    let siege = arena.besiege(attack, count * 9 / 10).await;

    siege.assert_unnoticed();
    assert!(siege.waiting >= count * 9 / 10, "{} requests waited", siege.waiting);
}
