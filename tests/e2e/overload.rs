//! Limits reached: the server says so, with a code and a time to come back, and recovers afterwards. Limits of a
//! single process are tested on one node, without a balancer.

use std::time::Duration;

use outlast_tests::http::{Client, Reply};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::http_edges::configured;
use crate::raw::Raw;

const DEADLINE: Duration = Duration::from_secs(10);

/// Bodies may take their time: the tests hold them back.
const PATIENT: &str = "timeouts:\n  body_grace: 120s\n  body_idle: 120s\n  body_total: 120s\n";

/// The head of a request whose body is still to come.
fn head(client: &Client, path: &str, length: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n{length}\r\n\r\n", client.key)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_limit_in_flight_get_503_and_health_does_not() {
    let server = configured(&format!("limits:\n  in_flight_requests: 3\n{PATIENT}")).await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut held = Vec::new();

    let refused = wait::until("the limit to be reached", DEADLINE, async || {
        // The probe takes a slot of its own now and then.
        let mut raw = Raw::connect(&client.base).await.unwrap();
        raw.send(head(&client, "/v1/queues/mail/jobs", "content-length: 9")).await;
        held.push(raw);
        let reply = client.get("/v1/queues/mail").await.unwrap();
        (reply.status != 200).then_some(reply)
    })
    .await;
    let publish_refused = client.post("/v1/queues/mail/jobs", json!({})).await.unwrap();
    let health = client.get("/healthz").await.unwrap();
    // A moment of overload is ordinary; after some seconds of it the server says that it is not ready, and why.
    let not_ready = wait::until("the server not to be ready", DEADLINE, async || {
        client.post("/v1/queues/mail/jobs", json!({})).await.unwrap().expect(503);
        let reply = client.get("/readyz").await.unwrap();
        (reply.status != 200).then_some(reply)
    })
    .await;

    assert_retry_later(refused, 503, "overloaded");
    assert_retry_later(publish_refused, 503, "overloaded");
    health.expect(200);
    let problem = not_ready.expect_problem(503, "overloaded");
    assert!(text(&problem["detail"]).contains("request slots"), "{problem}");
    drop(held);
    wait::until("the server to be ready", DEADLINE, async || {
        (client.get("/readyz").await.unwrap().status == 200).then_some(())
    })
    .await;
    wait::until("room for a publish", DEADLINE, async || {
        let reply = client.post("/v1/queues/mail/jobs", json!({})).await.unwrap();
        (reply.status == 202).then_some(())
    })
    .await;
    assert_eq!(client.get("/v1/queues/mail").await.unwrap().expect(200)["counts"]["queued"], json!(1));
}

// Those who poll are asked to come later while the server is busy, long before anybody is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_asks_those_who_poll_to_come_later() {
    let server = configured(&format!("limits:\n  in_flight_requests: 16\n{PATIENT}")).await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let retry_after = async || {
        let reply = client.get(&format!("/v1/jobs/{id}")).await.unwrap();
        let seconds: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
        reply.expect(200);
        seconds
    };
    assert_eq!(retry_after().await, 2);

    let mut held = Vec::new();
    for _ in 0..12 {
        let mut raw = Raw::connect(&client.base).await.unwrap();
        raw.send(head(&client, "/v1/queues/mail/jobs", "content-length: 9")).await;
        held.push(raw);
    }

    // The heads are read one by one, and the answer goes up with them.
    wait::until("a later time to come back", DEADLINE, async || (retry_after().await >= 20).then_some(())).await;
    drop(held);
    wait::until("the usual time to come back", DEADLINE, async || (retry_after().await == 2).then_some(())).await;
}

