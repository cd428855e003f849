//! Cancel over HTTP: from every state and through any node, with the time to stop that a running job has, against a
//! worker that heeds it, one that does not, and one that is just taking the job. Push is covered by `push::changes`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::{job, make_queue, publish, publish_many, receive, receive_one, settle, text};

const DEADLINE: Duration = Duration::from_secs(40);
/// A deadline is acted on within this. (I-20)
const LATE_MAX: Duration = Duration::from_secs(2);
const DRAIN: Duration = Duration::from_millis(1500);

/// Each state that cancel meets, with a job brought there.
struct Brought {
    name: &'static str,
    id: String,
    becomes: &'static str,
}

// From every state: what waits is cancelled at once, what runs is asked, what has ended stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_works_in_every_state_and_through_any_node() {
    let server = Server::fresh().await;
    let clients = server.clients();

    for (number, brought) in bring_to_every_state(&server.client()).await.into_iter().enumerate() {
        let (client, other) = (&clients[number % clients.len()], &clients[(number + 1) % clients.len()]);
        let Brought { name, id, becomes } = brought;
        let before = show(other, &id).await;

        let answer = cancel(client, &id).await;

        assert_eq!(answer["status"], becomes, "{name}");
        assert_eq!(show(other, &id).await["version"], answer["version"], "{name}: seen through another node");
        let again = cancel_by_delete(other, &id).await;
        assert_eq!(
            (&again["status"], &again["version"]),
            (&answer["status"], &answer["version"]),
            "{name}: asked twice"
        );
        match becomes {
            "cancelled" if name != "cancelled" => {
                assert_eq!(
                    (&answer["cancelReason"], &answer["cancelRequested"]),
                    (&json!("user"), &Value::Null),
                    "{name}"
                );
                assert_eq!(answer["version"].as_u64(), before["version"].as_u64().map(|version| version + 1), "{name}");
            }
            "running" => assert_eq!(answer["cancelRequested"], true, "{name}"),
            _ => assert_eq!(answer["events"], before["events"], "{name}: an end stays as it is"),
        }
    }
}

async fn bring_to_every_state(client: &Client) -> Vec<Brought> {
    make_queue(client, "states", json!({"resultTtl": 600, "drainTimeout": 600, "backpressureScope": "job"})).await;
    let mut all = Vec::new();
    let mut bring = |name, id, becomes| all.push(Brought { name, id, becomes });
    let delayed = client.post("/v1/queues/states/jobs", json!({"payload": 1, "delay": 600})).await.unwrap().expect(202);
    bring("delayed", text(&delayed["id"]), "cancelled");
    for (name, verb, body, becomes) in [
        ("backoff", "nack", json!({"delay": 600}), "cancelled"),
        ("deferred", "defer", json!({"retryAfter": 600}), "cancelled"),
        ("succeeded", "ack", json!({}), "succeeded"),
        ("failed", "nack", json!({"retryable": false}), "failed"),
    ] {
        let id = publish(client, "states", json!(name)).await;
        receive_one(client, "states").await;
        settle(client, &id, verb, body).await;
        bring(name, id, becomes);
    }
    let id = publish(client, "states", json!("cancelled")).await;
    cancel(client, &id).await;
    bring("cancelled", id, "cancelled");
    let id = publish(client, "states", json!("running")).await;
    receive_one(client, "states").await;
    bring("running", id, "running");
    bring("expired", expired(client).await, "expired");
    bring("queued", publish(client, "states", json!("queued")).await, "cancelled");
    all
}

/// A job whose result has expired.
async fn expired(client: &Client) -> String {
    make_queue(client, "brief", json!({"resultTtl": 1})).await;
    let id = publish(client, "brief", json!(1)).await;
    receive_one(client, "brief").await;
    settle(client, &id, "ack", json!({"result": 1})).await;
    wait::until("the result to expire", DEADLINE, async || {
        (show(client, &id).await["status"] == "expired").then_some(())
    })
    .await;
    id
}

