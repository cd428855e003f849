//! The values of a queue's headers are often credentials: they are sent to the endpoint, and shown and stored nowhere.
//! (T11, T12)

use outlast_tests::http::Client;
use outlast_tests::receiver::Receiver;
use outlast_tests::server::{Launch, Server};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

use crate::api::{publish, text};
use crate::authority::secrets::{holds, stored};

const VALUE: &str = "Bearer canary7d1e93";
const DEADLINE: Duration = Duration::from_secs(30);

async fn queue(client: &Client, receiver: &Receiver, headers: Value) -> Value {
    let settings = json!({"webhookUrl": receiver.url("/work"), "headers": headers});
    let made = client.put("/v1/queues/work", settings).await.unwrap().expect(201);
    receiver.trust("/work", &text(&made["signingSecret"]));
    made
}

/// The `authorization` header of one more delivery.
async fn sent(client: &Client, receiver: &Receiver, count: usize) -> Option<String> {
    publish(client, "work", json!(count)).await;
    let delivery = receiver.arrivals("/work", count, DEADLINE).await.remove(count - 1);
    delivery.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned())
}

// T11: neither the files nor the database nor the log has a value, and the endpoint gets it, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn header_values_are_sealed_in_the_store_and_opened_for_deliveries() {
    let receiver = Receiver::start().await;
    let mut server = Launch::fresh().with_env("OUTLAST_LOG", "trace").start().await;
    queue(&server.client(), &receiver, json!({"authorization": VALUE, "x-plain": "findable"})).await;
    assert_eq!(sent(&server.client(), &receiver, 1).await.as_deref(), Some(VALUE));

    server.crash_and_restart().await;
    assert_eq!(sent(&server.client(), &receiver, 2).await.as_deref(), Some(VALUE));
    let launch = server.launch().clone();
    let contents = stored(&launch);
    let log = server.log();
    assert!(server.terminate().await.success());

    for (name, content) in contents.into_iter().chain(stored(&launch)).chain([("the log".to_owned(), log)]) {
        assert!(!holds(&content, "canary7d1e93") && !holds(&content, "findable"), "{name} holds a value");
    }
    let found = stored(&launch).iter().any(|(_, content)| holds(content, "x-plain"));
    assert!(found, "the search must be able to find what is there");
}

// T12: every answer masks the values, and a mask that comes back keeps what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn header_values_are_masked_and_a_mask_keeps_the_value() {
    let receiver = Receiver::start().await;
    let server = Server::fresh().await;
    let client = server.client();
    let made = queue(&client, &receiver, json!({"authorization": VALUE, "x-two": "2"})).await;
    let masked = json!({"authorization": "****", "x-two": "****"});

    let listed = client.get("/v1/queues").await.unwrap().expect(200);
    let paused = client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    let resumed = client.post("/v1/queues/work/resume", json!({})).await.unwrap().expect(200);
    for answer in [&made, &listed["items"][0], &paused, &resumed] {
        assert_eq!(answer["headers"], masked);
    }

    let patched = client.patch("/v1/queues/work", json!({"maxAttempts": 9})).await.unwrap().expect(200);
    assert_eq!((&patched["maxAttempts"], &patched["headers"]), (&json!(9), &masked));
    assert_eq!(sent(&client, &receiver, 1).await.as_deref(), Some(VALUE));
    let back = json!({"webhookUrl": receiver.url("/work"), "headers": {"authorization": "****", "x-two": "3"}});
    client.put("/v1/queues/work", back).await.unwrap().expect(200);
    assert_eq!(sent(&client, &receiver, 2).await.as_deref(), Some(VALUE));
    assert_eq!(receiver.arrivals("/work", 2, DEADLINE).await[1].headers["x-two"], "3");

    client.patch("/v1/queues/work", json!({"headers": {"authorization": "new"}})).await.unwrap().expect(200);
    assert_eq!(sent(&client, &receiver, 3).await.as_deref(), Some("new"));
}

// T12: a mask for which there is nothing to keep is a mistake; and a caller who does not know a value cannot have it
// sent to another host.
#[tokio::test(flavor = "multi_thread")]
async fn a_mask_with_nothing_behind_it_is_refused() {
    let receiver = Receiver::start().await;
    let server = Server::fresh().await;
    let client = server.client();
    let new = json!({"webhookUrl": receiver.url("/work"), "headers": {"authorization": "****"}});
    let refused = client.put("/v1/queues/work", new).await.unwrap();
    assert!(refused.expect_problem(400, "invalid_request")["detail"].to_string().contains("headers.authorization"));
    queue(&client, &receiver, json!({"authorization": VALUE})).await;

    // The bound on all headers together holds for what is behind the masks.
    let large: serde_json::Map<String, Value> =
        (0..9).map(|number| (format!("x-{number}"), json!("v".repeat(1000)))).collect();
    let (some, rest): (Vec<_>, Vec<_>) = large.into_iter().enumerate().partition(|(number, _)| *number < 5);
    let some: serde_json::Map<String, Value> = some.into_iter().map(|(_, header)| header).collect();
    client.put("/v1/queues/large", json!({"headers": some})).await.unwrap().expect(201);
    let masked = some.keys().map(|name| (name.clone(), json!("****")));
    let all: serde_json::Map<String, Value> = masked.chain(rest.into_iter().map(|(_, header)| header)).collect();
    let refused = client.patch("/v1/queues/large", json!({"headers": all})).await.unwrap();
    assert!(refused.expect_problem(400, "invalid_request")["detail"].to_string().contains("headers must have at most"));

    let elsewhere = "http://127.0.0.9:1/work";
    for (method, body) in [
        (Method::PATCH, json!({"headers": {"authorization": "****", "x-other": "****"}})),
        (Method::PATCH, json!({"webhookUrl": elsewhere, "headers": {"authorization": "****"}})),
        (Method::PUT, json!({"webhookUrl": elsewhere, "headers": {"authorization": "****"}})),
        (Method::PATCH, json!({"webhookUrl": null, "mode": "pull", "headers": {"authorization": "****"}})),
    ] {
        let request = client.request(method, "/v1/queues/work").json(&body);
        client.send(request).await.unwrap().expect_problem(400, "invalid_request");
    }
    assert_eq!(sent(&client, &receiver, 1).await.as_deref(), Some(VALUE));
}

