//! Polling the status of a job: concurrent polls share reads, and no client sees older data than an earlier answer had,
//! nor a job that is out of its reach. A client that names the version it has seen gets 304 while nothing changed.
//! (I-39)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use outlast_tests::chance::volume;
use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Server;
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle, text};

const POLLERS: usize = 24;

#[tokio::test(flavor = "multi_thread")]
async fn many_polls_of_one_job_never_return_older_data_than_an_earlier_answer() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"maxDeferrals": 1000, "visibilityTimeout": 600})).await;
    let id = publish(&client, "work", json!(1)).await;
    let (newest, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut pollers = JoinSet::new();
    for _ in 0..POLLERS {
        pollers.spawn(poll(client.clone(), id.clone(), Arc::clone(&newest), Arc::clone(&over)));
    }

    for _ in 0..volume(100, 900) {
        let held = receive_one(&client, "work").await;
        let defer = json!({"lease": held["lease"], "retryAfter": 0, "scope": "job"});
        let told = settle(&client, &id, "defer", defer).await["version"].as_u64().unwrap();
        newest.fetch_max(told, Ordering::SeqCst);
    }
    over.store(true, Ordering::SeqCst);
    let polls: usize = pollers.join_all().await.into_iter().sum();

    let versions = newest.load(Ordering::SeqCst);
    println!("{polls} polls of {versions} versions");
    assert!(polls > 1000 && versions > 100, "{polls} polls of {versions} versions are too few to mean anything");
}

/// Polls until the test stops it; panics at a version that is older than one that anybody had seen before the poll
/// began.
async fn poll(client: Client, id: String, newest: Arc<AtomicU64>, over: Arc<AtomicBool>) -> usize {
    let mut polls = 0;
    while !over.load(Ordering::SeqCst) {
        let seen_before = newest.load(Ordering::SeqCst);
        let job = client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
        let version = job["version"].as_u64().unwrap();
        assert!(version >= seen_before, "version {version} after {seen_before} had been seen");
        newest.fetch_max(version, Ordering::SeqCst);
        polls += 1;
    }
    polls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_shares_a_read_still_sees_only_what_its_key_covers() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mine", json!({})).await;
    make_queue(&client, "other", json!({})).await;
    let id = publish(&client, "other", json!(1)).await;
    let bound = key(&client, json!({"name": "bound", "scopes": ["read:mine"]})).await;
    let stranger = key(&client, json!({"name": "stranger", "scopes": ["read"], "namespace": "elsewhere"})).await;
    let path = format!("/v1/jobs/{id}");

    let mut polls = JoinSet::new();
    for (poller, allowed) in [(&client, true), (&bound, false), (&stranger, false)].into_iter().cycle().take(300) {
        let (poller, path) = (poller.clone(), path.clone());
        polls.spawn(async move { (poller.get(&path).await.unwrap(), allowed) });
    }

    for (reply, allowed) in polls.join_all().await {
        match allowed {
            true => assert_eq!(reply.expect(200)["id"], json!(id)),
            false => drop(reply.expect_problem(404, "job_not_found")),
        }
    }
}

async fn key(client: &Client, wanted: serde_json::Value) -> Client {
    let made = client.post("/v1/keys", wanted).await.unwrap().expect(201);
    Client::new(&client.base, &text(&made["key"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_names_the_version_it_has_seen_gets_304_until_the_job_changes() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let first = seen(&client, &id, "\"0\"").await;
    let etag = first.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!((first.status, etag.as_str()), (200, "\"1\""));

    for header in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".to_owned()] {
        let again = seen(&client, &id, &header).await;
        assert_eq!((again.status, &again.body), (304, &serde_json::Value::Null), "{header}");
        assert_eq!(again.headers["etag"].to_str().unwrap(), etag);
        assert_eq!(again.headers["retry-after"].to_str().unwrap(), "2");
    }
    let held = receive_one(&client, "work").await;
    let running = seen(&client, &id, &etag).await;
    // How a running job does is not part of its version.
    let running_again = seen(&client, &id, running.headers["etag"].to_str().unwrap()).await;
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    let ended = seen(&client, &id, running.headers["etag"].to_str().unwrap()).await;
    let ended_again = seen(&client, &id, ended.headers["etag"].to_str().unwrap()).await;

    assert_eq!([running.status, running_again.status, ended.status, ended_again.status], [200, 200, 200, 304]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_with_what_was_seen_waits_and_then_shows_the_change() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let ask = |wait: &str| {
        let request = client.request(Method::GET, &format!("/v1/jobs/{id}?wait={wait}&version=1"));
        client.send(request.header("if-none-match", "\"1\""))
    };

    let in_vain = ask("200ms").await.unwrap();
    let (woken, ()) = tokio::join!(ask("20s"), async {
        receive_one(&client, "work").await;
    });

    assert_eq!(in_vain.status, 304);
    assert_eq!(woken.unwrap().expect(200)["status"], json!("running"));
}

async fn seen(client: &Client, id: &str, etag: &str) -> Reply {
    let request = client.request(Method::GET, &format!("/v1/jobs/{id}")).header("if-none-match", etag);
    client.send(request).await.unwrap()
}
