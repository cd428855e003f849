//! The request of a delivery: its body, its headers, the user's payload byte for byte, and nothing that a
//! user could smuggle in. (I-27, I-29, T27, T28)

use outlast_tests::http::Client;
use outlast_tests::receiver::Answer;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Push, at_once, until_phase, until_status};
use crate::api::{settle, text};

// The body and the headers have all that the contract names, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_has_everything_a_worker_needs() {
    let push = Push::set().await;
    push.queue("work", json!({"mode": "ack", "maxAttempts": 7, "webhookTimeout": 9})).await;
    let id = push.publish("work", json!({"user": 7})).await;
    let job = until_phase(&push.client, &id, "awaiting_ack").await;

    let delivery = push.arrival("work").await;

    let body = delivery.json();
    let mut fields: Vec<&String> = body.as_object().unwrap().keys().collect();
    fields.sort();
    let wanted = [
        "attempt",
        "checkpoint",
        "createdAt",
        "deadline",
        "deferCount",
        "drainTimeout",
        "heartbeatTimeout",
        "id",
        "key",
        "lease",
        "leaseExpiresAt",
        "maxAttempts",
        "mode",
        "payload",
        "queue",
        "replays",
        "sections",
        "tags",
        "webhookTimeout",
    ];
    assert_eq!(fields, wanted);
    for (field, value) in [
        ("id", json!(id)),
        ("queue", json!("work")),
        ("payload", json!({"user": 7})),
        ("attempt", json!(1)),
        ("maxAttempts", json!(7)),
        ("mode", json!("ack")),
        ("key", json!(null)),
        ("tags", json!({})),
        ("webhookTimeout", json!(9)),
        ("heartbeatTimeout", json!(null)),
        ("deadline", json!(null)),
        ("deferCount", json!(0)),
        ("replays", json!(0)),
        ("createdAt", job["createdAt"].clone()),
        ("lease", json!(delivery.lease())),
    ] {
        assert_eq!(body[field], value, "{field}");
    }
    assert!(delivery.head.starts_with("POST /work HTTP/1.1\r\n"), "{}", delivery.head);
    assert_eq!(delivery.header("content-type"), "application/json");
    assert_eq!(delivery.header("host"), push.receiver.address());
    assert_eq!(delivery.header("content-length"), delivery.body.len().to_string());
    assert_eq!(delivery.header("webhook-id"), id);
    assert!(delivery.header("webhook-timestamp").parse::<i64>().is_ok());
    assert!(delivery.header("x-outlast-signature").starts_with("sha256="));
    assert!(!delivery.headers.contains_key("authorization") && !delivery.headers.contains_key("traceparent"));
    settle(&push.client, &id, "ack", json!({"lease": body["lease"]})).await;
}

// The payload arrives byte for byte: no number is rounded, no key moves, no character is written in another way.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_arrives_byte_for_byte() {
    let push = Push::set().await;
    push.queue("work", json!({})).await;
    let payloads = [
        "123456789012345678901234567890123456789012345678901234567890",
        "0.1000000000000000055511151231257827021181583404541015625",
        "-1.50E+400",
        r#"{"z":1,"a":2,"m":{"y":[],"b":{}},"a2":null}"#,
        r#""\u00e9 \ud83d\ude00 é 😀 \/ / \t end""#,
        r#"{"text":"  two  spaces  ","tab":"\t","line":"\n","zero":"\u0000"}"#,
        r#"[1,1.0,1e0,10e-1,true,false,null,"",{"":""}]"#,
        r#"{"id":"not-mine","payload":{"payload":1},"lease":"x"}"#,
        r#"{ "spaces" :  [ 1 ,2 ]  }"#,
    ];
    for (number, payload) in payloads.iter().enumerate() {
        let body = format!("{{\"payload\": {payload} }}");
        let request = push.client.request(Method::POST, "/v1/queues/work/jobs").body(body);
        push.client.send(request).await.unwrap().expect(202);

        let delivery = push.arrivals("work", number + 1).await.remove(number);

        let sent = String::from_utf8(delivery.body.clone()).unwrap();
        let wanted = format!("\"payload\":{payload},\"attempt\":1");
        assert!(sent.contains(&wanted), "{payload} arrived as {sent}");
    }
}

