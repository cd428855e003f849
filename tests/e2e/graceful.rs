//! SIGTERM: requests in progress are completed, new ones refused, nothing is charged, and the exit code is 0.
//! (I-31)

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;

use crate::api::{job, make_queue, publish, receive, receive_one, settle, text};
use crate::http_edges::configured;
use crate::raw::{Answer, Raw};

/// Far below the drain time and below every wait here: only the signal can be the cause.
const PROMPT: Duration = Duration::from_secs(10);

// An ordinary restart is no cause for alarm.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_restart_logs_no_warning_about_leases() {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "work", json!({"visibilityTimeout": 600})).await;
    publish(&server.client(), "work", json!(1)).await;
    let held = receive_one(&server.client(), "work").await;
    server.terminate().await;

    let again = server.launch().start().await;
    // The sweep has looked at the alarms once it has made this one eligible.
    make_queue(&again.client(), "later", json!({})).await;
    again.client().post("/v1/queues/later/jobs", json!({"delay": 0.1})).await.unwrap().expect(202);
    assert_eq!(receive(&again.client(), "later", json!({"wait": 20})).await.len(), 1);
    settle(&again.client(), &text(&held["id"]), "ack", json!({"lease": held["lease"]})).await;

    let log = again.log();
    let alarming: Vec<&str> = log.lines().filter(|line| line.contains("WARN") && line.contains("lease")).collect();
    assert!(alarming.is_empty(), "{alarming:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_polls_are_answered_at_once_and_the_server_ends_with_0() {
    let mut server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    make_queue(&client, "idle", json!({})).await;
    let id = publish(&client, "idle", json!(1)).await;
    let key = &client.key;
    let mut polls = Vec::new();
    for request in [
        request("POST /v1/queues/mail/receive", key, "{\"wait\":30}"),
        request("GET /api/queues/mail/messages?wait=30s", key, ""),
        request(&format!("GET /v1/jobs/{id}?wait=30s&version=1000"), key, ""),
        request("POST /v1/queues/idle/jobs", key, "{}").replacen("host:", "prefer: wait=30\r\nhost:", 1),
    ] {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        raw.send(request).await;
        polls.push(raw);
    }
    wait::until("the last of them to be under way", PROMPT, async || {
        let queue = client.get("/v1/queues/idle").await.unwrap().expect(200);
        (queue["counts"]["queued"] == json!(2)).then_some(())
    })
    .await;
    for poll in &mut polls {
        assert!(!poll.has_news_within(Duration::from_millis(20)).await, "it waits");
    }

    let asked = Stopwatch::start();
    server.ask_to_stop();
    let mut answers: Vec<Answer> = Vec::new();
    for poll in &mut polls {
        answers.push(poll.answer().await.expect("a waiting request is answered"));
    }
    let status = server.exit_within(PROMPT).await;

    assert!(status.success(), "{status}");
    assert!(asked.charged() < PROMPT, "it took {}", asked.reading());
    assert_eq!((answers[0].status, answers[0].json()), (200, json!({"jobs": []})));
    assert_eq!((answers[1].status, answers[1].json()), (200, json!({"messages": []})));
    assert_eq!((answers[2].status, answers[2].json()["status"].clone()), (200, json!("queued")));
    assert_eq!((answers[3].status, answers[3].json()["status"].clone()), (202, json!("queued")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_in_flight_is_answered_and_kept_and_a_new_connection_is_refused() {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    let whole = request("POST /v1/queues/mail/jobs", &server.launch().key, "{\"payload\":\"in flight\"}");
    let (first, second) = whole.split_at(whole.len() - 10);
    let mut raw = Raw::connect(&server.base).await.unwrap();
    raw.send(first).await;
    // Its head has been read when a later request on another connection is answered.
    server.client().get("/v1/queues/mail").await.unwrap().expect(200);
    assert!(!raw.has_news_within(Duration::from_millis(50)).await);

    server.ask_to_stop();
    wait::until("new connections to be refused", PROMPT, async || {
        for node in &server.nodes {
            Raw::connect(&node.base).await.err()?;
        }
        Some(())
    })
    .await;
    raw.send(second).await;
    let answer = raw.answer().await.expect("a publish in flight is answered");
    let status = server.exit_within(PROMPT).await;

    assert!(status.success(), "{status}");
    assert_eq!(answer.status, 202);
    assert_eq!(answer.header("connection"), Some("close"));
    let server = server.launch().clone().start().await;
    let kept = job(&server.client(), &text(&answer.json()["id"])).await;
    assert_eq!(kept["payload"], json!("in flight"));
}

// I-31: a stop costs no attempt; what is handed out stays handed out.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_a_restart_and_no_attempt_is_charged() {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({"visibilityTimeout": 600})).await;
    let id = publish(&server.client(), "mail", json!(1)).await;
    let held = receive_one(&server.client(), "mail").await;

    assert!(server.terminate().await.success());
    let server = server.launch().clone().start().await;
    let client = server.client();
    let again = receive(&client, "mail", json!({})).await;
    let settled = settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;

    assert!(again.is_empty(), "the job is handed out already");
    assert_eq!(settled["status"], json!("succeeded"));
    assert_eq!(job(&client, &id).await["attempt"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_cut_after_the_drain_time() {
    let mut server = configured("timeouts:\n  drain: 1s\n").await;
    make_queue(&server.client(), "mail", json!({})).await;
    let mut stuck = Raw::connect(&server.base).await.unwrap();
    stuck.send(&request("POST /v1/queues/mail/jobs", &server.launch().key, "{\"payload\":1}")[..150]).await;
    assert!(!stuck.has_news_within(Duration::from_millis(50)).await);

    let asked = Stopwatch::start();
    server.ask_to_stop();
    let status = server.exit_within(PROMPT).await;

    let taken = asked.elapsed();
    assert!(status.success(), "{status}");
    assert!(taken >= Duration::from_millis(990), "it had its time: {taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_delay_the_end() {
    let mut server = Server::fresh().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut raw = Raw::connect(&server.base).await.unwrap();
        raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(raw.answer().await.unwrap().status, 200);
        idle.push(raw);
    }

    let asked = Stopwatch::start();
    let status = server.terminate().await;

    assert!(status.success(), "{status}");
    assert!(asked.charged() < PROMPT / 2, "it took {}", asked.reading());
}

// Publishers under load: every answer is true, and the stop is still clean.
#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_while_stopping_is_there_after_the_restart() {
    let mut server = Server::fresh().await;
    make_queue(&server.client(), "mail", json!({})).await;
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = server.client();
        publishers.spawn(async move {
            let mut acknowledged = Vec::new();
            loop {
                let request = client.request(Method::POST, "/v1/queues/mail/jobs").json(&json!({"payload": 1}));
                match client.send(request).await {
                    Ok(reply) if reply.status == 202 => acknowledged.push(text(&reply.body["id"])),
                    Ok(reply) => assert!(reply.status == 503 && !reply.code().is_empty(), "{reply:?}"),
                    Err(_) => return acknowledged,
                }
            }
        });
    }
    wait::until("the publishers to be under way", PROMPT, async || {
        let queue = server.client().get("/v1/queues/mail").await.unwrap().expect(200);
        queue["counts"]["queued"].as_u64().filter(|count| *count > 100)
    })
    .await;

    let status = server.terminate().await;
    let acknowledged: Vec<String> = publishers.join_all().await.into_iter().flatten().collect();
    let server = server.launch().clone().start().await;

    assert!(status.success(), "{status}");
    assert!(acknowledged.len() > 100);
    let kept = all_jobs(&server.client()).await;
    let lost: Vec<&String> = acknowledged.iter().filter(|id| !kept.contains(*id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

async fn all_jobs(client: &Client) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/jobs?limit=200{cursor}")).await.unwrap().expect(200);
        ids.extend(page["items"].as_array().unwrap().iter().map(|job| text(&job["id"])));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

fn request(line: &str, key: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}
