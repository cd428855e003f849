//! Leases over HTTP: who holds a job, who is refused, what costs an attempt, and how a waiting receive behaves.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::api::{dead, events, job, make_queue, publish, publish_many, receive, receive_one, settle, text};

/// Far below the wait of the receives below, so that only a wake-up can be the cause.
const WAKE_DEADLINE: Duration = Duration::from_secs(5);
/// A lease of one second, and the sweep that ends it.
const EXPIRY_DEADLINE: Duration = Duration::from_secs(10);

// I-15, F28: a report with a superseded lease is refused and changes nothing, whatever it says and however it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_after_a_new_lease_is_refused_and_changes_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 1})).await;
    let id = publish(&client, "work", json!(1)).await;
    let late = text(&receive_one(&client, "work").await["lease"]);
    let mut taken = receive(&client, "work", json!({"batch": 1, "wait": 15, "visibilityTimeout": 600})).await;
    let present = taken.remove(0);
    assert_eq!((&present["id"], &present["attempt"]), (&json!(id), &json!(2)));
    let before = (job(&client, &id).await, events(&client, &id).await);

    for (verb, body) in late_reports(&late) {
        let reply = client.post(&format!("/v1/jobs/{id}/{verb}"), body).await.unwrap();
        reply.expect_problem(409, "lease_lost");
    }
    let by_header = client.request(Method::POST, &format!("/v1/jobs/{id}/ack"));
    let reply = client.send(by_header.header("x-outlast-lease", &late)).await.unwrap();
    reply.expect_problem(409, "lease_lost");
    let batch = json!({"outcomes": [{"id": id, "lease": late, "outcome": "ack"}]});
    let results = client.post("/v1/outcomes", batch).await.unwrap().expect(200);
    assert_eq!(results["results"][0]["accepted"], false);
    assert_eq!(results["results"][0]["error"]["code"], "lease_lost");

    let after = (job(&client, &id).await, events(&client, &id).await);
    for field in ["status", "version", "attempt", "replays", "deferCount", "lastError", "transitions"] {
        assert_eq!(after.0[field], before.0[field], "{field} changed");
    }
    assert_eq!(after.1, before.1, "events were added");
    let answer = settle(&client, &id, "ack", json!({"lease": present["lease"]})).await;
    assert_eq!(answer["status"], "succeeded");
}

fn late_reports(lease: &str) -> [(&'static str, Value); 5] {
    [
        ("ack", json!({ "lease": lease })),
        ("nack", json!({ "lease": lease })),
        ("nack", json!({ "lease": lease, "retryable": false })),
        ("defer", json!({ "lease": lease, "retryAfter": 1 })),
        ("release", json!({ "lease": lease })),
    ]
}

// I-14: many pullers at once never hold the same job, and no job is left out.
#[tokio::test(flavor = "multi_thread")]
async fn parallel_consumers_never_hold_the_same_job() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600})).await;
    let published: BTreeSet<String> = publish_many(&client, "work", 600).await.into_iter().collect();

    let mut pullers = JoinSet::new();
    for puller in 0..16 {
        let client = client.clone();
        pullers.spawn(async move {
            let mut held = Vec::new();
            loop {
                let jobs = receive(&client, "work", json!({"batch": 1 + puller % 5})).await;
                if jobs.is_empty() {
                    return held;
                }
                held.extend(jobs.iter().map(|job| (text(&job["id"]), text(&job["lease"]))));
            }
        });
    }
    let held: Vec<(String, String)> = pullers.join_all().await.into_iter().flatten().collect();

    let ids: BTreeSet<String> = held.iter().map(|(id, _)| id.clone()).collect();
    let leases: BTreeSet<&String> = held.iter().map(|(_, lease)| lease).collect();
    assert_eq!((held.len(), leases.len()), (600, 600), "each job was handed out once, under its own lease");
    assert_eq!(ids, published);
}

// I-17, F28: a lease that runs out costs an attempt, and the last one makes a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn expiry_at_max_attempts_makes_a_dead_letter() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 1, "maxAttempts": 2})).await;
    let id = publish(&client, "work", json!({"keep": "me"})).await;
    assert_eq!(receive_one(&client, "work").await["attempt"], 1);
    assert_eq!(receive_one(&client, "work").await["attempt"], 2);

    let failed = wait::until("the last lease to run out", EXPIRY_DEADLINE, async || {
        let job = job(&client, &id).await;
        (job["status"] == "failed").then_some(job)
    })
    .await;

    assert_eq!((&failed["attempt"], &failed["payload"]), (&json!(2), &json!({"keep": "me"})));
    assert_eq!(dead(&client, "work").await, [id]);
    assert!(receive(&client, "work", json!({"batch": 1})).await.is_empty());
}

