//! Templates preset fields and nothing else: each has its presets, and every one of them can be overridden.

use reqwest::Method;
use serde_json::{Value, json};

use super::Push;
use crate::api::receive_one;

/// The presets of each template; everything else has the queue's defaults.
fn presets() -> Vec<(&'static str, Value)> {
    let model_api = json!({"type": "exponential", "delay": 10, "factor": 2, "maxDelay": 300, "jitter": 0.5});
    let per_minute = |limit: u32| json!({"limit": limit, "per": 60});
    let patient = json!({"type": "schedule", "delays": [60, 300, 900, 3600, 14400, 43200], "jitter": 0.2});
    vec![
        ("anthropic", json!({"mode": "ack", "ackTimeout": 600, "backoff": model_api, "rateLimit": per_minute(50)})),
        ("openai", json!({"mode": "ack", "ackTimeout": 300, "backoff": model_api, "rateLimit": per_minute(500)})),
        (
            "report",
            json!({
                "mode": "ack", "ackTimeout": 3600, "visibilityTimeout": 300, "maxAttempts": 3, "heartbeatTimeout": 120,
            }),
        ),
        (
            "transcode",
            json!({
                "mode": "ack", "ackTimeout": 14400, "visibilityTimeout": 300, "maxAttempts": 3, "heartbeatTimeout": 60,
                "concurrency": 4,
            }),
        ),
        ("webhook", json!({"mode": "standard", "maxAttempts": 7, "backoff": patient})),
    ]
}

/// For each field that a template presets, another value.
fn other(field: &str) -> Value {
    match field {
        "mode" => json!("ack"),
        "concurrency" | "maxAttempts" => json!(9),
        "backoff" => json!({"type": "fixed", "delay": 9, "jitter": 0}),
        "rateLimit" => json!({"limit": 9, "per": 9}),
        _ => json!(77),
    }
}

/// Numbers are compared as numbers, also within members.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| is_equal(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        _ => one == other || (one.as_f64().is_some() && one.as_f64() == other.as_f64()),
    }
}

// Each template has its presets and leaves the rest alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_presets_its_fields_and_no_others() {
    let push = Push::set().await;
    push.queue("plain", json!({})).await;
    let plain = push.show("plain").await;
    for (template, presets) in presets() {
        push.queue(template, json!({ "template": template, "webhookUrl": push.receiver.url("/plain") })).await;

        let queue = push.show(template).await;

        assert_eq!(queue["template"], template);
        for (field, value) in plain.as_object().unwrap() {
            if ["name", "template", "createdAt", "updatedAt"].contains(&field.as_str()) {
                continue;
            }
            let wanted = presets.get(field).unwrap_or(value);
            assert!(is_equal(&queue[field], wanted), "{template}.{field} is {} and not {wanted}", queue[field]);
        }
    }
}

// Any field beside a template wins over it, on create and on replace, one by one.
#[tokio::test(flavor = "multi_thread")]
async fn every_preset_can_be_overridden_field_by_field() {
    let push = Push::set().await;
    let url = push.receiver.url("/x");
    for (template, presets) in presets() {
        for overridden in presets.as_object().unwrap().keys() {
            let mut settings = json!({"template": template, "webhookUrl": url});
            let value = match (overridden.as_str(), template) {
                ("mode", "webhook") => json!("ack"),
                ("mode", _) => json!("standard"),
                _ => other(overridden),
            };
            settings[overridden] = value.clone();

            let made =
                push.client.put(&format!("/v1/queues/{template}-{overridden}"), settings).await.unwrap().expect(201);

            for (field, preset) in presets.as_object().unwrap() {
                let wanted = if field == overridden { &value } else { preset };
                assert!(is_equal(&made[field], wanted), "{template} with {overridden}: {field} is {}", made[field]);
            }
        }
    }
}

// A template that delivers needs to know where to; an unknown one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_without_a_url_and_an_unknown_one_are_refused() {
    let push = Push::set().await;
    for (settings, field) in [
        (json!({"template": "anthropic"}), "webhookUrl"),
        (json!({"template": "webhook"}), "webhookUrl"),
        (json!({"template": "claude", "webhookUrl": push.receiver.url("/x")}), "template"),
    ] {
        let request = push.client.request(Method::PUT, "/v1/queues/q").json(&settings);
        let problem = push.client.send(request).await.unwrap().expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["field"], field, "{settings}");
    }
}

// Long work is as often pulled as pushed: these two need no webhook.
#[tokio::test(flavor = "multi_thread")]
async fn templates_for_long_work_make_pull_queues_without_a_url() {
    let push = Push::set().await;
    for template in ["report", "transcode"] {
        let settings = json!({ "template": template });
        let made = push.client.put(&format!("/v1/queues/{template}"), settings).await.unwrap().expect(201);
        assert_eq!(
            (&made["mode"], &made["template"], &made["maxAttempts"]),
            (&json!("pull"), &json!(template), &json!(3))
        );
        assert!(made.get("signingSecret").is_none_or(Value::is_null), "a pull queue signs nothing");

        let id = push.publish(template, json!(1)).await;
        let held = receive_one(&push.client, template).await;
        assert_eq!(held["id"], json!(id));
    }
}

// A template is for the making: in a patch it is a label, and changes no setting behind one's back.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_in_a_patch_changes_nothing_else() {
    let push = Push::set().await;
    push.queue("work", json!({"template": "webhook"})).await;

    let patched = push.patch("work", json!({"template": "transcode"})).await;

    assert_eq!((&patched["template"], &patched["maxAttempts"]), (&json!("transcode"), &json!(7)));
    assert_eq!(patched["mode"], "standard");
}
