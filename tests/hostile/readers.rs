//! Readers that ask for the largest answers and do not read them: one token, or one key, on very many connections.

use std::sync::Arc;
use std::time::Duration;

use outlast_tests::http::Client;
use reqwest::Method;
use serde_json::{Value, json};

use crate::arena::{Arena, addresses, text, volume};
use crate::attack::{Attack, Behaviour};

/// Longer than the siege: who is refused stays silent as well.
const SILENCE: Duration = Duration::from_secs(20);

fn silent(method: &str, path: &str, key: &str, body: &str) -> Behaviour {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    Behaviour { first: request.into_bytes().into(), then: Arc::new([]), every: SILENCE, is_silent: true }
}

/// JSON of the longest payload that is taken.
fn longest() -> Value {
    json!("x".repeat((256 << 10) - 2))
}

/// A running job of the attacker: its id and its lease.
async fn running(client: &Client) -> (String, String) {
    client.post("/v1/queues/work/jobs", json!({"payload": 1})).await.unwrap().expect(202);
    let received =
        client.post("/v1/queues/work/receive", json!({"visibilityTimeout": 3600})).await.unwrap().expect(200);
    (text(&received["jobs"][0]["id"]), text(&received["jobs"][0]["lease"]))
}

async fn besiege(arena: &Arena, name: &'static str, behaviour: Behaviour) {
    let count = volume(600, 3000);
    let attack = Attack::plan(name, &addresses(12), count, behaviour);

    let siege = arena.besiege(attack, count * 9 / 10).await;

    siege.assert_unnoticed();
    assert!(siege.unsent > 1 << 20, "{} bytes were unsent", siege.unsent);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_readers_of_a_log_with_one_token_harm_no_other_tenant() {
    let arena = Arena::open().await;
    let (id, lease) = running(&arena.attacker).await;
    // As much output as a job may have, of what takes most room as JSON.
    for _ in 0..volume(120, 511) {
        let output = json!({"lease": lease, "text": "\u{1}".repeat(16 << 10)});
        arena.attacker.post(&format!("/v1/jobs/{id}/output"), output).await.unwrap().expect(200);
    }
    let token = arena.attacker.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read"]})).await.unwrap();
    let token = text(&token.expect(201)["token"]);

    let path = format!("/v1/jobs/{id}/events?limit=1000");
    besiege(&arena, "silent readers of a log", silent("GET", &path, &token, "")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_readers_of_sections_harm_no_other_tenant() {
    let arena = Arena::open().await;
    let (id, lease) = running(&arena.attacker).await;
    for number in 0..volume(10, 200) {
        let path = format!("/v1/jobs/{id}/sections/s{number}");
        let request = arena.attacker.request(Method::PUT, &path).header("x-outlast-lease", &lease);
        arena.attacker.send(request.json(&longest())).await.unwrap().expect(200);
    }

    let path = format!("/v1/jobs/{id}/sections?limit=200");
    besiege(&arena, "silent readers of sections", silent("GET", &path, &arena.attacker.key, "")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_readers_of_a_large_job_and_its_result_harm_no_other_tenant() {
    let arena = Arena::open().await;
    let job = arena.attacker.post("/v1/queues/work/jobs", json!({"payload": longest()})).await.unwrap().expect(202);
    let id = text(&job["id"]);
    let held = arena.attacker.post("/v1/queues/work/receive", json!({})).await.unwrap().expect(200);
    let ack = json!({"lease": held["jobs"][0]["lease"], "result": longest()});
    arena.attacker.post(&format!("/v1/jobs/{id}/ack"), ack).await.unwrap().expect(200);

    for path in [format!("/v1/jobs/{id}"), format!("/v1/jobs/{id}/result")] {
        besiege(&arena, "silent readers of a large job", silent("GET", &path, &arena.attacker.key, "")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_receivers_of_large_jobs_harm_no_other_tenant() {
    let arena = Arena::open().await;
    for _ in 0..volume(100, 400) {
        arena.attacker.post("/v1/queues/work/jobs", json!({"payload": longest()})).await.unwrap().expect(202);
    }

    let count = volume(600, 3000);
    let body = json!({"batch": 100}).to_string();
    let behaviour = silent("POST", "/v1/queues/work/receive", &arena.attacker.key, &body);
    let attack = Attack::plan("silent receivers", &addresses(12), count, behaviour);
    let siege = arena.besiege(attack, count * 9 / 10).await;

    siege.assert_unnoticed();
    let queue = arena.attacker.get("/v1/queues/work").await.unwrap().expect(200);
    assert!(queue["counts"]["running"].as_u64().unwrap() >= 16, "the attack took place: {}", queue["counts"]);
}
