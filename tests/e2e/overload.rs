//! Limits reached: the server says so, with a code and a time to come back, and is itself again afterwards. What a process
//! limits for itself is asked of one node, without a balancer.

use std::time::Duration;

use outlast_tests::http::{Client, Reply};
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::http_edges::configured;
use crate::raw::Raw;

const DEADLINE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_limit_in_flight_get_503_and_health_does_not() {
    let server = configured("limits:\n  in_flight_requests: 3\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        // The probe below takes a place of its own now and then.
        waiting.spawn(async move {
            while client.post("/v1/queues/mail/receive", json!({"wait": 30})).await.unwrap().status == 503 {}
        });
    }

    let refused = wait::until("the limit to be reached", DEADLINE, async || {
        let reply = client.get("/v1/queues/mail").await.unwrap();
        (reply.status != 200).then_some(reply)
    })
    .await;
    let publish_refused = client.post("/v1/queues/mail/jobs", json!({})).await.unwrap();
    let health = client.get("/healthz").await.unwrap();
    let ready = client.get("/readyz").await.unwrap();

    assert_told_to_come_back(refused, 503, "overloaded");
    assert_told_to_come_back(publish_refused, 503, "overloaded");
    health.expect(200);
    ready.expect(200);
    waiting.shutdown().await;
    wait::until("room for a publish", DEADLINE, async || {
        let reply = client.post("/v1/queues/mail/jobs", json!({})).await.unwrap();
        (reply.status == 202).then_some(())
    })
    .await;
    assert_eq!(client.get("/v1/queues/mail").await.unwrap().expect(200)["counts"]["queued"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_limit_in_memory_get_503() {
    let server = configured("limits:\n  in_flight_bytes: 1MiB\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut held = Raw::connect(&client.base).await.unwrap();
    held.send(format!(
        "POST /v1/queues/mail/jobs/batch HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         expect: 100-continue\r\ncontent-length: 900000\r\n\r\n",
        client.key
    ))
    .await;
    // The server asks for a body when it has set the memory for it aside.
    assert_eq!(held.answer().await.map(|answer| answer.status), Some(100));
    let large = json!({"jobs": [{"payload": "x".repeat(200_000)}]});

    let refused = client.post("/v1/queues/mail/jobs/batch", large.clone()).await.unwrap();
    publish(&client, "mail", json!("a small one still fits")).await;
    drop(held);

    assert_told_to_come_back(refused, 503, "overloaded");
    wait::until("room for a large body", DEADLINE, async || {
        let reply = client.post("/v1/queues/mail/jobs/batch", large.clone()).await.unwrap();
        (reply.status == 202).then_some(())
    })
    .await;
}

// A body of unknown length counts as the largest it may be, so that nobody gets around the limit by not telling.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_unknown_length_counts_as_the_largest() {
    let server = configured("limits:\n  in_flight_bytes: 1MiB\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut raw = Raw::connect(&client.base).await.unwrap();

    raw.send(format!(
        "POST /v1/queues/mail/jobs/batch HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n",
        client.key
    ))
    .await;
    let answer = raw.answer().await.unwrap();

    assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"));
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_namespace_gets_429_until_a_job_is_done() {
    let server = configured("limits:\n  namespace_queued: 10\n").await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    make_queue(&client, "other", json!({})).await;
    for number in 0..8 {
        publish(&client, "mail", json!(number)).await;
    }
    let known = json!({"idempotencyKey": "known", "delay": 600});
    client.post("/v1/queues/other/jobs", known.clone()).await.unwrap().expect(202);

    let batch = client.post("/v1/queues/mail/jobs/batch", json!({"jobs": [{}, {}, {}]})).await.unwrap().expect(202);
    let refused = client.post("/v1/queues/other/jobs", json!({})).await.unwrap();
    let duplicate = client.post("/v1/queues/other/jobs", known).await.unwrap();

    let codes: Vec<&Value> = batch["jobs"].as_array().unwrap().iter().map(|job| &job["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!("too_many_requests"), &json!("too_many_requests")]);
    assert_told_to_come_back(refused, 429, "too_many_requests");
    assert_eq!(duplicate.expect(200)["duplicate"], json!(true));
    let held = receive_one(&client, "mail").await;
    settle(&client, &text(&held["id"]), "ack", json!({"lease": held["lease"]})).await;
    publish(&client, "mail", json!("there is room again")).await;
    neighbours_are_not_affected(&client).await;
}

async fn neighbours_are_not_affected(client: &Client) {
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let key = client.post("/v1/keys", request).await.unwrap().expect(201);
    let theirs = Client::new(&client.base, &text(&key["key"]));
    make_queue(&theirs, "mail", json!({})).await;
    publish(&theirs, "mail", json!(1)).await;
}

#[track_caller]
fn assert_told_to_come_back(reply: Reply, status: u16, code: &str) {
    let seconds: Option<u64> = reply.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    assert!(seconds.is_some_and(|seconds| (1..=60).contains(&seconds)), "Retry-After: {seconds:?}");
    let problem = reply.expect_problem(status, code);
    assert!(!problem["detail"].as_str().unwrap().is_empty());
}
