//! Keys stay secret: they are nowhere on disk, in no log at any level, and in no answer but the one that made them; and a
//! key can do no more than its scopes say. (T09, T14, T29)

use std::fs;
use std::path::Path;
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::receiver::{Answer, Receiver};
use outlast_tests::server::Launch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish, receive_one, settle, text};
use crate::raw::exchange;
use crate::scene::Scene;

/// The last line may be written after the answer it is about.
const LOG_DEADLINE: Duration = Duration::from_secs(10);

/// A text that a test plants where secrets go, to be searched for afterwards.
const CANARY: &str = "canary4fbc8a1e";

// T09: the store has the hash of a key, never the key.
#[tokio::test(flavor = "multi_thread")]
async fn issued_keys_are_nowhere_in_what_is_stored() {
    let mut scene = Scene::set().await;
    let mut issued = vec![scene.client.key.clone()];
    for number in 0..20 {
        let key = json!({"name": format!("key {number}"), "scopes": ["read"]});
        issued.push(text(&scene.client.post("/v1/keys", key).await.unwrap().expect(201)["key"]));
    }
    let launch = scene.server.launch().clone();

    let running = stored(&launch);
    let status = scene.server.terminate().await;
    let stopped = stored(&launch);

    assert!(status.success());
    for (name, content) in running.iter().chain(&stopped) {
        // The secret part alone would be bad enough.
        assert!(!issued.iter().any(|key| holds(content, &key[16..])), "{name} holds a key");
    }
    let found = running.iter().any(|(_, content)| holds(content, "key 19"));
    assert!(found, "the search must be able to find what is there");
}

// T29: at the most talkative level, nothing secret and nothing of the payload is in the log.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_at_trace_level_has_no_secrets_and_no_payloads() {
    let scene = Scene::set_on(Launch::fresh().with_env("OUTLAST_LOG", "trace")).await;
    let client = &scene.client;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["admin"]})).await.unwrap().expect(201);
    let key = text(&key["key"]);
    let theirs = Client::new(&client.base, &key);
    make_queue(client, "trace", json!({})).await;
    let lease = exercise(&theirs).await;
    let delivered = deliver(&theirs).await;
    for bad in ["{", "[]", &format!("{{\"{CANARY}\":1}}"), &format!("{{\"payload\":\"{CANARY}")] {
        let request = theirs.request(Method::POST, "/v1/queues/trace/jobs").body(bad.to_owned());
        theirs.send(request).await.unwrap().expect_problem(400, "invalid_request");
    }
    let wrong = Client::new(&client.base, &format!("ol_{CANARY}_{CANARY}"));
    wrong.get(&format!("/v1/jobs?key={CANARY}")).await.unwrap().expect_problem(401, "unauthorized");

    exchange(&client.base, format!("GET {CANARY}\r\nauthorization: Bearer {key}\r\n\r\n")).await;

    let log = wait::until_now("what is said at the level of debugging", LOG_DEADLINE, || {
        Some(scene.server.log()).filter(|log| log.contains("a connection ended early"))
    })
    .await;

    let leases = [&lease, &delivered, &scene.things.lease].map(String::as_str);
    for secret in [CANARY, &key[16..], &client.key[16..]].into_iter().chain(leases) {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

/// A life of a job with the canary in all its texts. Returns a lease that was handed out.
async fn exercise(client: &Client) -> String {
    let publish = json!({
        "payload": {"card": CANARY}, "idempotencyKey": CANARY, "key": CANARY, "tags": {"t": CANARY},
        "callbackUrl": format!("https://a.example/{CANARY}"),
    });
    let id = text(&client.post("/v1/queues/trace/jobs", publish).await.unwrap().expect(202)["id"]);
    let held = receive_one(client, "trace").await;
    let lease = text(&held["lease"]);
    let reason = json!({"reason": CANARY, "lease": lease, "delay": 0});
    settle(client, &id, "nack", reason).await;
    let held = receive_one(client, "trace").await;
    settle(client, &id, "ack", json!({"result": CANARY, "lease": held["lease"]})).await;
    client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect(200);
    lease
}

/// A delivery that fails and one that does not, with the canary in all they are made of. Returns the lease of the first.
async fn deliver(client: &Client) -> String {
    let receiver = Receiver::start().await;
    let path = format!("/hooks/{CANARY}?token={CANARY}");
    receiver.answer(&path, [Answer::with(404, &[("x-said", CANARY)], CANARY.as_bytes()), Answer::status(200)]);
    let settings = json!({
        "webhookUrl": receiver.url(&path), "headers": {"x-api-token": CANARY},
        "backoff": {"type": "fixed", "delay": 0, "jitter": 0},
    });
    let made = client.put("/v1/queues/hook", settings).await.unwrap().expect(201);
    receiver.trust(&path, &text(&made["signingSecret"]));
    let id = publish(client, "hook", json!({"card": CANARY})).await;
    wait::until("the second delivery to succeed", LOG_DEADLINE, async || {
        (job(client, &id).await["status"] == "succeeded").then_some(())
    })
    .await;
    receiver.deliveries(&path)[0].lease()
}

// A key is shown by the answer that made it and never again.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once() {
    let scene = Scene::set().await;
    let made = scene.client.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let key = text(&made["key"]);

    let listed = scene.client.get("/v1/keys?limit=200").await.unwrap().expect(200);
    let revoked = scene.client.delete(&format!("/v1/keys/{}", text(&made["id"]))).await.unwrap().expect(200);

    assert!(key.starts_with(&text(&made["prefix"])));
    for answer in [listed, revoked] {
        assert!(!answer.to_string().contains(&key[16..]), "{answer}");
    }
}