// A repetition has the id of the first delivery, a replay has another one.
#[tokio::test(flavor = "multi_thread")]
async fn redeliveries_share_their_id_and_a_replay_has_a_new_one() {
    let push = Push::set().await;
    push.receiver.answer("/work", Answer::status(404).times(3).chain([Answer::status(200)]));
    push.queue("work", json!({"maxAttempts": 3, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;
    until_status(&push.client, &id, "failed").await;

    push.client.post(&format!("/v1/jobs/{id}/replay"), json!({})).await.unwrap().expect(200);
    until_status(&push.client, &id, "succeeded").await;

    let deliveries = push.arrivals("work", 4).await;
    let ids: Vec<&str> = deliveries.iter().map(|delivery| delivery.header("webhook-id")).collect();
    assert_eq!((ids[0], ids[1]), (ids[1], ids[2]));
    assert_ne!(ids[3], ids[0]);
    assert!(!ids[3].contains('.'), "T28: no id has a dot, which would move the seam of what is signed");
    let replays: Vec<Value> =
        deliveries.iter().map(|delivery| json!([delivery.json()["replays"], delivery.json()["attempt"]])).collect();
    assert_eq!(replays, [json!([0, 1]), json!([0, 2]), json!([0, 3]), json!([1, 1])]);
    let mut leases: Vec<String> = deliveries.iter().map(|delivery| delivery.lease()).collect();
    leases.dedup();
    assert_eq!(leases.len(), 4, "each hand-out has a lease of its own");
}

// The trace of who published goes on with every delivery; what is no trace is not passed on.
#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_the_publisher_is_passed_on() {
    let push = Push::set().await;
    push.receiver.answer("/work", [Answer::status(404), Answer::status(200)]);
    push.queue("work", json!({"backoff": at_once()})).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let no_ids = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
    let no_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
    let no_version = "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let left_out = [no_ids, no_parent, no_version, "no trace", "00-zz-zz-01"].map(|value| (value, false));
    for (value, passes) in [(trace, true)].into_iter().chain(left_out) {
        let seen = push.count("work");
        let request = push.client.request(Method::POST, "/v1/queues/work/jobs").header("traceparent", value);
        let body = push.client.send(request.json(&json!({"payload": 1}))).await.unwrap().expect(202);
        push.ended(&text(&body["id"])).await;

        for delivery in &push.receiver.deliveries("/work")[seen..] {
            let found = delivery.headers.get("traceparent").map(|value| value.to_str().unwrap());
            assert_eq!(found, passes.then_some(value), "{}", delivery.head);
        }
    }
    assert_eq!(push.count("work"), 7);
}

// The headers of a queue arrive as they were given.
#[tokio::test(flavor = "multi_thread")]
async fn custom_headers_arrive() {
    let push = Push::set().await;
    let headers = json!({
        "Authorization": "Bearer abc.def", "X-Api-Key": "k", "x-empty": "", "User-Agent": "mine/1",
        "x-odd": "a:b; c=\"d\", e\tf ~!@#$%^&*()"
    });
    push.queue("work", json!({"headers": headers})).await;
    push.publish("work", json!(1)).await;

    let delivery = push.arrival("work").await;

    for (name, value) in headers.as_object().unwrap() {
        assert_eq!(delivery.header(name), value.as_str().unwrap(), "{name}");
    }
    push.patch("work", json!({"headers": {}})).await;
    push.publish("work", json!(2)).await;
    let later = push.arrivals("work", 2).await.remove(1);
    assert!(!later.headers.contains_key("authorization"), "{}", later.head);
}

// T12: the values of headers may open the endpoint, so no answer shows them, and they do not follow the URL to another
// host unless the same request gives them.
#[tokio::test(flavor = "multi_thread")]
async fn custom_headers_are_kept_from_readers_and_from_another_host() {
    let push = Push::set().await;
    push.queue("work", json!({"headers": {"authorization": "Bearer abc"}})).await;
    let made = push.client.post("/v1/keys", json!({"name": "r", "scopes": ["read"]})).await.unwrap().expect(201);
    let reader = Client::new(&push.client.base, made["key"].as_str().unwrap());

    for path in ["/v1/queues/work", "/v1/queues"] {
        let page = reader.get(path).await.unwrap().expect(200).to_string();
        assert!(page.contains("\"authorization\":\"****\"") && !page.contains("Bearer abc"), "{page}");
    }
    let same_host = format!("{}x", push.receiver.url("/work"));
    let kept = push.patch("work", json!({"webhookUrl": same_host})).await;
    assert_eq!(kept["headers"], json!({"authorization": "****"}));
    let moved = push.patch("work", json!({"webhookUrl": "http://127.0.0.9:1/work"})).await;
    assert_eq!(moved["headers"], json!({}));
    let given = json!({"webhookUrl": push.receiver.url("/work"), "headers": {"x-new": "1"}});
    assert_eq!(push.patch("work", given).await["headers"], json!({"x-new": "****"}));
}

// T27: a header that would break the request, speak for us or smuggle another one is refused, naming it; nothing
// hostile ever reaches the wire.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_headers_are_refused_and_never_sent() {
    let push = Push::set().await;
    push.queue("work", json!({"headers": {"x-good": "1"}})).await;
    let injected = "x\r\ninjected: yes";
    let names = [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "keep-alive",
        "Upgrade",
        "TE",
        "Trailer",
        "Cookie",
        "Expect",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Signature",
        "webhook-timestamp",
        "x-outlast-lease",
        "X-Outlast-Signature",
        "content-type",
        "x bad",
        "x-bad:",
        "x-b\r\ninjected",
        "x-ümlaut",
        "x-bad\u{0}",
    ];
    let values = [injected, "a\nb", "a\rb", "a\u{0}b", "a\u{7f}b", "a\r\n\r\nPOST /evil HTTP/1.1", "\u{1}"];
    let tries = names.iter().map(|name| (*name, "1")).chain(values.iter().map(|value| ("x-try", *value)));
    for (name, value) in tries {
        for method in [Method::PATCH, Method::PUT] {
            let mut settings = json!({"webhookUrl": push.receiver.url("/work")});
            settings["headers"] = json!({ name: value });
            let request = push.client.request(method, "/v1/queues/work").json(&settings);
            let problem = push.client.send(request).await.unwrap().expect_problem(400, "invalid_request");
            let field = problem["errors"][0]["field"].as_str().unwrap();
            assert!(field.starts_with("headers"), "{name:?}: {value:?} is refused for {field}");
        }
    }
    let many: Value =
        (0..21).map(|number| (format!("x-{number}"), json!("v"))).collect::<serde_json::Map<_, _>>().into();
    let long: Value =
        (0..9).map(|number| (format!("x-{number}"), json!("v".repeat(1000)))).collect::<serde_json::Map<_, _>>().into();
    for headers in [many, long] {
        let reply = push.client.patch("/v1/queues/work", json!({ "headers": headers })).await.unwrap();
        assert_eq!(reply.expect_problem(400, "invalid_request")["errors"][0]["field"], "headers");
    }

    push.publish("work", json!("\r\ninjected: yes\r\n")).await;

    let delivery = push.arrival("work").await;
    assert!(!delivery.head.contains("injected"), "{}", delivery.head);
    assert_eq!(delivery.header("x-good"), "1");
    assert!(delivery.head.bytes().all(|byte| matches!(byte, b'\r' | b'\n' | b' '..=b'~')), "{:?}", delivery.head);
    assert_eq!(delivery.head.matches('\n').count(), delivery.head.matches("\r\n").count());
}

// T27: the name of the plain signature's header is no way around that rule.
#[tokio::test(flavor = "multi_thread")]
async fn the_signature_header_cannot_take_the_place_of_another_one() {
    let push = Push::set().await;
    push.queue("work", json!({})).await;
    for name in [
        "host",
        "Content-Length",
        "transfer-encoding",
        "connection",
        "webhook-signature",
        "webhook-id",
        "webhook-timestamp",
        "x-outlast-lease",
        "content-type",
        "cookie",
        "proxy-authorization",
        "x bad",
        "x\r\ny",
    ] {
        let reply = push.client.patch("/v1/queues/work", json!({"signatureHeader": name})).await.unwrap();
        let problem = reply.expect_problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["field"], "signatureHeader", "{name:?}");
    }
}

// Path and query of the URL are sent as they are, also where they look like something else.
#[tokio::test(flavor = "multi_thread")]
async fn path_and_query_of_the_url_are_kept() {
    let push = Push::set().await;
    let path = "/hooks/a%20b/x;y=1?token=a%26b&empty=&list[]=1";
    let secret = push.queue("work", json!({"webhookUrl": push.receiver.url(path)})).await;
    push.receiver.trust(path, &secret);
    push.publish("work", json!(1)).await;

    let delivery = push.receiver.arrivals(path, 1, DEADLINE).await.remove(0);

    assert!(delivery.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", delivery.head);
}
