//! The way that most people will go first: Stripe, one queue with a filter, and workers with a key of the queue.

use outlast_tests::http::Client;
use outlast_tests::server::Launch;
use serde_json::{Value, json};

use super::provider::{Stripe, event};
use super::{SECRET, drain, raw_text, stored};
use crate::api::text;

const CONFIG: &str = r#"sources:
  stripe: {path: /webhook/stripe, verify: stripe, secret: "${STRIPE_WEBHOOK_SECRET}"}
queues:
  billing:
    source: stripe
    events: [invoice.paid, invoice.payment_failed]
    filter: "$.data.object.amount_due >= 1000"
    visibility_timeout: 60s
    max_attempts: 5
    api_key: ${QUEUE_API_KEY}
"#;
const QUEUE_KEY: &str = "key-of-the-workers-of-billing";

/// Not as a program of ours would write it, so that a re-encoded payload is noticed.
const PAID: &str = r#"{ "type":"invoice.paid",  "id" : "evt_paid",
  "data":{"object":{"amount_due":1000.50,"note":"caf\u00e9 \/ \"é\"", "big": 12345678901234567890.10 }} }"#;

fn launch() -> Launch {
    Launch::fresh().with_env("STRIPE_WEBHOOK_SECRET", SECRET).with_env("QUEUE_API_KEY", QUEUE_KEY).with_config(CONFIG)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invoice_lands_in_billing_and_others_are_only_remembered() {
    let server = launch().start().await;
    let (admin, workers) = (server.client(), Client::new(&server.base, QUEUE_KEY));
    let stripe = Stripe::before(&server, "/webhook/stripe", SECRET);

    let paid = stripe.tell(PAID).await;
    let small = stripe.tell(&event("evt_small", "invoice.paid", 999)).await;
    let other = stripe.tell(&event("evt_other", "customer.created", 5000)).await;

    assert_eq!((&paid["duplicate"], &paid["jobs_created"]), (&json!(false), &json!(1)));
    for answer in [&small, &other] {
        assert_eq!((&answer["duplicate"], &answer["jobs_created"]), (&json!(false), &json!(0)), "{answer}");
    }
    assert_eq!(
        queues(&workers).await,
        json!([{
            "name": "billing", "source": "stripe", "events": ["invoice.paid", "invoice.payment_failed"],
            "visibility_timeout": "60s", "depth": 1,
        }])
    );

    let page = raw_text(&workers, "/api/queues/billing/messages?wait=10s&batch=5").await;

    assert!(page.contains(&format!("\"payload\":{PAID}")), "not byte for byte: {page}");
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    let message = &page["messages"][0];
    assert_eq!((&message["event_id"], &message["event_type"]), (&paid["event_id"], &json!("invoice.paid")));
    assert_eq!(message["headers"], json!({"content-type": "application/json"}), "no signature is kept");
    let acked = workers.post("/api/queues/billing/ack", json!({"ids": [message["receipt"]]})).await.unwrap();
    assert_eq!(acked.expect(200), json!({"acked": 1}));
    assert_eq!(drain(&workers, "billing").await, Vec::<Value>::new());

    let told: Vec<Value> = stored(&admin, "").await.iter().map(summary).collect();
    assert_eq!(
        told,
        [
            json!(["stripe", "customer.created", "evt_other", 0]),
            json!(["stripe", "invoice.paid", "evt_small", 0]),
            json!(["stripe", "invoice.paid", "evt_paid", 1]),
        ]
    );
    let whole = raw_text(&admin, &format!("/v1/events/{}", text(&paid["event_id"]))).await;
    assert!(whole.ends_with(&format!("\"payload\":{PAID}}}")), "not byte for byte: {whole}");
}

// A worker with the queue's key waits like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_worker_is_woken_by_the_webhook() {
    let server = launch().start().await;
    let workers = Client::new(&server.base, QUEUE_KEY);
    let stripe = Stripe::before(&server, "/webhook/stripe", SECRET);

    let (page, told) = tokio::join!(workers.get("/api/queues/billing/messages?wait=20s"), async {
        stripe.tell(&event("evt_1", "invoice.payment_failed", 1000)).await
    });

    let page = page.unwrap().expect(200);
    assert_eq!(page["messages"][0]["event_id"], told["event_id"], "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_the_file_are_those_of_the_queue() {
    let server = launch().start().await;

    let queue = server.client().get("/v1/queues/billing").await.unwrap().expect(200);

    assert_eq!((&queue["visibilityTimeout"], &queue["maxAttempts"]), (&json!(60), &json!(5)), "{queue}");
    assert_eq!(
        queue["declared"],
        json!({
            "settings": ["maxAttempts", "visibilityTimeout"], "source": "stripe",
            "events": ["invoice.paid", "invoice.payment_failed"], "filter": "$.data.object.amount_due >= 1000",
            "idempotencyKey": null,
        })
    );
    let log = server.log();
    assert!(!log.contains(SECRET) && !log.contains(QUEUE_KEY), "a secret is in the log");
}

async fn queues(client: &Client) -> Value {
    client.get("/api/queues").await.unwrap().expect(200)["queues"].clone()
}

fn summary(event: &Value) -> Value {
    json!([event["source"], event["type"], event["providerEventId"], event["jobsCreated"]])
}
