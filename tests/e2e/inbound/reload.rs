//! The file is read again: by SIGHUP and by a request, with sources and queues that come, go and change, and with
//! mistakes.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{PATH, drain, waiting};

/// From the signal to the new file; reading one takes milliseconds.
const RELOAD_MAX: Duration = Duration::from_secs(20);
const OLD: &str = "the-old-secret-of-the-provider";
const NEW: &str = "the-new-secret-of-the-provider";

fn shop(secrets: &str, rest: &str) -> String {
    format!("sources:\n  shop: {{verify: stripe, secrets: [{secrets}]}}\n{rest}")
}

/// Asks every node; a request reaches one of them.
async fn reload(server: &Server) -> Vec<Value> {
    let mut answers = Vec::new();
    for node in &server.nodes {
        answers.push(node.client().post("/v1/reload", json!({})).await.unwrap().expect(200));
    }
    answers
}

async fn status(stripe: &Stripe, base: &str, id: &str) -> u16 {
    stripe.at(base).send(&event(id, "t", 1)).await.expect("an answer").status
}

// While one secret replaces another, both are good.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_left_the_file_is_worth_nothing() {
    let queues = "queues: {all: {source: shop}}";
    let server = Launch::fresh().with_config(&shop(&format!("{NEW}, {OLD}"), queues)).start().await;
    let new = Stripe::before(&server, PATH, NEW);
    let old = new.with_secret(OLD);
    for node in &server.nodes {
        assert_eq!(status(&new, &node.base, "evt_new").await, 200);
        assert_eq!(status(&old, &node.base, "evt_old").await, 200);
    }

    server.launch().rewrite_config(&shop(NEW, queues));
    let answers = reload(&server).await;

    for answer in answers {
        assert_eq!(answer, json!({"sources": 1, "queues": 1, "needsRestart": []}));
    }
    for node in &server.nodes {
        assert_eq!(status(&new, &node.base, "evt_new").await, 200);
        assert_eq!(status(&old, &node.base, "evt_old").await, 401);
    }
    assert_eq!(waiting(&server.client(), "all").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_file_again() {
    let server = Launch::fresh().with_config(&shop(OLD, "")).start().await;
    let new = Stripe::before(&server, PATH, NEW);
    server.launch().rewrite_config(&shop(NEW, "queues: {all: {source: shop}}"));

    for node in &server.nodes {
        node.hang_up();
        wait::until("the new secret", RELOAD_MAX, async || {
            (status(&new, &node.base, "evt_1").await == 200).then_some(())
        })
        .await;
        assert_eq!(status(&new.with_secret(OLD), &node.base, "evt_2").await, 401);
        assert!(node.log().contains("the configuration was read again"), "{}", node.log());
    }

    assert_eq!(waiting(&server.client(), "all").await, 1);
}

// A signal that comes with the first word of the server is a wish to read the file, not an end.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_right_after_the_start_does_not_end_the_server() {
    for _ in 0..5 {
        let mut server = Launch::embedded().with_config(&shop(OLD, "")).start().await;
        server.nodes[0].hang_up();
        let log = wait::until_now("the file to be read", RELOAD_MAX, || {
            assert!(server.is_running(), "SIGHUP has ended the server");
            let log = server.log();
            log.contains("the configuration was read again").then_some(log)
        })
        .await;
        assert!(!log.contains("panicked"));
    }
}

