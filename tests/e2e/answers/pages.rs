//! Each kind of page, at its bound.

use outlast_tests::server::Server;
use reqwest::Method;
use serde_json::{Value, json};

use super::{PAGE_BYTES, all_pages, assert_bounded, job_with_output, length};
use crate::api::{job, make_queue, publish, receive, receive_one, settle, text};

/// JSON of the longest payload that is taken.
fn longest() -> Value {
    json!("x".repeat((256 << 10) - 2))
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_cut_and_the_job_shows_its_newest() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let (id, held) = job_with_output(&client, "work", 40).await;

    let (mut seen, mut pages) = (0, 0);
    loop {
        let reply = client.get(&format!("/v1/jobs/{id}/events?after={seen}&limit=1000")).await.unwrap();
        assert_bounded(&reply);
        let items = reply.body["items"].as_array().unwrap().clone();
        let Some(last) = items.last() else { break };
        assert!(items.iter().zip(seen + 1..).all(|(event, seq)| event["seq"] == json!(seq)));
        assert_eq!(reply.body["nextAfter"], last["seq"]);
        (seen, pages) = (last["seq"].as_u64().unwrap(), pages + 1);
    }

    assert_eq!(seen, 42);
    assert!(pages >= 3, "{pages} pages");
    let shown = client.get(&format!("/v1/jobs/{id}")).await.unwrap();
    assert!(length(&shown) < PAGE_BYTES, "{} bytes", length(&shown));
    assert_eq!(shown.body["events"].as_array().unwrap().last().unwrap()["seq"], json!(42));
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sections_are_cut() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;
    let id = text(&held["id"]);
    for number in 0..10 {
        let path = format!("/v1/jobs/{id}/sections/s{number}");
        let request = client.request(Method::PUT, &path).header("x-outlast-lease", text(&held["lease"]));
        client.send(request.json(&longest())).await.unwrap().expect(200);
    }

    let sections = all_pages(&client, &format!("/v1/jobs/{id}/sections?limit=200")).await;

    let names: Vec<String> = sections.iter().map(|section| text(&section["name"])).collect();
    assert_eq!(names, (0..10).map(|number| format!("s{number}")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_brings_as_many_jobs_as_fit_and_leaves_the_others_queued() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600})).await;
    for _ in 0..9 {
        publish(&client, "work", longest()).await;
    }

    let reply = client.post("/v1/queues/work/receive", json!({"batch": 100})).await.unwrap();
    assert_bounded(&reply);
    assert_eq!(reply.body["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(reply.body["jobs"][0]["payload"], longest());
    let queue = client.get("/v1/queues/work").await.unwrap().expect(200);
    assert_eq!(queue["counts"]["queued"], json!(5));
    let simple = client.get("/api/queues/work/messages?batch=100").await.unwrap();
    assert_bounded(&simple);
    assert_eq!(simple.body["messages"].as_array().unwrap().len(), 4);

    assert_eq!(receive(&client, "work", json!({"batch": 100})).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_counts_checkpoints() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600})).await;
    for _ in 0..6 {
        publish(&client, "work", json!(1)).await;
    }
    for held in receive(&client, "work", json!({"batch": 6})).await {
        let id = text(&held["id"]);
        let saved = json!({"lease": held["lease"], "schemaVersion": 1, "data": longest()});
        client.put(&format!("/v1/jobs/{id}/checkpoint"), saved).await.unwrap().expect(200);
        settle(&client, &id, "release", json!({"lease": held["lease"]})).await;
    }

    let reply = client.post("/v1/queues/work/receive", json!({"batch": 100})).await.unwrap();

    assert_bounded(&reply);
    assert_eq!(reply.body["jobs"].as_array().unwrap().len(), 4);
    assert!(reply.body["jobs"].as_array().unwrap().iter().all(|job| job["checkpoint"]["data"] == longest()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_jobs_and_dead_letters_are_cut() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 1})).await;
    // A kilobyte of an error takes six as JSON, and is shown twice.
    let reason = "\u{1}".repeat(1000);
    for _ in 0..120 {
        publish(&client, "work", longest()).await;
        let held = receive_one(&client, "work").await;
        let nack = json!({"lease": held["lease"], "retryable": false, "reason": reason});
        settle(&client, &text(&held["id"]), "nack", nack).await;
    }

    assert_eq!(all_pages(&client, "/v1/jobs?limit=200").await.len(), 120);
    let dead = all_pages(&client, "/v1/queues/work/dead?limit=200").await;

    assert_eq!(dead.len(), 120);
    assert_eq!(job(&client, &text(&dead[0]["id"])).await["payload"], longest());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_queues_are_cut() {
    let server = Server::fresh().await;
    let client = server.client();
    // Values are masked, names are not.
    let headers: serde_json::Map<String, Value> =
        (0..20).map(|number| (format!("x-{number:02}-{}", "n".repeat(120)), json!("v"))).collect();
    let url = format!("https://example.com/{}", "p".repeat(1900));
    for number in 0..190 {
        let settings = json!({"mode": "standard", "webhookUrl": url, "headers": headers});
        let reply = client.put(&format!("/v1/queues/q{number:03}"), settings).await.unwrap();
        assert!(matches!(reply.status, 200 | 201), "{}", reply.body);
    }

    let queues = all_pages(&client, "/v1/queues?limit=200").await;

    let names: Vec<String> =
        queues.iter().map(|queue| text(&queue["name"])).filter(|name| name != "_callbacks").collect();
    assert_eq!(names, (0..190).map(|number| format!("q{number:03}")).collect::<Vec<_>>());
}
