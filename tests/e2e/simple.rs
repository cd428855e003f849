//! The simple form for consumers written against a bare message queue: exactly the four calls, exactly their fields.

use std::collections::BTreeSet;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use serde_json::{Value, json};

use crate::api::{dead, job, make_queue, publish, publish_many, text};

#[tokio::test(flavor = "multi_thread")]
async fn messages_have_exactly_the_fields_of_the_simple_form() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!({"to": "a@example.com"})).await;

    let message = messages(&client, "mail", "wait=10s&batch=5").await.remove(0);

    let fields: BTreeSet<&str> = message.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["id", "event_id", "event_type", "payload", "headers", "attempt", "created_at", "receipt"];
    assert_eq!(fields, BTreeSet::from(expected));
    assert_eq!(message["id"], json!(id));
    assert_eq!((&message["payload"], &message["attempt"]), (&json!({"to": "a@example.com"}), &json!(1)));
    assert_eq!(message["created_at"], job(&client, &id).await["createdAt"]);
    assert!(message["headers"].is_object());
    assert!(text(&message["receipt"]).starts_with(&format!("{id}.")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_queue_gives_an_empty_list_after_the_wait() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;

    let body = client.get("/api/queues/mail/messages?wait=1s&batch=5").await.unwrap().expect(200);

    assert_eq!(body, json!({"messages": []}));
    assert_eq!(messages(&client, "mail", "").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_as_large_as_asked_and_no_larger() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    publish_many(&client, "mail", 8).await;

    assert_eq!(messages(&client, "mail", "batch=5").await.len(), 5);
    assert_eq!(messages(&client, "mail", "batch=5").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_take_ids_and_receipts_and_count_what_they_ended() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let ids = publish_many(&client, "mail", 3).await;
    let got = messages(&client, "mail", "batch=5").await;
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";

    let mixed = json!([got[0]["id"], got[1]["receipt"], got[2]["id"], unknown, "nonsense"]);
    let answer = act(&client, "mail", "ack", mixed).await;

    assert_eq!(answer, json!({"acked": 3}));
    for id in ids {
        assert_eq!(job(&client, &id).await["status"], "succeeded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nacks_retry_at_once_and_dead_letter_at_the_last_attempt() {
    let server = Server::fresh().await;
    let client = server.client();
    // A job in backoff would not be handed out within the wait.
    make_queue(&client, "mail", json!({"maxAttempts": 2, "backoff": {"type": "fixed", "delay": 600}})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let first = messages(&client, "mail", "wait=10s").await.remove(0);

    let retried = act(&client, "mail", "nack", json!([first["id"]])).await;
    let second = messages(&client, "mail", "wait=10s").await.remove(0);
    let died = act(&client, "mail", "nack", json!([second["receipt"]])).await;

    assert_eq!((retried, died), (json!({"retried": 1, "dead": 0}), json!({"retried": 0, "dead": 1})));
    assert_eq!((&second["attempt"], &second["id"]), (&json!(2), &json!(id)));
    assert_eq!(dead(&client, "mail").await, [id]);
}

// I-15: a receipt from an earlier hand-out neither acks nor nacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_of_an_earlier_hand_out_does_not_count() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({})).await;
    let id = publish(&client, "mail", json!(1)).await;
    let first = messages(&client, "mail", "wait=10s").await.remove(0);
    act(&client, "mail", "nack", json!([first["receipt"]])).await;
    let second = messages(&client, "mail", "wait=10s").await.remove(0);

    let late = act(&client, "mail", "ack", json!([first["receipt"]])).await;
    let late_nack = act(&client, "mail", "nack", json!([first["receipt"]])).await;

    assert_eq!((late, late_nack), (json!({"acked": 0}), json!({"retried": 0, "dead": 0})));
    assert_eq!(job(&client, &id).await["status"], "running");
    assert_eq!(act(&client, "mail", "ack", json!([second["receipt"]])).await, json!({"acked": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_queues_has_exactly_the_fields_of_the_simple_form() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "mail", json!({"visibilityTimeout": 60})).await;
    publish_many(&client, "mail", 4).await;
    messages(&client, "mail", "batch=1").await;

    let body = client.get("/api/queues").await.unwrap().expect(200);

    let queues = body["queues"].as_array().unwrap();
    let mail = queues.iter().find(|queue| queue["name"] == "mail").expect("the queue is listed");
    let fields: BTreeSet<&str> = mail.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["name", "source", "events", "visibility_timeout", "depth"]));
    assert_eq!((&mail["visibility_timeout"], &mail["depth"]), (&json!("60s"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_queue_is_not_found_in_every_call() {
    let server = Server::fresh().await;
    let client = server.client();

    client.get("/api/queues/nope/messages").await.unwrap().expect_problem(404, "queue_not_found");
    for verb in ["ack", "nack"] {
        let reply = client.post(&format!("/api/queues/nope/{verb}"), json!({"ids": []})).await.unwrap();
        reply.expect_problem(404, "queue_not_found");
    }
}

async fn messages(client: &Client, queue: &str, query: &str) -> Vec<Value> {
    let body = client.get(&format!("/api/queues/{queue}/messages?{query}")).await.unwrap().expect(200);
    body["messages"].as_array().unwrap().clone()
}

async fn act(client: &Client, queue: &str, verb: &str, ids: Value) -> Value {
    client.post(&format!("/api/queues/{queue}/{verb}"), json!({ "ids": ids })).await.unwrap().expect(200)
}
