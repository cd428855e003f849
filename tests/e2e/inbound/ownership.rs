//! HTTP cannot change the settings that the file gives, and may change all others. And the key of a queue.

use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{PATH, neighbour, shop, shop_on};
use crate::api::{make_queue, publish, text};

const QUEUES: &str = "queues:
  billing: {source: shop, max_attempts: 5, visibility_timeout: 60s, backoff: {type: fixed, delay: 5s}, api_key: key-of-billing-with-twenty}
  mail: {api_key: key-of-mail-with-twenty-one}";

async fn queue(client: &Client) -> Value {
    client.get("/v1/queues/billing").await.unwrap().expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_file_cannot_be_changed_by_requests() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let before = queue(&client).await;
    let backoff = json!({"type": "fixed", "delay": 9});

    for (name, value) in [("maxAttempts", json!(6)), ("visibilityTimeout", json!("61s")), ("backoff", backoff)] {
        let (mut change, body) = (json!({"retention": 7200}), json!({ name: value }));
        change[name] = body[name].clone();
        for change in [body, change] {
            let patched = client.patch("/v1/queues/billing", change.clone()).await.unwrap();
            let put = client.put("/v1/queues/billing", change).await.unwrap();
            for refused in [patched, put] {
                let problem = refused.expect_problem(409, "set_by_file");
                assert!(text(&problem["detail"]).contains(name), "{problem}");
            }
        }
    }
    client.delete("/v1/queues/billing").await.unwrap().expect_problem(409, "set_by_file");
    client.delete("/v1/queues/billing?force=true").await.unwrap().expect_problem(409, "set_by_file");
    client.post("/v1/queues", json!({"name": "billing"})).await.unwrap().expect_problem(409, "queue_exists");

    assert_eq!(queue(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_outside_the_file_can_be_changed_and_stay() {
    let mut server = shop(QUEUES).start().await;
    let client = server.client();

    // With the values of the file repeated, and without them.
    let same = json!({"maxAttempts": 5, "visibilityTimeout": 60, "retention": 7200});
    client.patch("/v1/queues/billing", same).await.unwrap().expect(200);
    assert_eq!(queue(&client).await["retention"], 7200);
    let whole = json!({"maxAttempts": 5, "concurrency": 3});
    client.put("/v1/queues/billing", whole).await.unwrap().expect(200);
    let put = queue(&client).await;
    let seen = [&put["maxAttempts"], &put["visibilityTimeout"], &put["concurrency"], &put["backoff"]["type"]];
    assert_eq!(seen, [&json!(5), &json!(60), &json!(3), &json!("fixed")], "{put}");
    assert_ne!(put["retention"], 7200, "a PUT without it sets it back");

    assert!(server.terminate().await.success());
    server = server.launch().clone().start().await;

    assert_eq!(queue(&server.client()).await, put, "a start changes nothing");
}

// A queue that somebody made before the file named it keeps what the file does not say, and its jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_there_already_is_taken_over() {
    let launch = shop("");
    let mut server = launch.start().await;
    let client = server.client();
    make_queue(&client, "billing", json!({"maxAttempts": 2, "retention": 7200})).await;
    publish(&client, "billing", json!(1)).await;
    server.terminate().await;

    let server = shop_on(launch, QUEUES).start().await;

    let taken = queue(&server.client()).await;
    assert_eq!(
        [&taken["maxAttempts"], &taken["retention"], &taken["counts"]["queued"]],
        [&json!(5), &json!(7200), &json!(1)]
    );
}

// Only the file has the secret that it gives.
#[tokio::test(flavor = "multi_thread")]
async fn a_signing_secret_of_the_file_is_the_files() {
    let queues = "queues: {hook: {webhook_url: 'http://127.0.0.1:9/hook', signing_secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}}";
    let server = Launch::fresh().with_config(queues).start().await;
    let client = server.client();

    let patch = client
        .patch("/v1/queues/hook", json!({"signingSecret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"}))
        .await
        .unwrap();
    let problem = patch.expect_problem(409, "set_by_file");
    assert!(problem["detail"].as_str().unwrap().contains("signingSecret"), "{problem}");
    client.post("/v1/queues/hook/rotate-secret", json!({})).await.unwrap().expect_problem(409, "set_by_file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_two_queues_have_opens_both() {
    let server =
        shop("queues:\n  one: {api_key: shared-key-of-twenty-characters}\n  two: {api_key: shared-key-of-twenty-characters}\n  three: {}\n").start().await;
    let workers = Client::new(&server.base, "shared-key-of-twenty-characters");

    for (queue, status) in [("one", 200), ("two", 200), ("three", 404)] {
        let reply = workers.get(&format!("/api/queues/{queue}/messages")).await.unwrap();
        assert_eq!(reply.status, status, "{queue}: {}", reply.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_queue_opens_that_queue_only() {
    let server = shop(QUEUES).start().await;
    let admin = server.client();
    Stripe::before(&server, PATH, super::SECRET).tell(&event("evt_1", "t", 1)).await;
    let foreign = publish(&admin, "mail", json!(1)).await;
    let workers = Client::new(&server.base, "key-of-billing-with-twenty");

    let message = workers.get("/api/queues/billing/messages").await.unwrap().expect(200)["messages"][0].clone();
    let id = message["id"].as_str().unwrap();
    workers.post(&format!("/v1/jobs/{id}/heartbeat"), json!({})).await.unwrap().expect(200);
    workers.post(&format!("/v1/jobs/{id}/ack"), json!({})).await.unwrap().expect(200);
    assert_eq!(workers.post("/v1/queues/billing/receive", json!({})).await.unwrap().expect(200)["jobs"], json!([]));
    let listed = workers.get("/api/queues").await.unwrap().expect(200);
    assert_eq!(listed["queues"].as_array().unwrap().len(), 1, "{listed}");

    for (path, body) in [
        ("/v1/queues/mail/receive".to_owned(), json!({})),
        ("/api/queues/mail/ack".to_owned(), json!({"ids": [foreign]})),
        (format!("/v1/jobs/{foreign}/ack"), json!({})),
        ("/v1/queues/billing/jobs".to_owned(), json!({"payload": 1})),
        ("/v1/keys".to_owned(), json!({"name": "k", "scopes": ["read"]})),
        ("/v1/reload".to_owned(), json!({})),
        ("/events/shop/paid".to_owned(), json!({})),
    ] {
        let reply = workers.post(&path, body).await.unwrap();
        assert!(matches!(reply.status, 403 | 404), "{path}: {} {}", reply.status, reply.body);
    }
    for path in ["/api/queues/mail/messages", "/v1/queues/billing", "/v1/queues", "/v1/jobs", "/v1/events", "/v1/keys"]
    {
        let reply = workers.get(path).await.unwrap();
        assert!(matches!(reply.status, 403 | 404), "{path}: {} {}", reply.status, reply.body);
    }
    for wrong in ["key-of-billin", "key-of-billing-with-twenty2", "KEY-OF-BILLING", ""] {
        let nobody = Client::new(&server.base, wrong);
        nobody.get("/api/queues/billing/messages").await.unwrap().expect_problem(401, "unauthorized");
    }
}

// T13: a queue of the same name elsewhere is another queue: it is not fed, not owned, and shows nothing of the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_the_same_name_in_another_namespace_is_not_the_files() {
    let server = shop(QUEUES).start().await;
    let theirs = neighbour(&server.client()).await;
    make_queue(&theirs, "billing", json!({"maxAttempts": 2})).await;

    Stripe::before(&server, PATH, super::SECRET).tell(&event("evt_1", "t", 1)).await;
    theirs.patch("/v1/queues/billing", json!({"maxAttempts": 3})).await.unwrap().expect(200);

    let own = queue(&theirs).await;
    assert_eq!([&own["declared"], &own["counts"]["queued"]], [&Value::Null, &json!(0)]);
    let listed = theirs.get("/api/queues").await.unwrap().expect(200);
    assert_eq!(
        [&listed["queues"][0]["source"], &listed["queues"][0]["events"]],
        [&Value::Null, &json!([])],
        "{listed}"
    );
    theirs.delete("/v1/queues/billing").await.unwrap().expect(204);
}
