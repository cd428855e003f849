//! Secrets and signatures: shown once, sealed at rest, two live ones during a rotation, and a new one when the endpoint
//! moves to another host. (I-29, T07, T11, T12)

use outlast_tests::receiver::Receiver;
use outlast_tests::server::Launch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, Push, seconds_until};
use crate::api::text;
use crate::authority::secrets::{holds, stored};

/// Secrets that a user brings along: of Standard Webhooks, and of another service.
const OWN: [&str; 2] = ["whsec_b3V0bGFzdCB0ZXN0cyBicmluZyB0aGVpciBvd24=", "a-secret-of-another-service"];

async fn rotate(push: &Push, queue: &str, body: Value) -> Value {
    push.client.post(&format!("/v1/queues/{queue}/rotate-secret"), body).await.unwrap().expect(200)
}

// I-29: during the overlap both secrets sign; after it only the new one does.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_has_two_live_secrets_and_then_one() {
    let push = Push::set().await;
    let old = push.queue("work", json!({})).await;
    push.publish("work", json!(1)).await;
    let before = push.arrival("work").await;

    let rotated = rotate(&push, "work", json!({"overlap": "4s"})).await;
    let new = text(&rotated["signingSecret"]);
    push.receiver.trust("/work", &new);
    push.publish("work", json!(2)).await;
    let during = push.arrivals("work", 2).await.remove(1);
    let was_in_time = seconds_until(&rotated["previousValidUntil"]) > 0.0;
    let after = wait::until("the old secret to go", DEADLINE, async || {
        let count = push.count("work");
        push.publish("work", json!(3)).await;
        let newest = push.arrivals("work", count + 1).await.pop().unwrap();
        (newest.signatures() == 1).then_some(newest)
    })
    .await;

    assert_ne!(new, old);
    assert!(before.is_signed_with(&old) && before.signatures() == 1);
    assert!(was_in_time, "the machine is too slow for this test");
    assert_eq!(during.signatures(), 2);
    assert!(during.has_standard_signature(&old) && during.has_standard_signature(&new));
    assert!(during.has_plain_signature("x-outlast-signature", &new), "the plain header has room for one, the newest");
    assert!(seconds_until(&rotated["previousValidUntil"]) <= 0.0, "not before its time");
    assert!(after.is_signed_with(&new) && !after.has_standard_signature(&old));
}

// Without an overlap the old secret signs nothing more; a second rotation leaves two at most.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_without_overlap_ends_the_old_secret_at_once() {
    let push = Push::set().await;
    let first = push.queue("work", json!({})).await;

    let second = text(&rotate(&push, "work", json!({"overlap": 0})).await["signingSecret"]);
    push.receiver.trust("/work", &second);
    push.publish("work", json!(1)).await;
    let alone = push.arrival("work").await;
    let third = text(&rotate(&push, "work", json!({})).await["signingSecret"]);
    let fourth = text(&rotate(&push, "work", json!({"signingSecret": OWN[0]})).await["signingSecret"]);
    push.receiver.trust("/work", &fourth);
    push.publish("work", json!(2)).await;
    let both = push.arrivals("work", 2).await.remove(1);

    assert!(alone.is_signed_with(&second) && !alone.has_standard_signature(&first) && alone.signatures() == 1);
    assert_eq!((both.signatures(), fourth.as_str()), (2, OWN[0]));
    assert!(both.has_standard_signature(&third) && both.has_standard_signature(&fourth));
    assert!(!both.has_standard_signature(&second));
}

// A pull queue signs nothing, so it has nothing to rotate; a queue that is not there neither.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_push_queue_has_a_secret_to_rotate() {
    let push = Push::set().await;
    let made = push.client.put("/v1/queues/pull", json!({})).await.unwrap().expect(201);
    assert!(made.get("signingSecret").is_none(), "{made}");

    let reply = push.client.post("/v1/queues/pull/rotate-secret", json!({})).await.unwrap();
    assert_eq!(reply.expect_problem(400, "invalid_request")["errors"][0]["field"], "queue");
    push.client.post("/v1/queues/none/rotate-secret", json!({})).await.unwrap().expect_problem(404, "queue_not_found");
}

