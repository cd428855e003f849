//! Where deliveries may go. Every URL that a user gives passes one guard when it is stored, and the connector looks
//! again at the address when it dials. (T01, T02, T04, T05)

use outlast_tests::dns::{NameServer, Reply, addresses};
use outlast_tests::receiver::Receiver;
use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Push, at_once, attempts};
use crate::api::make_queue;

const HOSTILE: &[&str] = &[
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "http://metadata.google.internal/",
    "http://printer.local/",
    "http://intranet/",
    "http://8.8.8.8:22/",
    "http://example.com:6379/",
    "https://example.com:25/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "unix:/run/docker.sock",
    "javascript:alert(1)",
    "data:text/plain,x",
    "http://user@example.com/",
    "http://user:secret@example.com/",
    "http://example.com@127.0.0.1/",
    "http://example.com#@127.0.0.1/",
    "http://example.com/#fragment",
    "http://",
    "http:///path",
    "//example.com/",
    "example.com",
    "http://exa mple.com/",
    "http://example.com/\r\nx-injected: yes",
    "http://example.com/\u{0}",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "",
];

const FINE: &[&str] = &[
    "https://example.com/hook",
    "http://example.com/",
    "http://example.com:8080/a?b=c",
    "https://example.com:8443/",
    "https://xn--bcher-kva.example/",
    "http://8.8.8.8/",
    "https://[2606:4700:4700::1111]/",
];

/// Every request that stores a URL, and the field that it is in.
fn requests(url: &str) -> Vec<(Method, &'static str, Value, &'static str)> {
    vec![
        (Method::PUT, "/v1/queues/new", json!({"webhookUrl": url}), "webhookUrl"),
        (Method::POST, "/v1/queues", json!({"name": "other", "webhookUrl": url}), "webhookUrl"),
        (Method::PATCH, "/v1/queues/push", json!({"webhookUrl": url}), "webhookUrl"),
        (Method::PUT, "/v1/queues/push", json!({"webhookUrl": url, "mode": "ack"}), "webhookUrl"),
        (Method::POST, "/v1/queues/pull/jobs", json!({"payload": 1, "callbackUrl": url}), "callbackUrl"),
    ]
}

// T01, T04: a URL that leads anywhere but to a public host is refused wherever it is given, naming the field.
#[tokio::test(flavor = "multi_thread")]
async fn every_url_field_refuses_what_is_not_public() {
    let push = Push::set_on(Launch::fresh().without_private_targets()).await;
    let client = &push.client;
    make_queue(client, "pull", json!({})).await;
    client.put("/v1/queues/push", json!({"webhookUrl": "https://example.com/"})).await.unwrap().expect(201);
    let own = format!("{}/v1/queues", push.server.base);

    for url in HOSTILE.iter().copied().chain([own.as_str(), push.receiver.url("/x").as_str()]) {
        for (method, path, body, field) in requests(url) {
            let reply = client.send(client.request(method.clone(), path).json(&body)).await.unwrap();
            let named = reply.body["errors"][0]["field"].clone();
            assert_eq!((reply.status, named), (400, json!(field)), "{method} {path} with {url:?}: {}", reply.body);
        }
        let batch = json!({"jobs": [{"payload": 1, "callbackUrl": url}, {"payload": 2}]});
        let answers = client.post("/v1/queues/pull/jobs/batch", batch).await.unwrap().expect(202);
        let refused = &answers["jobs"][0]["error"];
        assert_eq!(refused["errors"][0]["field"], "jobs[0].callbackUrl", "{url:?}: {answers}");
        assert!(answers["jobs"][1]["id"].is_string(), "the other job of the batch is fine");
    }
    client.get("/v1/queues/new").await.unwrap().expect_problem(404, "queue_not_found");
    assert_eq!(push.show("push").await["webhookUrl"], "https://example.com/");
    assert_eq!(push.receiver.connections(), 0);

    for url in FINE {
        for (method, path, body, _) in requests(url) {
            let reply = client.send(client.request(method.clone(), path).json(&body)).await.unwrap();
            assert!(matches!(reply.status, 200..=202), "{method} {path} with {url:?}: {}", reply.body);
        }
        client.delete("/v1/queues/new").await.unwrap().expect(204);
        client.delete("/v1/queues/other").await.unwrap().expect(204);
    }
}

// T05: the refusal is the same for all addresses that are not public, so it reveals nothing about them.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_nothing_about_what_is_there() {
    let push = Push::set_on(Launch::fresh().without_private_targets()).await;
    let mut messages = Vec::new();
    for url in [
        push.receiver.url("/"),
        "http://127.0.0.1:1/".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "http://169.254.169.254/".to_owned(),
        "http://localhost/".to_owned(),
        push.server.base.clone(),
    ] {
        let reply = push.client.put("/v1/queues/q", json!({"webhookUrl": &url})).await.unwrap();
        let problem = reply.expect_problem(400, "invalid_request");
        let message = problem["errors"][0]["message"].as_str().unwrap();
        let host = url.split("://").nth(1).and_then(|rest| rest.split([':', '/']).next()).unwrap();
        messages.push(message.replace(&format!("\"{host}\""), "the host"));
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
}