// T11: headers of the file are sealed and masked, too; reading the same file again changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn header_values_of_the_file_are_sealed_and_masked() {
    let receiver = Receiver::start().await;
    let file = format!(
        "queues:\n  work: {{webhook_url: '{}', signing_secret: {}, headers: {{authorization: '{VALUE}'}}}}\n",
        receiver.url("/work"),
        "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
    );
    receiver.trust("/work", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz");
    let mut server = Launch::fresh().with_config(&file).start().await;
    let client = server.client();
    let shown = client.get("/v1/queues/work").await.unwrap().expect(200);
    assert_eq!(shown["headers"], json!({"authorization": "****"}));
    assert_eq!(sent(&client, &receiver, 1).await.as_deref(), Some(VALUE));

    let version = shown["version"].clone();
    client.post("/v1/reload", json!({})).await.unwrap().expect(200);
    assert_eq!(client.get("/v1/queues/work").await.unwrap().expect(200)["version"], version);
    client.patch("/v1/queues/work", json!({"headers": {"authorization": "****"}})).await.unwrap().expect(200);
    let other = client.patch("/v1/queues/work", json!({"headers": {"authorization": "other"}})).await.unwrap();
    other.expect_problem(409, "set_by_file");

    let launch = server.launch().clone();
    assert!(server.terminate().await.success());
    for (name, content) in stored(&launch) {
        let is_file = launch.scratch().join(&name).exists() && name.ends_with(".yaml");
        assert!(is_file || !holds(&content, "canary7d1e93"), "{name} holds a value");
    }
}

// T11: values sealed with an older key are opened as long as the server has that key, and sealed with the new one when
// the queue's secret is rotated. Without the key the server does not start.
#[tokio::test(flavor = "multi_thread")]
async fn header_values_survive_a_new_sealing_key() {
    let (old, new) = ("11".repeat(32), "22".repeat(32));
    let receiver = Receiver::start().await;
    let with = |launch: &Launch, keys: &str| launch.clone().with_env("OUTLAST_SECRET_KEY", keys);
    let launch = Launch::fresh();
    let mut server = with(&launch, &old).start().await;
    queue(&server.client(), &receiver, json!({"authorization": VALUE})).await;
    assert!(server.terminate().await.success());

    let mut server = with(&launch, &format!("{new},{old}")).start().await;
    assert_eq!(sent(&server.client(), &receiver, 1).await.as_deref(), Some(VALUE));
    let client = server.client();
    let rotated = client.post("/v1/queues/work/rotate-secret", json!({"overlap": 0})).await.unwrap().expect(200);
    receiver.trust("/work", &text(&rotated["signingSecret"]));
    assert!(server.terminate().await.success());

    let mut server = with(&launch, &new).start().await;
    assert_eq!(sent(&server.client(), &receiver, 2).await.as_deref(), Some(VALUE));
    assert!(server.terminate().await.success());
    assert!(with(&launch, &old).try_start().await.is_err(), "a server without the key must not start");
}

/// Puts a value into the stored settings in the clear, as a version before sealing did.
fn store_in_the_clear(launch: &Launch, value: &str) {
    match launch.database() {
        Some(database) => drop(database.psql(&format!(
            "UPDATE queue SET checksum = NULL, \
             settings = jsonb_set(settings::jsonb, '{{headers,authorization}}', '\"{value}\"')::text \
             WHERE settings LIKE '%authorization%'"
        ))),
        None => {
            let set = "UPDATE queue SET checksum = NULL, settings = json_set(settings, '$.headers.authorization', ?1) \
                       WHERE settings LIKE '%authorization%'";
            let connection = rusqlite::Connection::open(launch.data.join("outlast.db")).unwrap();
            assert_eq!(connection.execute(set, [value]).unwrap(), 1);
        }
    }
}

fn settings(launch: &Launch) -> String {
    match launch.database() {
        Some(database) => database.psql("SELECT settings FROM queue WHERE settings LIKE '%authorization%'"),
        None => {
            let connection = rusqlite::Connection::open(launch.data.join("outlast.db")).unwrap();
            let get = "SELECT settings FROM queue WHERE settings LIKE '%authorization%'";
            connection.query_row(get, [], |row| row.get(0)).unwrap()
        }
    }
}

// T11: what a version before sealing has stored is sealed at the next start, and sent as before.
#[tokio::test(flavor = "multi_thread")]
async fn header_values_that_were_stored_in_the_clear_are_sealed_at_the_next_start() {
    let receiver = Receiver::start().await;
    let mut server = Server::fresh().await;
    queue(&server.client(), &receiver, json!({"authorization": "first"})).await;
    let launch = server.launch().clone();
    assert!(server.terminate().await.success());
    store_in_the_clear(&launch, VALUE);
    assert!(settings(&launch).contains("canary7d1e93"));

    let mut server = launch.start().await;
    assert_eq!(sent(&server.client(), &receiver, 1).await.as_deref(), Some(VALUE));
    assert!(server.terminate().await.success());

    assert!(!settings(&launch).contains("canary7d1e93"), "{}", settings(&launch));
}