// T12: the secret is in the answer that made it and in no other, nor in the log at its most talkative, nor in the metrics.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_shown_once() {
    let push = Push::set_on(Launch::fresh().with_env("OUTLAST_LOG", "trace")).await;
    let mut secrets = vec![push.queue("work", json!({"mode": "ack"})).await];
    secrets.push(text(&rotate(&push, "work", json!({})).await["signingSecret"]));
    push.receiver.trust("/work", &secrets[1]);
    let id = push.publish("work", json!(1)).await;
    super::until_phase(&push.client, &id, "awaiting_ack").await;

    let url = push.receiver.url("/work");
    let settings = json!({"webhookUrl": url, "mode": "ack"});
    let mut answers = Vec::new();
    for (method, path, body) in [
        (Method::GET, "/v1/queues/work", Value::Null),
        (Method::GET, "/v1/queues", Value::Null),
        (Method::PATCH, "/v1/queues/work", json!({"maxAttempts": 3})),
        (Method::PATCH, "/v1/queues/work", json!({"webhookUrl": format!("{url}?again")})),
        (Method::PUT, "/v1/queues/work", settings),
        (Method::POST, "/v1/queues/work/pause", Value::Null),
        (Method::POST, "/v1/queues/work/resume", Value::Null),
        (Method::GET, &format!("/v1/jobs/{id}"), Value::Null),
        (Method::GET, "/metrics", Value::Null),
        (Method::GET, "/openapi.json", Value::Null),
    ] {
        let mut request = push.client.request(method.clone(), path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let reply = push.client.send(request).await.unwrap();
        answers.push((format!("{method} {path}"), reply.expect(200)));
    }

    for (name, answer) in &answers {
        assert!(secrets.iter().all(|secret| !answer.to_string().contains(&secret[6..])), "{name} shows a secret");
        let is_a_queue = name.contains("/v1/queues");
        assert!(!is_a_queue || answer.pointer("/signingSecret").is_none(), "{name} has the field");
    }
    let log = push.server.log();
    assert!(secrets.iter().all(|secret| !log.contains(&secret[6..])), "a secret is in the log");
    let lease = push.arrival("work").await.lease();
    assert!(!log.contains(&lease) && !log.contains("v1,"), "leases and signatures are no business of the log");
}

// T11: on disk and in the database there is no secret in the clear, neither made by us nor brought along.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_nowhere_in_what_is_stored() {
    let mut push = Push::set().await;
    let mut secrets = Vec::new();
    for number in 0..10 {
        secrets.push(push.queue(&format!("made-{number}"), json!({})).await);
    }
    for (number, own) in OWN.iter().enumerate() {
        push.queue(&format!("own-{number}"), json!({"signingSecret": own})).await;
        secrets.push((*own).to_owned());
    }
    secrets.push(text(&rotate(&push, "made-0", json!({})).await["signingSecret"]));
    push.receiver.trust("/made-0", secrets.last().unwrap());
    let id = push.publish("made-0", json!(1)).await;
    push.ended(&id).await;
    let launch = push.server.launch().clone();

    let running = stored(&launch);
    let status = push.server.terminate().await;
    let stopped = stored(&launch);

    assert!(status.success());
    for (name, content) in running.iter().chain(&stopped) {
        for secret in &secrets {
            let text = secret.strip_prefix("whsec_").unwrap_or(secret);
            assert!(!holds(content, text), "{name} holds a secret");
        }
    }
    assert!(running.iter().any(|(_, content)| holds(content, "made-9")), "the search finds what is there");
}

