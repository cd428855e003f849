//! Requests that the server sends, as OpenAPI's `webhooks`: deliveries to a queue's endpoint and completion callbacks,
//! with the effect of each answer.

use serde_json::{Value, json};

pub(super) fn webhooks() -> Value {
    json!({
        "delivery": {"post": {
            "operationId": "deliverJob",
            "summary": "a job, delivered to the webhookUrl of its queue",
            "parameters": headers(&[
                ("x-outlast-signature", "sha256= and the hexadecimal HMAC-SHA256 of the body, the secret's text as key; the queue's signatureHeader may name it otherwise"),
                ("x-outlast-lease", "the lease, as in the body"),
                ("traceparent", "as it came with the publish, if it did"),
            ]),
            "requestBody": body("Delivery"),
            "responses": {
                "200": {"description": "standard mode: succeeded, and a JSON body is the result; ack mode: received, the outcome comes by call. The same for any other 2xx"},
                "202": {"description": "received in either mode; the outcome comes by call"},
                "410": {"description": "failed at once, as is any failure with x-outlast-retry: false"},
                "429": {"description": "not now: nothing is charged, the queue rests for Retry-After. The same for 503 and 529"},
                "default": {"description": "failed; the attempt is charged and made again after its backoff. Redirects are not followed"},
            },
        }},
        "callback": {"post": {
            "operationId": "sendCallback",
            "summary": "completion notification, sent to a job's callbackUrl",
            "parameters": headers(&[("x-signature-256", "sha256= and the hexadecimal HMAC-SHA256 of the body")]),
            "requestBody": body("Callback"),
            "responses": {
                "200": {"description": "accepted; the same for any other 2xx"},
                "default": {"description": "retried by the schedule of the queue _callbacks"},
            },
        }},
    })
}

fn headers(more: &[(&str, &str)]) -> Vec<Value> {
    let standard = [
        ("webhook-id", "the same for every repetition until the job is replayed"),
        ("webhook-timestamp", "seconds since 1970, of this attempt"),
        (
            "webhook-signature",
            "Standard Webhooks: v1, and base64 of HMAC-SHA256 over id.timestamp.body, one per live secret",
        ),
    ];
    let header = |(name, about): &(&str, &str)| json!({"name": name, "in": "header", "description": about, "schema": {"type": "string"}});
    standard.iter().chain(more).map(header).collect()
}

fn body(schema: &str) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}