// A worker that ignores the request loses its lease when the drain time ends, not before; its later reports are
// refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_that_ignores_a_cancel_ends_with_the_drain_time() {
    let server = Server::fresh().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    make_queue(&client, "work", json!({"visibilityTimeout": 600, "drainTimeout": DRAIN.as_secs_f64()})).await;
    let ids = publish_many(&client, "work", 20).await;
    let mut leases = BTreeMap::new();
    for held in receive(&client, "work", json!({"batch": 20})).await {
        leases.insert(text(&held["id"]), text(&held["lease"]));
    }
    for id in &ids {
        cancel(&client, id).await;
    }

    for id in &ids {
        // It goes on as if nothing had happened; its heartbeats must not win it time.
        let ended = wait::until("the lease to be revoked", DEADLINE, async || {
            let _ = client.post(&format!("/v1/jobs/{id}/heartbeat"), json!({"extend": 600})).await.unwrap();
            let job = job(&client, id).await;
            (job["status"] == "cancelled").then_some(job)
        })
        .await;

        let asked = moved(&ended, "cancel_requested");
        let taken = time(&ended["finishedAt"]).duration_since(asked).unsigned_abs();
        let most = DRAIN + LATE_MAX + stopwatch.withheld();
        assert!(taken >= DRAIN && taken <= most, "revoked after {taken:?}");
        let outcome = ended["events"].as_array().unwrap().iter().find(|event| event["type"] == "attempt").unwrap();
        assert_eq!((&outcome["outcome"], &ended["cancelReason"]), (&json!("revoked"), &json!("user")));
        for verb in ["ack", "nack", "release", "cancelled", "heartbeat"] {
            let late = client.post(&format!("/v1/jobs/{id}/{verb}"), json!({"lease": leases[id]})).await.unwrap();
            late.expect_problem(409, "lease_lost");
        }
        assert_eq!(job(&client, id).await["version"], ended["version"], "a late report changes nothing");
    }
}

// Whatever a worker says while it is asked to stop: only a success saves the job, and it never comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_during_the_drain_time_ends_the_job_at_once() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"drainTimeout": 600, "visibilityTimeout": 600})).await;
    for (verb, body, becomes) in [
        ("cancelled", json!({}), "cancelled"),
        ("nack", json!({"delay": 0}), "cancelled"),
        ("nack", json!({"retryable": false}), "cancelled"),
        ("defer", json!({"retryAfter": 0.01, "scope": "job"}), "cancelled"),
        ("release", json!({}), "cancelled"),
        ("ack", json!({"result": "in time"}), "succeeded"),
    ] {
        let id = publish(&client, "work", json!(verb)).await;
        let held = receive_one(&client, "work").await;
        let too_early = json!({"lease": held["lease"]});
        let confirmed = client.post(&format!("/v1/jobs/{id}/cancelled"), too_early).await.unwrap();
        assert_eq!(confirmed.status, 409, "no cancel was requested: {}", confirmed.body);
        cancel(&client, &id).await;
        let beat = settle(&client, &id, "heartbeat", json!({"lease": held["lease"]})).await;
        assert_eq!(beat["cancelRequested"], true);
        assert!(beat["directives"].as_array().unwrap().contains(&json!("cancel")), "{beat}");

        let mut report = body.clone();
        report["lease"] = held["lease"].clone();
        let answer = settle(&client, &id, verb, report.clone()).await;

        assert_eq!(answer["status"], becomes, "{verb}");
        let again = settle(&client, &id, verb, report).await;
        assert_eq!(again["version"], answer["version"], "{verb}: the same again changes nothing");
        let reason = if becomes == "cancelled" { json!("user") } else { Value::Null };
        assert_eq!(job(&client, &id).await["cancelReason"], reason, "{verb}");
        assert!(receive(&client, "work", json!({"batch": 1})).await.is_empty(), "{verb}: it came back");
    }
}

