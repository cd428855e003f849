//! The circuit breaker: an endpoint that only fails is left alone, at no cost to the jobs that wait for it, until a
//! probe finds it well. (F23, I-17)

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::receiver::{Answer, Receiver};
use outlast_tests::wait;
use serde_json::{Value, json};

use super::{DEADLINE, Push, queue_to};
use crate::api::{publish_many, text};

/// Two cool-downs of 5 and 10 seconds, and whatever a busy machine adds.
const COOL_DOWN_DEADLINE: Duration = Duration::from_secs(60);

/// The sum of the attempts that the jobs of a queue were charged, from 1.
async fn charged(push: &Push, queue: &str) -> u64 {
    let page = push.client.get(&format!("/v1/jobs?queue={queue}&limit=200")).await.unwrap().expect(200);
    page["items"].as_array().unwrap().iter().map(|job| job["attempt"].as_u64().unwrap()).sum()
}

async fn until_hold(push: &Push, queue: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    wait::until(what, COOL_DOWN_DEADLINE, async || {
        let shown = push.show(queue).await;
        (is_it(&shown["hold"]) && shown["counts"]["running"] == 0).then_some(shown["hold"].clone())
    })
    .await
}

/// Breaks an endpoint in one way, sees the circuit open, and heals it.
async fn check(broken: Answer) {
    let push = Push::set().await;
    let endpoint = Receiver::start().await;
    endpoint.answer("/down", [broken]);
    let backoff = json!({"type": "fixed", "delay": "50ms", "jitter": 0});
    queue_to(&push.client, &endpoint, "down", json!({"maxAttempts": 20, "backoff": backoff, "concurrency": 2})).await;
    push.queue("up", json!({})).await;

    // Each node has to see ten failures in a row: five jobs of twenty attempts are enough for three.
    publish_many(&push.client, "down", 5).await;
    let hold = until_hold(&push, "down", "the circuit to open", |hold| hold["reason"] == "circuit").await;
    let (seen, spent) = (endpoint.count("/down"), charged(&push, "down").await);
    assert!(seen >= 10, "{seen} failures opened the circuit: {hold}");
    assert!(push.metric("outlast_circuits_open").await >= 1);
    let metrics = text(&push.server.nodes[0].client().get("/metrics").await.unwrap().expect(200));
    let held = metrics.lines().find(|line| line.contains("\"down\"") && line.contains("\"circuit\"")).unwrap();
    assert!(held.starts_with("outlast_queue_held{") && held.ends_with(" 1"), "{held}");

    // Jobs that wait cost nothing, nor does the probe that finds the endpoint still broken. Other hosts are not
    // concerned.
    publish_many(&push.client, "down", 20).await;
    for id in publish_many(&push.client, "up", 20).await {
        assert_eq!(push.ended(&id).await["status"], "succeeded");
    }
    let again = until_hold(&push, "down", "a failed probe", |hold| hold["round"].as_u64() >= Some(1)).await;
    assert_eq!(charged(&push, "down").await, spent + 20, "waiting was charged");
    let probes = endpoint.count("/down") - seen;
    let round = again["round"].as_u64().unwrap();
    assert!(probes as u64 <= round + 1, "{probes} requests in {round} rounds");

    endpoint.answer("/down", [Answer::status(200)]);
    wait::until("all jobs to succeed", COOL_DOWN_DEADLINE, async || {
        (push.show("down").await["counts"]["succeeded"] == 25).then_some(())
    })
    .await;

    assert_eq!(push.show("down").await["hold"], Value::Null);
    assert_eq!(charged(&push, "down").await, spent + 20);
    drop(push);
}

// F23: an endpoint that resets every connection.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_resets_every_connection_is_left_alone_until_it_is_back() {
    check(Answer::reset()).await;
}

// F23: an endpoint that answers, but only that it is broken.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_only_answers_500_is_left_alone_until_it_is_back() {
    check(Answer::status(500)).await;
}

// An endpoint that refuses what it is sent is not broken: its circuit stays closed, and every job has its attempts.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_requests_keeps_its_circuit() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::status(422)]);
    push.queue("work", json!({"maxAttempts": 2, "backoff": super::at_once()})).await;

    publish_many(&push.client, "work", 30).await;
    wait::until("all jobs to fail", DEADLINE, async || {
        let shown = push.show("work").await;
        assert_ne!(shown["hold"]["reason"], "circuit");
        (shown["counts"]["failed"] == 30).then_some(())
    })
    .await;

    assert_eq!(push.count("work"), 60);
    assert_eq!(push.metric("outlast_circuits_open").await, 0);
}

// One answer in between is enough: only failures in a row open the circuit.
#[tokio::test(flavor = "multi_thread")]
async fn failures_that_are_not_in_a_row_open_no_circuit() {
    let push = Push::set().await;
    let round = || Answer::status(500).times(5).chain([Answer::status(404)]);
    let answers: Vec<Answer> = round().chain(round()).chain(round()).chain([Answer::status(200)]).collect();
    push.receiver.answer("/work", answers);
    push.queue("work", json!({"maxAttempts": 20, "backoff": super::at_once()})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    let shown = (&job["status"], &job["attempt"], &job["deferCount"]);
    assert_eq!(shown, (&json!("succeeded"), &json!(19), &json!(0)), "{job}");
}

// A tenant whose endpoint is broken has the circuit to itself: another tenant's path on the same host goes on at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_circuit_of_one_namespace_is_not_that_of_another() {
    let push = Push::set().await;
    push.receiver.answer("/down", [Answer::status(500)]);
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let made = push.client.post("/v1/keys", request).await.unwrap().expect(201);
    let neighbour = Client::new(&push.server.base, &text(&made["key"]));
    queue_to(&neighbour, &push.receiver, "up", json!({"maxAttempts": 1})).await;
    push.queue("down", json!({"maxAttempts": 20, "backoff": super::at_once()})).await;
    publish_many(&push.client, "down", 5).await;
    until_hold(&push, "down", "the circuit to open", |hold| hold["reason"] == "circuit").await;

    for id in publish_many(&neighbour, "up", 20).await {
        let job = super::ended(&neighbour, &id).await;
        let shown = (&job["status"], &job["attempt"], &job["deferCount"]);
        assert_eq!(shown, (&json!("succeeded"), &json!(1), &json!(0)), "{job}");
    }

    let shown = neighbour.get("/v1/queues/up").await.unwrap().expect(200);
    assert_eq!(shown["hold"], Value::Null);
    assert_eq!(push.show("down").await["hold"]["reason"], "circuit", "the other one is still left alone");
}
