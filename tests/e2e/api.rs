//! The calls that most tests make, with the answer they count on.

use outlast_tests::http::Client;
use serde_json::{Value, json};

pub(crate) async fn make_queue(client: &Client, queue: &str, settings: Value) {
    let reply = client.put(&format!("/v1/queues/{queue}"), settings).await.unwrap();
    assert!(matches!(reply.status, 200 | 201), "queue not made: {} {}", reply.status, reply.body);
}

/// Publishes one job and gives its id.
pub(crate) async fn publish(client: &Client, queue: &str, payload: Value) -> String {
    let reply = client.post(&format!("/v1/queues/{queue}/jobs"), json!({ "payload": payload })).await;
    text(&reply.unwrap().expect(202)["id"])
}

/// Publishes `count` jobs with the payloads `{"number": n}`, in batches, and gives their ids in order.
pub(crate) async fn publish_many(client: &Client, queue: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let end = count.min(ids.len() + 500);
        let jobs: Vec<Value> = (ids.len()..end).map(|number| json!({"payload": {"number": number}})).collect();
        let reply = client.post(&format!("/v1/queues/{queue}/jobs/batch"), json!({ "jobs": jobs })).await;
        let body = reply.unwrap().expect(202);
        ids.extend(body["jobs"].as_array().unwrap().iter().map(|job| text(&job["id"])));
    }
    ids
}

/// Receives with the given request; a long poll where it has a `wait`.
pub(crate) async fn receive(client: &Client, queue: &str, request: Value) -> Vec<Value> {
    let reply = client.post(&format!("/v1/queues/{queue}/receive"), request).await;
    reply.unwrap().expect(200)["jobs"].as_array().unwrap().clone()
}

/// Receives exactly one job, waiting for it.
pub(crate) async fn receive_one(client: &Client, queue: &str) -> Value {
    let mut jobs = receive(client, queue, json!({"batch": 1, "wait": 30})).await;
    assert_eq!(jobs.len(), 1, "one job is due");
    jobs.remove(0)
}

pub(crate) async fn job(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200)
}

pub(crate) async fn events(client: &Client, id: &str) -> Vec<Value> {
    let page = client.get(&format!("/v1/jobs/{id}/events?after=0&limit=200")).await.unwrap().expect(200);
    page["items"].as_array().unwrap().clone()
}

/// Sends one outcome that must be accepted, and gives the answer.
pub(crate) async fn settle(client: &Client, id: &str, verb: &str, body: Value) -> Value {
    client.post(&format!("/v1/jobs/{id}/{verb}"), body).await.unwrap().expect(200)
}

/// The ids of a queue's dead letters, over all pages.
pub(crate) async fn dead(client: &Client, queue: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut path = format!("/v1/queues/{queue}/dead?limit=200");
    loop {
        let page = client.get(&path).await.unwrap().expect(200);
        ids.extend(page["items"].as_array().unwrap().iter().map(|job| text(&job["id"])));
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/v1/queues/{queue}/dead?limit=200&cursor={cursor}"),
            None => return ids,
        }
    }
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a string is expected, not {value}")).to_owned()
}
