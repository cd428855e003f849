//! Events of our users' own programs: with a key, or signed in a form of their own.

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};

use super::provider::signed;
use super::{SECRET, drain, neighbour, raw_text, shop, stored, waiting};
use crate::api::text;

const QUEUES: &str = "queues: {orders: {source: shop, events: [order.*], filter: '$.total >= 10'}}";

async fn send(client: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut request = client.request(Method::POST, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.body(body.to_owned())).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_a_key_feeds_the_same_queues() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let body = "{ \"total\" : 10.0,\t\"note\": \"\\u00e9\" }";
    let headers = [("content-type", "application/json"), ("ce-subject", "order 7"), ("x-other", "no")];

    let paid = send(&client, "/events/shop/order.paid", &headers, body).await.expect(200);
    let small = send(&client, "/events/shop/order.paid", &headers, r#"{"total": 9}"#).await.expect(200);
    let other = send(&client, "/events/shop/refund", &headers, body).await.expect(200);

    assert_eq!([&paid["duplicate"], &paid["jobs_created"]], [&json!(false), &json!(1)]);
    assert_eq!([&small["jobs_created"], &other["jobs_created"]], [&json!(0), &json!(0)]);
    let page = raw_text(&client, "/api/queues/orders/messages?batch=10").await;
    assert!(page.contains(&format!("\"payload\":{body}")), "not byte for byte: {page}");
    let page: Value = serde_json::from_str(&page).unwrap();
    let message = &page["messages"][0];
    assert_eq!([&message["event_id"], &message["event_type"]], [&paid["event_id"], &json!("order.paid")]);
    assert_eq!(message["headers"], json!({"content-type": "application/json", "ce-subject": "order 7"}));
    assert_eq!(stored(&client, "&source=shop").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_makes_events_the_same() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let key = [("idempotency-key", "order-7")];

    let first = send(&client, "/events/shop/order.paid", &key, r#"{"total": 10}"#).await.expect(200);
    let again = send(&client, "/events/shop/order.paid", &key, r#"{"total": 11}"#).await.expect(200);
    let without = send(&client, "/events/shop/order.paid", &[], r#"{"total": 10}"#).await.expect(200);

    assert_eq!(again, json!({"event_id": first["event_id"], "duplicate": true, "jobs_created": 0}));
    assert_eq!([&first["duplicate"], &without["duplicate"]], [&json!(false), &json!(false)]);
    assert_eq!(waiting(&client, "orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_are_reported_and_nothing_is_stored() {
    let server = shop(QUEUES).start().await;
    let client = server.client();
    let theirs = neighbour(&client).await;
    let made = client.post("/v1/keys", json!({"name": "k", "scopes": ["publish:orders"]})).await.unwrap().expect(201);
    let bound = Client::new(&server.base, &text(&made["key"]));
    let nobody = Client::new(&server.base, "ol_nobody");

    for body in ["", "{", "nothing", "{\"a\":1} 2", "\u{0}"] {
        let problem = send(&client, "/events/shop/order.paid", &[], body).await.expect_problem(400, "invalid_request");
        assert!(problem.to_string().contains("body"), "{problem}");
    }
    send(&client, "/events/shopp/order.paid", &[], "{}").await.expect_problem(404, "source_not_found");
    send(&theirs, "/events/shop/order.paid", &[], "{}").await.expect_problem(404, "source_not_found");
    send(&bound, "/events/shop/order.paid", &[], "{}").await.expect_problem(403, "forbidden");
    send(&nobody, "/events/shop/order.paid", &[], "{}").await.expect_problem(401, "unauthorized");
    // Read as no key, or as the same one, they would make one event of many.
    for key in ["", " ", "é", &"k".repeat(256)] {
        let answer = send(&client, "/events/shop/order.paid", &[("idempotency-key", key)], "{}").await;
        let problem = answer.expect_problem(400, "invalid_request");
        assert!(problem.to_string().contains("Idempotency-Key"), "{problem}");
    }
    let long = format!("/events/shop/{}", "t".repeat(256));
    send(&client, &long, &[], "{}").await.expect_problem(400, "invalid_request");
    send(&client, "/events/shop/a%0Ab", &[], "{}").await.expect_problem(400, "invalid_request");
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    assert_eq!(send(&client, "/events/shop/order.paid", &[], &large).await.status, 413);

    assert_eq!(stored(&client, "").await, Vec::<Value>::new());
    assert_eq!(waiting(&client, "orders").await, 0);
}

// CloudEvents in both forms, signed by a plain HMAC.
#[tokio::test(flavor = "multi_thread")]
async fn cloudevents_keep_their_attributes() {
    let config = format!(
        "sources: {{own: {{verify: hmac, secret: {SECRET}, header: x-signature}}}}\n\
         queues: {{all: {{source: own, events: [com.example.*]}}}}"
    );
    let server = Launch::fresh().with_config(&config).start().await;
    let client = server.client();
    let binary = r#"{"answer": 42}"#;
    let structured = json!({
        "specversion": "1.0", "type": "com.example.done", "source": "/here", "id": "2", "data": {"answer": 43},
    })
    .to_string();
    let attributes =
        [("ce-specversion", "1.0"), ("ce-type", "com.example.begun"), ("ce-source", "/here"), ("ce-id", "1")];

    let post = async |content_type: &str, body: &str, more: &[(&str, &str)]| {
        let (headers, _) = signed("hmac", SECRET, "", (content_type, body), 0);
        let mut request = client.keyless(Method::POST, "/webhooks/own").headers(headers);
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        client.send(request.body(body.to_owned())).await.unwrap().expect(200)
    };
    let first = post("application/json", binary, &attributes).await;
    let second = post("application/cloudevents+json", &structured, &[]).await;
    let again = post("application/json", binary, &attributes).await;

    assert_eq!(again, json!({"event_id": first["event_id"], "duplicate": true, "jobs_created": 0}));
    let messages = drain(&client, "all").await;
    let kinds: Vec<&Value> = messages.iter().map(|message| &message["event_type"]).collect();
    assert_eq!(kinds, ["com.example.begun", "com.example.done"]);
    for (name, value) in attributes {
        assert_eq!(messages[0]["headers"][name], value);
    }
    assert!(messages[0]["headers"]["x-signature"].is_null(), "no signature is kept: {}", messages[0]);
    assert_eq!(
        [&messages[0]["payload"], &messages[1]["payload"]["data"]],
        [&json!({"answer": 42}), &json!({"answer": 43})]
    );
    assert_eq!(messages[1]["event_id"], second["event_id"]);
}