// Both ways report all problems with their lines, and nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_became_bad_changes_nothing_and_says_why() {
    let good = shop(OLD, "queues:\n  all: {source: shop}\n");
    let server = Launch::fresh().with_config(&good).start().await;
    let stripe = Stripe::before(&server, PATH, OLD);
    let bad = shop(NEW, "queues:\n  all: {source: shopp, filter: '$.a >'}\n  new: {visibilty_timeout: 60s}\n");
    server.launch().rewrite_config(&bad);

    for node in &server.nodes {
        let refusal = node.client().post("/v1/reload", json!({})).await.unwrap().expect_problem(400, "invalid_request");
        let told = refusal.to_string();
        for part in ["outlast.yaml:4:", "outlast.yaml:5:", "source", "filter", "visibility_timeout", "did you mean"] {
            assert!(told.contains(part), "{part:?} is not in {told}");
        }
        assert!(!told.contains(NEW) && !told.contains(OLD), "{told}");
        node.hang_up();
        wait::until_now("the log to say why", RELOAD_MAX, || node.log().contains("outlast.yaml:5:").then_some(()))
            .await;

        assert_eq!(status(&stripe, &node.base, "evt_1").await, 200);
        assert_eq!(status(&stripe.with_secret(NEW), &node.base, "evt_2").await, 401);
    }
    let client = server.client();
    client.get("/v1/queues/new").await.unwrap().expect_problem(404, "queue_not_found");
    assert_eq!(waiting(&client, "all").await, 1);

    // The file is gone, and then it is good again.
    std::fs::remove_file(server.launch().scratch().join("outlast.yaml")).unwrap();
    server.nodes[0].client().post("/v1/reload", json!({})).await.unwrap().expect_problem(400, "invalid_request");
    server.launch().rewrite_config(&good);
    reload(&server).await;
    assert_eq!(status(&stripe, &server.base, "evt_3").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_need_a_restart_are_named() {
    let listen = |port: u16| format!("listen: 127.0.0.1:{port}\n");
    let launch = Launch::fresh().listening_by_file();
    let server = launch.with_config(&(listen(0) + &shop(OLD, ""))).start().await;
    let changed = listen(1) + "limits: {payload_bytes: 100KiB}\n" + &shop(NEW, "");

    server.launch().rewrite_config(&changed);
    let answers = reload(&server).await;

    for answer in answers {
        assert_eq!(answer["needsRestart"], json!(["listen", "limits"]), "{answer}");
    }
    let stripe = Stripe::before(&server, PATH, NEW);
    assert_eq!(status(&stripe, &server.base, "evt_1").await, 200, "the rest of the file is in force");
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_and_queues_come_and_go_without_a_restart() {
    let before = "queues:\n  leaving: {source: shop, max_attempts: 3, api_key: key-of-leaving-with-twenty}\n";
    let server = Launch::fresh().with_config(&shop(OLD, before)).start().await;
    let (client, leaving) = (server.client(), Client::new(&server.base, "key-of-leaving-with-twenty"));
    let (shop_stripe, other) = (Stripe::before(&server, PATH, OLD), Stripe::before(&server, "/hooks/other", NEW));
    shop_stripe.tell(&event("evt_1", "t", 1)).await;
    assert_eq!(other.send(&event("evt_1", "t", 1)).await.unwrap().status, 404);
    assert_eq!(drain(&leaving, "leaving").await.len(), 1);

    let after = format!(
        "sources:\n  shop: {{verify: stripe, secret: {OLD}}}\n  other: {{verify: stripe, secret: {NEW}, path: /hooks/other}}\n\
         queues:\n  new: {{source: other}}\n"
    );
    server.launch().rewrite_config(&after);
    reload(&server).await;

    assert_eq!(other.tell(&event("evt_1", "t", 1)).await["jobs_created"], 1, "another source, another event");
    assert_eq!(shop_stripe.tell(&event("evt_2", "t", 1)).await["jobs_created"], 0, "the queue is no longer fed");
    assert_eq!((waiting(&client, "new").await, waiting(&client, "leaving").await), (1, 0));
    let left = client.get("/v1/queues/leaving").await.unwrap().expect(200);
    assert_eq!(
        (&left["maxAttempts"], &left["declared"]),
        (&json!(3), &Value::Null),
        "it stays, and is no longer declared"
    );
    assert_eq!(leaving.get("/api/queues/leaving/messages").await.unwrap().status, 401, "its key opens nothing");
    client.patch("/v1/queues/leaving", json!({"maxAttempts": 9})).await.unwrap().expect(200);
    client.delete("/v1/queues/leaving?force=true").await.unwrap();
    server.launch().rewrite_config("sources: {}\n");
    reload(&server).await;
    assert_eq!(other.send(&event("evt_3", "t", 1)).await.unwrap().status, 404, "the source is gone");
}

// An admin of the default namespace may; an admin of another namespace may not.
#[tokio::test(flavor = "multi_thread")]
async fn only_an_admin_of_the_default_namespace_reloads() {
    let server = Launch::fresh().with_config(&shop(OLD, "")).start().await;
    let theirs = super::neighbour(&server.client()).await;

    theirs.post("/v1/reload", json!({})).await.unwrap().expect_problem(403, "forbidden");
}
