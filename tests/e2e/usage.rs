//! The usage of an attempt is stored with it.

use outlast_tests::server::Server;
use serde_json::{Value, json};

use crate::api::{events, make_queue, publish, receive_one, settle};

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_kept_with_the_attempt_and_bounded() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "llm", json!({"backoff": {"type": "fixed", "delay": 0}})).await;
    let id = publish(&client, "llm", json!(1)).await;
    let first = receive_one(&client, "llm").await;
    let units = |count: usize| Value::Object((0..count).map(|unit| (format!("u{unit}"), json!(1))).collect());
    let too_long = json!({"u".repeat(65): 1});
    for wrong in [json!(7), json!({"tokens": -1}), json!({"tokens": "1"}), json!({"": 1}), too_long, units(17)] {
        let body = json!({"lease": first["lease"], "usage": wrong});
        client.post(&format!("/v1/jobs/{id}/ack"), body).await.unwrap().expect_problem(400, "invalid_request");
    }

    settle(&client, &id, "nack", json!({"lease": first["lease"], "usage": {"tokens": 1234, "cost": 0.25}})).await;
    let second = receive_one(&client, "llm").await;
    let outcome = json!({"id": id, "outcome": "ack", "lease": second["lease"], "usage": units(16)});
    client.post("/v1/outcomes", json!({"outcomes": [outcome]})).await.unwrap().expect(200);

    let used: Vec<Value> =
        events(&client, &id).await.into_iter().filter_map(|event| event.get("usage").cloned()).collect();
    assert_eq!(used, [json!({"tokens": 1234, "cost": 0.25}), units(16)]);
}
