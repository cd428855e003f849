//! Answers of a source to genuine webhooks that are not events: the wrong form, the wrong method, a question of
//! Slack's.

use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};

use super::provider::{Stripe, event, signed};
use super::{PATH, SECRET, shop, stored, waiting};

const SCHEMA: &str = r#"{"type": "object", "required": ["data"], "properties": {
    "data": {"type": "object", "properties": {"object": {"type": "object",
        "properties": {"amount_due": {"type": "integer", "minimum": 0}}}}}}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_does_not_fit_the_schema_is_refused_with_the_place() {
    let launch = Launch::fresh();
    std::fs::write(launch.scratch().join("shop.json"), SCHEMA).unwrap();
    let config = format!(
        "sources: {{shop: {{verify: stripe, secret: {SECRET}, schema: shop.json}}}}\nqueues: {{all: {{source: shop}}}}"
    );
    let server = launch.with_config(&config).start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);

    let problem = stripe.send(&event("evt_1", "paid", -1)).await.unwrap().expect_problem(400, "invalid_request");
    assert!(problem.to_string().contains("/data/object/amount_due"), "{problem}");
    let problem =
        stripe.send(r#"{"id": "evt_2", "type": "paid"}"#).await.unwrap().expect_problem(400, "invalid_request");
    assert!(problem.to_string().contains("data"), "{problem}");
    client.post("/events/shop/paid", json!([])).await.unwrap().expect_problem(400, "invalid_request");
    assert_eq!((stored(&client, "").await.len(), waiting(&client, "all").await), (0, 0));

    // Other senders learn nothing about the schema.
    let forged = stripe.with_secret("another-secret").send(&event("evt_1", "paid", -1)).await.unwrap();
    forged.expect_problem(401, "unauthorized");
    assert_eq!(stripe.tell(&event("evt_1", "paid", 0)).await["jobs_created"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn genuine_webhooks_that_cannot_be_read_are_refused_for_good() {
    let server = shop("queues: {all: {source: shop}}").start().await;
    let client = server.client();
    let stripe = Stripe::before(&server, PATH, SECRET);

    for body in ["{", "{\"id\": \"evt_1\"} more", "nothing"] {
        stripe.send(body).await.unwrap().expect_problem(400, "invalid_request");
    }
    let long = json!({"id": "evt_1", "type": "t".repeat(1000)}).to_string();
    stripe.send(&long).await.unwrap().expect_problem(400, "invalid_request");

    assert_eq!((stored(&client, "").await.len(), waiting(&client, "all").await), (0, 0));
    // A webhook without type or id is an event all the same, and each counts.
    for _ in 0..2 {
        assert_eq!(stripe.tell("{}").await["jobs_created"], 1);
    }
    let events = stored(&client, "&type=untyped").await;
    assert_eq!(events.iter().map(|event| &event["providerEventId"]).collect::<Vec<_>>(), [&Value::Null; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_is_given_its_challenge_back() {
    let config = format!("sources: {{slack: {{verify: slack, secret: {SECRET}}}}}\nqueues: {{all: {{source: slack}}}}");
    let server = Launch::fresh().with_config(&config).start().await;
    let client = server.client();
    let body = json!({"type": "url_verification", "challenge": "3eZbrw1aB10FEMAGAZd4FyFQ"}).to_string();
    let send = async |secret: &str| {
        let (headers, _) = signed("slack", secret, "", ("application/json", &body), 0);
        client.send(client.keyless(Method::POST, "/webhooks/slack").headers(headers).body(body.clone())).await.unwrap()
    };

    let answer = send(SECRET).await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(answer.expect(200), json!("3eZbrw1aB10FEMAGAZd4FyFQ"));
    send("somebody-elses-secret").await.expect_problem(401, "unauthorized");

    assert_eq!((stored(&client, "").await.len(), waiting(&client, "all").await), (0, 0), "it is no event");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_takes_posts_only_and_at_its_path_only() {
    let server = shop("").start().await;
    let client = server.client();

    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        let reply = client.send(client.keyless(method.clone(), PATH)).await.unwrap();
        assert_eq!((reply.status, reply.headers["allow"].to_str().unwrap()), (405, "POST"), "{method}");
    }
    for path in ["/webhooks/shop/", "/webhooks", "/webhooks/Shop", "/webhooks//shop", "/webhooks/other"] {
        let reply = client.send(client.keyless(Method::POST, path)).await.unwrap();
        reply.expect_problem(404, "route_not_found");
    }
}