// Our own listener is no target, also where the operator allows its network: a queue must not call the API for its
// user.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_listener_is_refused_also_where_its_network_is_allowed() {
    let push = Push::set().await;
    let node = &push.server.nodes[0];

    let reply = node.client().put("/v1/queues/q", json!({"webhookUrl": format!("{}/v1/keys", node.base)})).await;

    assert_eq!(reply.unwrap().expect_problem(400, "invalid_request")["errors"][0]["field"], "webhookUrl");
}

/// A server that asks this name server and may go to public addresses only.
async fn asking(names: &NameServer) -> Push {
    let config = format!("egress:\n  nameservers: [\"{}\"]\n  ports: [80, 443, 8080, 8443]\n", names.address);
    Push::set_on(Launch::fresh().without_private_targets().with_config(&config)).await
}

// T02: a name that is fine by its looks and leads to this machine is blocked when it is dialled, at every attempt and
// for callbacks, too; the log of attempts says so and nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_to_a_private_address_is_blocked_at_delivery() {
    let trap = Receiver::start().await;
    let names = NameServer::start(0, |question| match question.name.as_str() {
        "mixed.example" => addresses(&["93.184.216.34", "127.0.0.1"]),
        "six.example" => addresses(&["::1", "::ffff:10.0.0.1"]),
        "metadata.example" => addresses(&["169.254.169.254"]),
        _ => addresses(&["127.0.0.1"]),
    })
    .await;
    let push = asking(&names).await;
    for name in ["plain", "mixed", "six", "metadata"] {
        let settings =
            json!({"webhookUrl": format!("http://{name}.example:8080/"), "maxAttempts": 2, "backoff": at_once()});
        push.queue(name, settings).await;
        let id = push.publish(name, json!(1)).await;

        let job = push.ended(&id).await;

        assert_eq!((&job["status"], &job["attempt"]), (&json!("failed"), &json!(2)), "{name}: {job}");
        for attempt in attempts(&push.client, &id).await {
            assert_eq!(attempt["error"], "blocked: blocked destination", "{name}");
            assert_eq!((&attempt["statusCode"], &attempt["responseExcerpt"]), (&Value::Null, &Value::Null));
        }
    }
    assert!(names.asked().iter().any(|question| question.name == "plain.example"), "the name server was asked");
    assert_eq!(trap.connections(), 0);
}

// T02: the same for callbacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_callback_to_a_private_address_is_blocked_at_delivery() {
    let names = NameServer::start(0, |_| addresses(&["127.0.0.1"])).await;
    let push = asking(&names).await;
    push.patch("_callbacks", json!({"maxAttempts": 1})).await;
    make_queue(&push.client, "pull", json!({})).await;
    let request = json!({"payload": 1, "callbackUrl": "http://inner.example/", "delay": 3600});
    let id = crate::api::text(&push.client.post("/v1/queues/pull/jobs", request).await.unwrap().expect(202)["id"]);
    push.client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    let callback = outlast_tests::wait::until("the callback to fail", super::DEADLINE, async || {
        let callback = push.job(&id).await["callback"].clone();
        (callback["status"] == "failed").then_some(callback)
    })
    .await;

    assert_eq!(callback["lastError"], "blocked: blocked destination");
}

// T02: a name that was fine when it was first asked for and leads here the next time: nothing is dialled.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_changes_between_attempts_is_looked_at_each_time() {
    let trap = Receiver::start().await;
    let port = trap.address().rsplit_once(':').unwrap().1.to_owned();
    // 192.0.2.1 is for documentation and refused as well; what counts is that the second answer is looked at.
    let names = NameServer::start(0, |question| match question.number {
        0 => addresses(&["192.0.2.1"]),
        _ => addresses(&["127.0.0.1"]),
    })
    .await;
    let config = format!("egress:\n  nameservers: [\"{}\"]\n  ports: [{port}]\n", names.address);
    let push = Push::set_on(Launch::fresh().without_private_targets().with_config(&config)).await;
    let url = format!("http://turning.example:{port}/");
    push.queue("work", json!({"webhookUrl": url, "maxAttempts": 3, "backoff": at_once()})).await;
    let id = push.publish("work", json!(1)).await;

    let job = push.ended(&id).await;

    assert_eq!((&job["status"], &job["lastError"]), (&json!("failed"), &json!("blocked: blocked destination")));
    assert_eq!(trap.connections(), 0, "somebody came although the port is open");
    assert!(names.asked().len() >= 2);
}

// F34: where our own resolver is down, it is not the fault of the job: no attempt is charged.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_is_down_costs_no_attempt() {
    let names = NameServer::start(0, |_| Reply::Silence).await;
    let push = asking(&names).await;
    let settings = json!({"webhookUrl": "http://far.example/", "maxAttempts": 1});
    push.queue("work", settings).await;
    let id = push.publish("work", json!(1)).await;

    let job = super::until_status(&push.client, &id, "pending").await;

    assert_eq!((&job["pendingReason"], &job["attempt"]), (&json!("deferred"), &json!(1)), "{job}");
    assert!(job["lastError"].as_str().unwrap().starts_with("resolve: "), "{job}");
    assert_eq!(push.show("work").await["hold"], Value::Null, "the queue is not held for it");
}