// T12: who can only change the URL gets no deliveries that the old host would believe: another scheme, host or port means
// another secret, shown this once. Another path does not.
#[tokio::test(flavor = "multi_thread")]
async fn the_secret_is_reset_when_the_endpoint_moves() {
    let push = Push::set().await;
    let other = Receiver::start().await;
    let mut present = push.queue("work", json!({})).await;
    let port = push.receiver.address().rsplit_once(':').unwrap().1.to_owned();
    let moves = [
        ("another path", push.receiver.url("/elsewhere"), false),
        ("another query", push.receiver.url("/elsewhere?x=1"), false),
        ("another port", other.url("/work"), true),
        ("another host", format!("http://127.0.0.2:{port}/work"), true),
        ("another scheme", format!("https://127.0.0.2:{port}/work"), true),
        ("the same in other letters", format!("HTTPS://127.0.0.2:{port}/other"), false),
        ("back again", push.receiver.url("/work"), true),
    ];
    for (name, url, is_reset) in moves {
        let answer = push.patch("work", json!({"webhookUrl": url})).await;

        let shown = answer.get("signingSecret").map(text);
        assert_eq!(shown.is_some(), is_reset, "{name}: {answer}");
        if let Some(secret) = shown {
            assert_ne!(secret, present, "{name}");
            present = secret;
        }
    }
    let first = push.receiver.deliveries("/work").len();
    push.receiver.trust("/work", &present);
    push.publish("work", json!(1)).await;
    let delivery = push.arrivals("work", first + 1).await.pop().unwrap();
    assert!(delivery.is_signed_with(&present));

    let replaced =
        push.client.put("/v1/queues/work", json!({"webhookUrl": other.url("/work")})).await.unwrap().expect(200);
    let secret = text(&replaced["signingSecret"]);
    other.trust("/work", &secret);
    push.publish("work", json!(2)).await;
    let moved = other.arrivals("/work", 1, DEADLINE).await.remove(0);
    assert!(moved.is_signed_with(&secret) && !moved.has_standard_signature(&present));
}

// A user may bring a secret along, on create, with PUT, PATCH and on rotation.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_ones_own_is_used() {
    let push = Push::set().await;
    for (number, own) in OWN.iter().enumerate() {
        let queue = format!("own-{number}");
        let shown = push.queue(&queue, json!({"signingSecret": own})).await;
        push.publish(&queue, json!(1)).await;
        let delivery = push.arrival(&queue).await;
        assert!(shown == *own && delivery.is_signed_with(own), "{own}");
    }
    push.patch("own-0", json!({"signingSecret": OWN[1]})).await;
    push.receiver.trust("/own-0", OWN[1]);
    push.publish("own-0", json!(2)).await;
    let delivery = push.arrivals("own-0", 2).await.remove(1);
    assert!(delivery.is_signed_with(OWN[1]) && !delivery.has_standard_signature(OWN[0]));
}

// A secret that cannot be one is refused, naming the field and without repeating it.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_secret_is_refused() {
    let push = Push::set().await;
    push.queue("work", json!({})).await;
    let (long, short) = ("s".repeat(256), "whsec_c2hvcnQ=");
    let bad = [
        "",
        "short",
        short,
        "whsec_",
        "whsec_not base64 at all!",
        "whsec_####################################",
        &long,
        "sixteen chars äöü",
        "with a space in the middle",
    ];
    for secret in bad {
        for (method, path) in [
            (Method::PATCH, "/v1/queues/work"),
            (Method::PUT, "/v1/queues/work"),
            (Method::POST, "/v1/queues/work/rotate-secret"),
        ] {
            let mut body = json!({"signingSecret": secret});
            if method == Method::PUT {
                body["webhookUrl"] = json!(push.receiver.url("/work"));
            }
            let reply = push.client.send(push.client.request(method.clone(), path).json(&body)).await.unwrap();
            let problem = reply.expect_problem(400, "invalid_request");
            assert_eq!(problem["errors"][0]["field"], "signingSecret", "{method} {secret:?}: {problem}");
            assert!(secret.len() < 8 || !problem.to_string().contains(secret), "{problem}");
        }
    }
    let pull = json!({"signingSecret": OWN[0]});
    let reply = push.client.put("/v1/queues/pull", pull).await.unwrap();
    assert_eq!(reply.expect_problem(400, "invalid_request")["errors"][0]["field"], "signingSecret");
}

// The plain header may have the name that a receiver of another service looks for.
#[tokio::test(flavor = "multi_thread")]
async fn the_plain_signature_may_have_another_name() {
    let push = Push::set().await;
    let secret = push.queue("work", json!({"signatureHeader": "X-Hub-Signature-256"})).await;
    push.publish("work", json!(1)).await;

    let delivery = push.arrival("work").await;

    assert!(delivery.has_plain_signature("x-hub-signature-256", &secret));
    assert!(!delivery.headers.contains_key("x-outlast-signature"));
    assert_eq!(push.show("work").await["signatureHeader"], "x-hub-signature-256");
}

// T28: no two queues share a secret, also not with the same endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn each_queue_has_a_secret_of_its_own() {
    let push = Push::set().await;
    let mut secrets = Vec::new();
    for number in 0..20 {
        secrets.push(push.queue(&format!("q{number}"), json!({"webhookUrl": push.receiver.url("/same")})).await);
    }
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 20);
}
