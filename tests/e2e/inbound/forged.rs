//! T08: what forgers send, over all schemes: every webhook is refused with the same answer, and nothing happens.

mod forgeries;
mod timing;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use jiff::Timestamp;
use outlast_engine::inbound::verify::Scheme;
use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Reply};
use outlast_tests::server::{Launch, Server};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::forgeries::forgeries;
use super::provider::{Stripe, event, signed};
use super::{SECRET, metric, stored, waiting};

const LANES: usize = 16;
const BODY_MAX: usize = 4096;
/// Where a provider of any scheme thinks it sends to. Twilio signs it.
const URL: &str = "https://example.com/webhooks/";
/// Long enough for every scheme, and marked for those that sign by Standard Webhooks.
const MARKED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn secret(name: &str) -> &'static str {
    if matches!(name, "standard-webhooks" | "gitlab") { MARKED } else { SECRET }
}

/// A source for each scheme under its name, one that is closed to us, and one queue for each.
fn config() -> String {
    let (mut sources, mut queues) = (String::new(), String::new());
    for name in Scheme::NAMES {
        let more = match name {
            "twilio" => format!(", url: '{URL}{name}'"),
            "hmac" => ", header: x-signature".to_owned(),
            _ => String::new(),
        };
        let secret = secret(name);
        sources += &format!("  {name}: {{verify: {name}, secret: {secret}, max_body: {BODY_MAX}{more}}}\n");
        queues += &format!("  of-{name}: {{source: {name}}}\n");
    }
    sources += &format!("  closed: {{verify: stripe, secret: {SECRET}, allowed_ips: [10.0.0.0/8, '2001:db8::/32']}}\n");
    sources += &format!("  open: {{verify: stripe, secret: {SECRET}, allowed_ips: [10.0.0.0/8, 127.0.0.0/8]}}\n");
    format!("sources:\n{sources}queues:\n{queues}")
}

/// A webhook on its way.
#[derive(Clone, Debug)]
pub(super) struct Webhook {
    pub name: &'static str,
    pub headers: HeaderMap,
    pub body: String,
}

impl Webhook {
    /// As the provider sends it, `seconds` after this moment, signed with this secret.
    pub fn signed(name: &'static str, secret: &str, seconds: i64) -> Webhook {
        let (content_type, body) = content(name);
        let (headers, url) = signed(name, secret, &format!("{URL}{name}"), (content_type, &body), seconds);
        assert_eq!(url, format!("{URL}{name}"));
        Webhook { name, headers, body }
    }

    pub fn good(name: &'static str) -> Webhook {
        Webhook::signed(name, secret(name), 0)
    }

    async fn send(self, client: &Client) -> Reply {
        let request = client.keyless(Method::POST, &format!("/webhooks/{}", self.name));
        client.send(request.headers(self.headers).body(self.body)).await.expect("an answer")
    }
}