// A cancel and a receive at the same moment: the job is handed out and asked to stop, or it is never handed out.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_races_a_claim_comes_before_it_or_after_it() {
    let server = Server::fresh().await;
    let clients = server.clients();
    make_queue(&clients[0], "work", json!({"visibilityTimeout": 600, "drainTimeout": 600})).await;
    let (mut before, mut after) = (0, 0);
    for round in 0..10 {
        let ids = publish_many(&clients[0], "work", 60).await;
        let has_begun = Arc::new(Notify::new());
        // Every other round gives the pullers a head start of one batch; otherwise they may lose every race.
        let cancels = async {
            if round % 2 == 1 {
                has_begun.notified().await;
            }
            cancel_all(&clients, &ids).await
        };
        let (cancels, handed_out) = tokio::join!(cancels, drain(&clients, &has_begun));

        for (id, answer) in cancels {
            let job = job(&clients[0], &id).await;
            match handed_out.get(&id) {
                None => {
                    assert_eq!((&job["status"], &job["startedAt"]), (&json!("cancelled"), &Value::Null), "{job}");
                    before += 1;
                }
                Some(lease) => {
                    let shown = (&job["status"], &job["cancelRequested"]);
                    assert_eq!(shown, (&json!("running"), &json!(true)), "handed out after its end: {job}");
                    let confirmed = settle(&clients[0], &id, "cancelled", json!({ "lease": lease })).await;
                    assert_eq!(confirmed["status"], "cancelled");
                    after += 1;
                }
            }
            assert_eq!(answer["status"], job["status"], "the caller got another answer");
        }
    }
    println!("cancel before claim: {before}, after it: {after}");
    assert!(before > 0 && after > 0, "no race: {before} before, {after} after");
}

async fn cancel_all(clients: &[Client], ids: &[String]) -> Vec<(String, Value)> {
    let mut calls = JoinSet::new();
    for (number, id) in ids.iter().cloned().enumerate() {
        let client = clients[number % clients.len()].clone();
        calls.spawn(async move {
            let answer = cancel(&client, &id).await;
            (id, answer)
        });
    }
    calls.join_all().await
}

/// Receives until there is nothing more; the leases by job. Notifies once a puller has its first batch.
async fn drain(clients: &[Client], has_begun: &Arc<Notify>) -> BTreeMap<String, Value> {
    let mut pullers = JoinSet::new();
    for number in 0..3 {
        let client = clients[number % clients.len()].clone();
        let has_begun = Arc::clone(has_begun);
        pullers.spawn(async move {
            let mut held = Vec::new();
            loop {
                let jobs = receive(&client, "work", json!({"batch": 2})).await;
                has_begun.notify_one();
                if jobs.is_empty() {
                    return held;
                }
                held.extend(jobs.into_iter().map(|job| (text(&job["id"]), job["lease"].clone())));
            }
        });
    }
    pullers.join_all().await.into_iter().flatten().collect()
}

async fn cancel(client: &Client, id: &str) -> Value {
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200)
}

async fn cancel_by_delete(client: &Client, id: &str) -> Value {
    client.delete(&format!("/v1/jobs/{id}")).await.unwrap().expect(200)
}

/// The job, also when it has expired.
async fn show(client: &Client, id: &str) -> Value {
    let reply = client.get(&format!("/v1/jobs/{id}")).await.unwrap();
    assert!([200, 410].contains(&reply.status), "{}", reply.body);
    reply.body
}

/// When the job's log has a move for this reason.
fn moved(job: &Value, reason: &str) -> Timestamp {
    let moves = job["transitions"].as_array().unwrap();
    let found = moves.iter().find(|event| event["reason"] == reason);
    time(&found.unwrap_or_else(|| panic!("no {reason} in {job}"))["at"])
}

fn time(value: &Value) -> Timestamp {
    text(value).parse().expect("times are RFC 3339")
}