// I-23: a nack without retry makes a dead letter at once, with attempts to spare.
#[tokio::test(flavor = "multi_thread")]
async fn a_nack_without_retry_makes_a_dead_letter_at_once() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 5})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;

    let request = json!({"lease": held["lease"], "retryable": false, "reason": "no such customer"});
    let answer = settle(&client, &id, "nack", request).await;

    assert_eq!((&answer["accepted"], &answer["status"]), (&json!(true), &json!("failed")));
    let failed = job(&client, &id).await;
    assert_eq!((&failed["status"], &failed["attempt"]), (&json!("failed"), &json!(1)));
    assert!(failed["lastError"].to_string().contains("no such customer"), "{}", failed["lastError"]);
    assert_eq!(dead(&client, "work").await, [id]);
}

// I-17: a nack with retry costs an attempt, up to the last.
#[tokio::test(flavor = "multi_thread")]
async fn nacks_use_up_the_attempts_and_no_more() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 3})).await;
    let id = publish(&client, "work", json!(1)).await;

    for attempt in 1..=3 {
        let held = receive_one(&client, "work").await;
        assert_eq!((&held["attempt"], &held["maxAttempts"]), (&json!(attempt), &json!(3)));
        let answer = settle(&client, &id, "nack", json!({"lease": held["lease"], "delay": 0})).await;
        assert_eq!(answer["status"] == "failed", attempt == 3, "attempt {attempt}: {answer}");
    }

    assert_eq!(dead(&client, "work").await, [id]);
}

// I-18: a defer costs no attempt and is bounded. One attempt is all this job has, so any charge would kill it.
#[tokio::test(flavor = "multi_thread")]
async fn a_defer_costs_no_attempt_and_is_bounded() {
    let server = Server::fresh().await;
    let client = server.client();
    let settings = json!({"maxAttempts": 1, "maxDeferrals": 3});
    make_queue(&client, "work", settings).await;
    let id = publish(&client, "work", json!(1)).await;

    for defer_count in 0..3 {
        let held = receive_one(&client, "work").await;
        assert_eq!((&held["attempt"], &held["deferCount"]), (&json!(1), &json!(defer_count)));
        let answer = settle(&client, &id, "defer", json!({"lease": held["lease"], "retryAfter": 0.01})).await;
        assert_ne!(answer["status"], "failed", "deferral {defer_count} is within the bound");
    }
    let held = receive_one(&client, "work").await;
    assert_eq!((&held["attempt"], &held["deferCount"]), (&json!(1), &json!(3)));
    let answer = settle(&client, &id, "defer", json!({"lease": held["lease"], "retryAfter": 0.01})).await;

    assert_eq!(answer["status"], "failed");
    let failed = job(&client, &id).await;
    assert!(failed.to_string().contains("deferral_exhausted"), "the reason is shown: {failed}");
    assert_eq!(dead(&client, "work").await, [id]);
}

// A defer holds the job it is about; the queue only where the worker says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_defer_holds_only_its_job_unless_it_names_the_queue() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    publish_many(&client, "work", 3).await;

    let first = receive_one(&client, "work").await;
    settle(&client, &text(&first["id"]), "defer", json!({"lease": first["lease"], "retryAfter": 600})).await;

    let second = receive_one(&client, "work").await;
    assert_ne!(second["id"], first["id"]);
    assert_eq!(queue_of(&client).await["hold"], Value::Null);
    let whole = json!({"lease": second["lease"], "retryAfter": 600, "scope": "queue"});
    settle(&client, &text(&second["id"]), "defer", whole).await;
    assert_eq!(queue_of(&client).await["hold"]["reason"], "deferred");
    assert!(receive(&client, "work", json!({"batch": 9})).await.is_empty());
}

// A worker that shuts down hands its job back at once and free of charge.
#[tokio::test(flavor = "multi_thread")]
async fn a_released_job_comes_back_at_once_and_free() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxAttempts": 1})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;

    settle(&client, &id, "release", json!({"lease": held["lease"]})).await;

    let again = receive(&client, "work", json!({"batch": 1})).await;
    assert_eq!((&again[0]["id"], &again[0]["attempt"]), (&json!(id), &json!(1)));
    assert_ne!(again[0]["lease"], held["lease"]);
}