fn content(name: &str) -> (&'static str, String) {
    match name {
        "twilio" => ("application/x-www-form-urlencoded", "MessageSid=SM1&MessageStatus=sent&Body=a+b%21".to_owned()),
        _ => {
            let now = Timestamp::now().as_millisecond();
            let body = format!(r#"{{"id": "evt_1", "type":"t", "webhookTimestamp": {now}, "data": {{"text":"é"}} }}"#);
            ("application/json", body)
        }
    }
}

/// All that a forger could change.
async fn fingerprint(server: &Server) -> Value {
    let client = server.client();
    let mut counts = Vec::new();
    for name in Scheme::NAMES {
        counts.push(waiting(&client, &format!("of-{name}")).await);
    }
    let queues = client.get("/v1/queues?limit=200").await.unwrap().expect(200);
    let meters = (metric(server, "outlast_events_total").await, metric(server, "outlast_events_repeated_total").await);
    json!([stored(&client, "").await, counts, queues, meters.0, meters.1])
}

// T08: 10 000 forgeries: one answer, no effect.
#[tokio::test(flavor = "multi_thread")]
async fn every_forged_webhook_gets_the_same_401_and_has_no_effect() {
    let server = Launch::fresh().with_config(&config()).start().await;
    let client = server.client();
    for name in Scheme::NAMES {
        let answer = Webhook::good(name).send(&client).await;
        assert_eq!(answer.expect(200)["jobs_created"], 1, "{name}: the rig signs as the server expects");
    }
    let (before, refused) = (fingerprint(&server).await, metric(&server, "outlast_events_refused_total").await);
    let wanted = volume(10_000, 100_000);
    let expected = Arc::new(Webhook { headers: HeaderMap::new(), ..Webhook::good("stripe") }.send(&client).await);
    assert_eq!(expected.clone().status, 401, "{expected:?}");

    let seed = seed("forged");
    let sent = Arc::<AtomicUsize>::default();
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (client, sent, expected) = (client.clone(), Arc::clone(&sent), Arc::clone(&expected));
        lanes.spawn(async move {
            let mut chance = Chance::seeded(seed.wrapping_add(lane as u64));
            while sent.load(Ordering::SeqCst) < wanted {
                for name in Scheme::NAMES {
                    for (what, webhook) in forgeries(name, &mut chance) {
                        let shown = format!("{name}, {what}: {webhook:?}");
                        let answer = webhook.send(&client).await;
                        assert_eq!((answer.status, &answer.body), (401, &expected.body), "{shown}");
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
    }
    lanes.join_all().await;

    let sent = sent.load(Ordering::SeqCst) as u64;
    println!("forged: {sent} webhooks were refused");
    assert_eq!(metric(&server, "outlast_events_refused_total").await, refused + 1 + sent);
    assert_eq!(fingerprint(&server).await, before, "a forged webhook had an effect");
    let log = server.log();
    assert!(!log.contains(SECRET) && !log.contains(MARKED) && !log.contains("panicked"));
}

// T08: no digest is computed over a body that is too large, signed or not.
#[tokio::test(flavor = "multi_thread")]
async fn too_large_a_body_is_refused_before_any_check() {
    let server = Launch::fresh().with_config(&config()).start().await;
    let client = server.client();
    let before = fingerprint(&server).await;

    for name in Scheme::NAMES {
        let large = json!({"id": "evt_large", "type": "t", "text": "x".repeat(BODY_MAX)}).to_string();
        let (headers, _) = signed(name, secret(name), &format!("{URL}{name}"), ("application/json", &large), 0);
        for headers in [HeaderMap::new(), headers] {
            let answer = Webhook { name, headers, body: large.clone() }.send(&client).await;
            answer.expect_problem(413, "payload_too_large");
        }
    }
    // Also without a `Content-Length`.
    let pieces = futures_util::stream::iter((0..8).map(|_| Ok::<_, std::io::Error>("x".repeat(1024))));
    let request = client.keyless(Method::POST, "/webhooks/stripe").body(reqwest::Body::wrap_stream(pieces));
    client.send(request).await.unwrap().expect_problem(413, "payload_too_large");

    assert_eq!(fingerprint(&server).await, before);
}

// T08: from elsewhere a good signature is worth nothing, and the answer does not tell.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_allowed_gets_the_same_answer() {
    let server = Launch::fresh().with_config(&config()).start().await;
    let closed = Stripe::before(&server, "/webhooks/closed", SECRET);

    let refused = closed.send(&event("evt_1", "t", 1)).await.unwrap();
    let forged = closed.with_secret("another-secret").send(&event("evt_1", "t", 1)).await.unwrap();
    let pretended =
        closed.send_with(&[("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.1")], "{}").await.unwrap();

    assert_eq!((refused.status, &refused.body), (401, &forged.body));
    assert_eq!((pretended.status, &pretended.body), (401, &forged.body), "a header is no address");
    assert_eq!(stored(&server.client(), "").await, Vec::<Value>::new());
    Stripe::before(&server, "/webhooks/open", SECRET).tell(&event("evt_1", "t", 1)).await;
}