// T14: a key that only publishes learns how its job ended, but reads no payload, least of all of a job that somebody else
// published under the same idempotency key.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_only_publishes_reads_no_payloads() {
    let scene = Scene::set().await;
    let client = &scene.client;
    make_queue(client, "vault", json!({})).await;
    let job = json!({"payload": CANARY, "idempotencyKey": "known"});
    let id = text(&client.post("/v1/queues/vault/jobs", job).await.unwrap().expect(202)["id"]);
    let held = receive_one(client, "vault").await;
    settle(client, &id, "ack", json!({"lease": held["lease"]})).await;
    let again = json!({"idempotencyKey": "known"});

    let publisher = holder(client, &["publish"]).await;
    let reader = holder(client, &["publish", "read"]).await;
    let narrow = holder(client, &["publish", "read:elsewhere"]).await;
    let mut answers = Vec::new();
    for client in [&publisher, &narrow, &reader] {
        let request = client.request(Method::POST, "/v1/queues/vault/jobs").header("prefer", "wait=5");
        answers.push(client.send(request.json(&again)).await.unwrap().expect(200));
    }

    for answer in &answers {
        assert_eq!((&answer["id"], &answer["status"]), (&json!(id), &json!("succeeded")));
    }
    assert!(!answers[0].to_string().contains(CANARY), "{}", answers[0]);
    assert!(!answers[1].to_string().contains(CANARY), "{}", answers[1]);
    assert_eq!(answers[2]["payload"], json!(CANARY));
}

// T14: keys are made by admins, for their own namespace; only the operator's reach further.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_makes_a_stronger_one_or_one_for_another_namespace() {
    let scene = Scene::set().await;
    let request = json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let made = scene.client.post("/v1/keys", request).await.unwrap().expect(201);
    let neighbour = Client::new(&scene.client.base, &text(&made["key"]));
    let manager = holder(&scene.client, &["manage", "publish", "consume", "read"]).await;

    let outside = json!({"name": "x", "scopes": ["read"], "namespace": "default"});
    neighbour.post("/v1/keys", outside).await.unwrap().expect_problem(403, "forbidden");
    let inside = json!({"name": "x", "scopes": ["read"]});
    let own = neighbour.post("/v1/keys", inside.clone()).await.unwrap().expect(201);
    manager.post("/v1/keys", inside).await.unwrap().expect_problem(403, "forbidden");
    let listed = neighbour.get("/v1/keys").await.unwrap().expect(200);

    assert_eq!(own["namespace"], json!("neighbour"));
    let namespaces: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|key| &key["namespace"]).collect();
    assert_eq!(namespaces, [&json!("neighbour"), &json!("neighbour")]);
}

async fn holder(client: &Client, scopes: &[&str]) -> Client {
    let key = client.post("/v1/keys", json!({"name": "h", "scopes": scopes})).await.unwrap().expect(201);
    Client::new(&client.base, &text(&key["key"]))
}

/// All that the server has stored, by its name: the files, and the database where there is one.
pub(crate) fn stored(launch: &Launch) -> Vec<(String, String)> {
    let database = launch.database().map(|database| ("the database".to_owned(), database.dump()));
    let files = if launch.data.exists() { files(&launch.data) } else { Vec::new() };
    files.into_iter().chain(database).collect()
}

/// Whether the text is in there, as such or as the hexadecimal digits that a dump writes for bytes.
pub(crate) fn holds(content: &str, text: &str) -> bool {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    content.contains(text) || content.contains(&digits)
}

/// Every file below a directory: its name, and what is text in it.
pub(crate) fn files(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be listed") {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
    }
    found
}
