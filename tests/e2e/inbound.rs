//! Webhooks of providers, from the signature to the job: a server with sources and queues in its file, and a provider
//! in front of it that signs, repeats, tries again, and is forged.

pub(crate) mod provider;

mod billing;
mod forged;
mod repeats;
mod fan_out;
mod quota;
mod retries;

mod reload;
mod ownership;

mod own_events;
mod history;
mod edges;

use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use reqwest::Method;
use serde_json::Value;

use crate::api::text;

/// The signing secret of the provider in most tests.
pub(crate) const SECRET: &str = "a-secret-between-the-provider-and-us";
/// Where it sends.
pub(crate) const PATH: &str = "/webhooks/shop";

/// Stripe as the source `shop`, and these lines about queues.
fn shop(queues: &str) -> Launch {
    shop_on(Launch::fresh(), queues)
}

pub(crate) fn shop_on(launch: Launch, queues: &str) -> Launch {
    launch.with_config(&format!("sources: {{shop: {{verify: stripe, secret: {SECRET}}}}}\n{queues}"))
}

/// Messages that wait in a queue, all of them, in the order in which they are handed out.
pub(crate) async fn drain(client: &Client, queue: &str) -> Vec<Value> {
    let mut messages = Vec::new();
    loop {
        let page = client.get(&format!("/api/queues/{queue}/messages?batch=100")).await.unwrap().expect(200);
        let page = page["messages"].as_array().unwrap();
        if page.is_empty() {
            return messages;
        }
        messages.extend(page.iter().cloned());
    }
}

/// Stored events that fit, newest first, over all pages.
pub(crate) async fn stored(client: &Client, query: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/events?limit=200{query}{cursor}")).await.unwrap().expect(200);
        events.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return events,
        }
    }
}

/// Jobs that wait in a queue.
pub(crate) async fn waiting(client: &Client, queue: &str) -> u64 {
    let queue = client.get(&format!("/v1/queues/{queue}")).await.unwrap().expect(200);
    queue["counts"]["queued"].as_u64().expect("a count")
}

/// A counter, over all nodes.
async fn metric(server: &Server, name: &str) -> u64 {
    let mut sum = 0;
    for node in &server.nodes {
        let page = text(&node.client().get("/metrics").await.unwrap().expect(200));
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sum += line.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    }
    sum
}

/// The text of an answer as it came, for what must be the same byte for byte.
async fn raw_text(client: &Client, path: &str) -> String {
    client.request(Method::GET, path).send().await.unwrap().text().await.unwrap()
}

/// A client with an admin key of another namespace.
async fn neighbour(client: &Client) -> Client {
    let request = serde_json::json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"});
    let made = client.post("/v1/keys", request).await.unwrap().expect(201);
    Client::new(&client.base, &text(&made["key"]))
}