// A request that waits holds no slot, and what wakes it up is answered although none is free.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_receives_leave_the_slots_to_others() {
    let server = configured("limits:\n  in_flight_requests: 3\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        waiting.spawn(async move {
            loop {
                let reply = client.post("/v1/queues/mail/receive", json!({"wait": 30})).await.unwrap();
                // They come at once, and for a moment each of them needs a slot.
                if reply.status == 200 {
                    return reply.body["jobs"].as_array().unwrap().len();
                }
            }
        });
    }
    wait_for_waiters(&client, 20).await;

    for number in 0..20 {
        publish(&client, "mail", json!(number)).await;
    }

    assert_eq!(waiting.join_all().await.iter().sum::<usize>(), 20);
    wait_for_waiters(&client, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_receives_are_bounded_per_key() {
    let server = configured("limits:\n  waiting_requests: 60\n  waiting_requests_per_key: 5\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let client = client.clone();
        waiting.spawn(async move { client.post("/v1/queues/mail/receive", json!({"wait": 30})).await });
    }
    wait_for_waiters(&client, 5).await;

    let refused = client.post("/v1/queues/mail/receive", json!({"wait": 30})).await.unwrap();
    let published = client.request(reqwest::Method::POST, "/v1/queues/mail/jobs").header("prefer", "wait=30");
    let published = client.send(published.json(&json!({"delay": 600}))).await.unwrap();

    assert_retry_later(refused, 429, "too_many_requests");
    // A stored publish is not refused because no place to wait is free.
    published.expect(202);
    client.post("/v1/queues/mail/receive", json!({})).await.unwrap().expect(200);
    let request = json!({"name": "other", "scopes": ["consume"]});
    let other = client.post("/v1/keys", request).await.unwrap().expect(201);
    let other = Client::new(&client.base, &text(&other["key"]));
    other.post("/v1/queues/mail/receive", json!({"wait": 1})).await.unwrap().expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_polls_are_bounded_per_token_and_leave_the_key_alone() {
    let server = configured("limits:\n  waiting_requests_per_token: 3\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let job = client.post("/v1/queues/mail/jobs", json!({"delay": 600})).await.unwrap().expect(202);
    let id = text(&job["id"]);
    let token = client.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read"]})).await.unwrap().expect(201);
    let browser = Client::new(&client.base, &text(&token["token"]));
    let poll = format!("/v1/jobs/{id}?wait=30&version=1000");
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let (browser, poll) = (browser.clone(), poll.clone());
        waiting.spawn(async move { browser.get(&poll).await });
    }
    wait_for_waiters(&client, 3).await;

    let refused = browser.get(&poll).await.unwrap();

    assert_retry_later(refused, 429, "too_many_requests");
    client.get(&format!("/v1/jobs/{id}?wait=1&version=1000")).await.unwrap().expect(200);
    browser.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
}

/// Until so many requests wait.
pub(crate) async fn wait_for_waiters(client: &Client, count: usize) {
    let line = format!("outlast_waiting_requests {count}");
    wait::until("requests to wait", DEADLINE, async || {
        let reply = client.get("/metrics").await.unwrap();
        (reply.status == 200 && reply.body.as_str()?.lines().any(|known| known == line)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_limit_in_memory_get_503() {
    let server = configured(&format!("limits:\n  in_flight_bytes: 1MiB\n{PATIENT}")).await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut held = Raw::connect(&client.base).await.unwrap();
    held.send(head(&client, "/v1/queues/mail/jobs/batch", "content-length: 880000")).await;
    held.send(" ".repeat(800_000)).await;
    let large = json!({"jobs": [{"payload": "x".repeat(200_000)}]});

    let refused = wait::until("the bytes to arrive", DEADLINE, async || {
        let reply = client.post("/v1/queues/mail/jobs/batch", large.clone()).await.unwrap();
        (reply.status != 202).then_some(reply)
    })
    .await;
    publish(&client, "mail", json!("a small one still fits")).await;
    drop(held);

    assert_retry_later(refused, 503, "overloaded");
    wait::until("room for a large body", DEADLINE, async || {
        let reply = client.post("/v1/queues/mail/jobs/batch", large.clone()).await.unwrap();
        (reply.status == 202).then_some(())
    })
    .await;
}

// An announced length costs nothing, and neither does a missing one.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_takes_no_room() {
    let server = configured(&format!("limits:\n  in_flight_bytes: 1MiB\n{PATIENT}")).await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut held = Vec::new();
    for length in ["content-length: 1000000", "transfer-encoding: chunked"].repeat(20) {
        let mut raw = Raw::connect(&client.base).await.unwrap();
        raw.send(head(&client, "/v1/queues/mail/jobs/batch", &format!("{length}\r\nexpect: 100-continue"))).await;
        // The server asks for a body when nothing else prevents it.
        assert_eq!(raw.answer().await.map(|answer| answer.status), Some(100));
        held.push(raw);
    }

    publish(&client, "mail", json!("x".repeat(200_000))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_slower_than_the_least_rate_gets_408() {
    let server = configured("limits:\n  body_bytes_per_second: 1KiB\ntimeouts:\n  body_grace: 500ms\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    let mut slow = Raw::connect(&client.base).await.unwrap();
    slow.send(head(&client, "/v1/queues/mail/jobs", "content-length: 4000")).await;

    let stopwatch = Stopwatch::start();
    while !slow.has_news_within(Duration::from_millis(100)).await {
        slow.send(" ").await;
    }

    let answer = slow.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (408, "request_timeout"));
    assert!(stopwatch.elapsed() >= Duration::from_millis(500));
    // Half a body at once buys the time that it would have taken at the least rate.
    let mut steady = Raw::connect(&client.base).await.unwrap();
    steady.send(head(&client, "/v1/queues/mail/jobs", "content-length: 4000")).await;
    steady.send(" ".repeat(3_000)).await;
    assert!(!steady.has_news_within(Duration::from_millis(1500)).await);
    steady.send(format!("{}{{}}", " ".repeat(998))).await;
    assert_eq!(steady.answer().await.unwrap().status, 202);
}

// A key that has used up its share is refused; others are not, and its own workers keep their leases.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_key_with_a_full_share_gets_429() {
    let server = configured(&format!("limits:\n  in_flight_requests: 400\n{PATIENT}")).await;
    let client = server.nodes[0].client();
    make_queue(&client, "mail", json!({})).await;
    publish(&client, "mail", json!(1)).await;
    let job = receive_one(&client, "mail").await;
    let request = json!({"name": "other", "scopes": ["publish"]});
    let other = client.post("/v1/keys", request).await.unwrap().expect(201);
    let other = Client::new(&client.base, &text(&other["key"]));
    let mut held = Vec::new();

    let refused = wait::until("the share to be full", DEADLINE, async || {
        for _ in 0..50 {
            let mut raw = Raw::connect(&client.base).await.unwrap();
            raw.send(head(&client, "/v1/queues/mail/jobs", "content-length: 9")).await;
            held.push(raw);
        }
        let reply = client.post("/v1/queues/mail/jobs", json!({})).await.unwrap();
        (reply.status != 202).then_some(reply)
    })
    .await;

    assert_retry_later(refused, 429, "too_many_requests");
    publish(&other, "mail", json!("another key has room")).await;
    settle(&client, &text(&job["id"]), "heartbeat", json!({"lease": job["lease"]})).await;
    settle(&client, &text(&job["id"]), "ack", json!({"lease": job["lease"]})).await;
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
    assert_retry_later(refused, 429, "too_many_requests");
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
fn assert_retry_later(reply: Reply, status: u16, code: &str) {
    let seconds: Option<u64> = reply.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    assert!(seconds.is_some_and(|seconds| (1..=60).contains(&seconds)), "Retry-After: {seconds:?}");
    let problem = reply.expect_problem(status, code);
    assert!(!problem["detail"].as_str().unwrap().is_empty());
}
