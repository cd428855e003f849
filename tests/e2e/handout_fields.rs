//! Fields that a client needs to know beforehand: of hand-outs, of publishes, and the version of the server.

use outlast_tests::server::{Launch, Server};
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{make_queue, receive_one, text};
use crate::time_limits::time;

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_out_says_when_to_beat_and_when_to_stop() {
    let server = Server::fresh().await;
    let client = server.client();
    let limits = json!({"visibilityTimeout": 600, "heartbeatTimeout": 20, "drainTimeout": 7, "hardTimeLimit": 300});
    make_queue(&client, "limited", limits).await;
    make_queue(&client, "plain", json!({})).await;
    let job = json!({"payload": 1, "key": "ac\"me", "tags": {"plan": "p\"ro", "b": "2"}, "heartbeatTimeout": 5});
    client.post("/v1/queues/limited/jobs", job).await.unwrap().expect(202);
    client.post("/v1/queues/plain/jobs", json!({})).await.unwrap().expect(202);

    let limited = receive_one(&client, "limited").await;
    let plain = receive_one(&client, "plain").await;

    for (field, wanted, bare) in [
        ("queue", json!("limited"), json!("plain")),
        ("mode", json!("pull"), json!("pull")),
        ("key", json!("ac\"me"), Value::Null),
        ("tags", json!({"plan": "p\"ro", "b": "2"}), json!({})),
        ("heartbeatTimeout", json!(5), Value::Null),
        ("replays", json!(0), json!(0)),
    ] {
        assert_eq!((&limited[field], &plain[field]), (&wanted, &bare), "{field}");
    }
    assert_eq!(limited["drainTimeout"], 7);
    assert!(plain["drainTimeout"].is_number() && plain["deadline"].is_null(), "{plain}");
    assert!(time(&limited["deadline"]) > time(&limited["leaseExpiresAt"]), "{limited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_says_how_its_queue_finds_duplicates() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "by-key", json!({})).await;
    make_queue(&client, "by-payload", json!({"dedupeBy": "payload"})).await;

    for (queue, by) in [("by-key", "key"), ("by-payload", "payload")] {
        let first = json!({"payload": 1, "idempotencyKey": "k"});
        for (status, duplicate) in [(202, false), (200, true)] {
            let answer = client.post(&format!("/v1/queues/{queue}/jobs"), first.clone()).await.unwrap().expect(status);
            assert_eq!((&answer["dedupeBy"], &answer["duplicate"]), (&json!(by), &json!(duplicate)), "{answer}");
        }
        let batch = json!({"jobs": [{"payload": 2}, first]});
        let batch = client.post(&format!("/v1/queues/{queue}/jobs/batch"), batch).await.unwrap().expect(202);
        for answer in batch["jobs"].as_array().unwrap() {
            assert_eq!(answer["dedupeBy"], by, "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_version_of_the_server() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let wanted = text(&client.get("/openapi.json").await.unwrap().expect(200)["info"]["version"]);

    for (method, path, status) in [
        (Method::GET, "/v1/queues/work", 200),
        (Method::GET, "/healthz", 200),
        (Method::GET, "/metrics", 200),
        (Method::GET, "/v1/jobs/nonsense", 404),
        (Method::GET, "/nowhere", 404),
        (Method::PATCH, "/healthz", 405),
        (Method::POST, "/v1/queues/work/jobs", 400),
        (Method::OPTIONS, "/v1/jobs/nonsense", 204),
    ] {
        let body = if method == Method::POST { "[" } else { "" };
        let reply = client.send(client.request(method.clone(), path).body(body)).await.unwrap();
        let version = reply.headers.get("x-outlast-version").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((reply.status, version.as_deref()), (status, Some(wanted.as_str())), "{method} {path}");
    }
    let keyless = client.send(client.keyless(Method::GET, "/v1/queues")).await.unwrap();
    assert_eq!((keyless.status, keyless.headers["x-outlast-version"].to_str().unwrap()), (401, wanted.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_are_absolute_where_the_public_address_is_configured() {
    let server = Launch::fresh().with_env("OUTLAST_PUBLIC_URL", "https://example.com/outlast/").start().await;
    let client = server.client();
    let base = "https://example.com/outlast/v1/jobs/";
    make_queue(&client, "work", json!({})).await;
    let reply = client.post("/v1/queues/work/jobs", json!({"payload": 1})).await.unwrap();
    assert!(reply.headers["location"].to_str().unwrap().starts_with(base));
    let published = reply.expect(202);
    let id = text(&published["id"]);
    let batch = client.post("/v1/queues/work/jobs/batch", json!({"jobs": [{}]})).await.unwrap().expect(202);
    let token = client.post(&format!("/v1/jobs/{id}/token"), json!({"can": ["read"]})).await.unwrap().expect(201);
    let held = receive_one(&client, "work").await;
    let links = json!({"lease": held["lease"]});
    let links = client.post(&format!("/v1/jobs/{id}/result/upload"), links).await.unwrap().expect(201);
    let ack = json!({"lease": held["lease"], "result": 1});
    client.post(&format!("/v1/jobs/{id}/ack"), ack).await.unwrap().expect(200);
    let job = client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);

    for url in [
        &published["statusUrl"],
        &published["streamUrl"],
        &published["cancelUrl"],
        &batch["jobs"][0]["statusUrl"],
        &token["statusUrl"],
        &token["streamUrl"],
        &job["resultUrl"],
    ] {
        assert!(text(url).starts_with(base), "{url}");
    }
    assert!(text(&links["url"]).starts_with("https://example.com/outlast/v1/objects/"), "{links}");
}