// I-16: the same outcome again changes nothing; a different one is a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_sent_twice_counts_once_and_another_one_conflicts() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let held = receive_one(&client, "work").await;
    let report = json!({"lease": held["lease"]});
    let first = settle(&client, &id, "ack", report.clone()).await;

    let second = settle(&client, &id, "ack", report.clone()).await;
    let other = client.post(&format!("/v1/jobs/{id}/nack"), report).await.unwrap();

    assert_eq!(second["version"], first["version"]);
    other.expect_problem(409, "outcome_conflict");
    assert_eq!(job(&client, &id).await["version"], first["version"]);
}

// I-16: an ack with another result than the recorded one is a conflict, one by one, in a batch and in the simple form;
// the same result, written differently, is not.
#[tokio::test(flavor = "multi_thread")]
async fn an_ack_with_another_result_conflicts_and_the_first_result_stays() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let lease = receive_one(&client, "work").await["lease"].clone();
    let first = settle(&client, &id, "ack", json!({"lease": lease, "result": {"rows": 3, "ok": true}})).await;

    let retold = format!("{{\"result\": {{ \"ok\":true , \"rows\" : 3 }}, \"lease\": {lease}}}");
    let request = client.request(Method::POST, &format!("/v1/jobs/{id}/ack")).body(retold);
    let again = client.send(request.header("content-type", "application/json")).await.unwrap().expect(200);
    let other = client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": lease, "result": {"rows": 4}})).await;
    let without = client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": lease})).await;
    let outcome = json!({"id": id, "outcome": "ack", "lease": lease, "result": 5});
    let batch = client.post("/v1/outcomes", json!({"outcomes": [outcome]})).await.unwrap().expect(200);

    assert_eq!(again["version"], first["version"]);
    let detail = text(&other.unwrap().expect_problem(409, "outcome_conflict")["detail"]);
    assert!(detail.contains("ack") && detail.contains("succeeded"), "{detail}");
    without.unwrap().expect_problem(409, "outcome_conflict");
    assert!(batch.to_string().contains("outcome_conflict"), "{batch}");
    let result = client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    assert_eq!(result, json!({"rows": 3, "ok": true}));
}

// A consumer that disconnects while it waits leases nothing: the next one gets the job, as its first attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_that_disconnects_leases_nothing() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600})).await;
    for round in 0..20 {
        let waiting = begin_to_wait(&client, "work").await;
        round_trip(&client).await;
        drop(waiting);
        round_trip(&client).await;

        let id = publish(&client, "work", json!(round)).await;
        let held = receive_one(&client, "work").await;

        assert_eq!((&held["id"], &held["attempt"]), (&json!(id), &json!(1)), "round {round}");
    }
}

// A waiting receive is woken by a publish, not by its own clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_is_woken_by_a_publish() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    for round in 0..10 {
        let waiter = client.clone();
        let waiting = tokio::spawn(async move { receive(&waiter, "work", json!({"batch": 1, "wait": 30})).await });
        round_trip(&client).await;
        assert!(!waiting.is_finished(), "an empty queue is waited on");

        let published = Stopwatch::start();
        let id = publish(&client, "work", json!(round)).await;
        let held = wait::within(WAKE_DEADLINE, waiting).await.expect("a publish wakes").unwrap();

        assert_eq!(held[0]["id"], json!(id));
        println!("round {round}: woken after {}", published.reading());
    }
}

// A waiting receive ends with an empty list when its wait ends, not before.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_receive_on_an_empty_queue_ends_empty_after_its_wait() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let started = Stopwatch::start();

    let jobs = receive(&client, "work", json!({"batch": 10, "wait": "500ms"})).await;

    assert!(jobs.is_empty());
    let (taken, charged) = (started.elapsed(), started.charged());
    assert!(taken >= Duration::from_millis(500) && charged < WAKE_DEADLINE, "took {taken:?}");
}

/// Sends a receive with a long wait on its own connection and does not read the answer.
async fn begin_to_wait(client: &Client, queue: &str) -> TcpStream {
    let mut socket = TcpStream::connect(client.base.strip_prefix("http://").unwrap()).await.unwrap();
    let body = r#"{"batch":1,"wait":30}"#;
    let request = format!(
        "POST /v1/queues/{queue}/receive HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        client.key,
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// A few whole exchanges: time enough for the server to process earlier requests on other connections.
async fn round_trip(client: &Client) {
    for _ in 0..5 {
        client.get("/v1/queues/work").await.unwrap().expect(200);
    }
}

async fn queue_of(client: &Client) -> Value {
    client.get("/v1/queues/work").await.unwrap().expect(200).clone()
}
