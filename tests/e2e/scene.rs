//! A server with one of everything the routes speak about, and for every route a request that would work. The tests
//! that are generated from the route table start here.

use std::sync::atomic::{AtomicU64, Ordering};

use outlast_api::routes::Route;
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use serde_json::{Value, json};

use crate::api::{make_queue, publish, publish_many, receive_one, settle, text};
use crate::inbound::shop_on;

/// For tests that send more wrong keys than an address may.
pub(crate) const MANY_WRONG_KEYS: &str = "limits: {failed_keys_per_address: 1000000}\n";

/// More waiting jobs than the tests take away.
const WAITING_JOBS: usize = 600;

pub(crate) struct Scene {
    pub server: Server,
    /// With the admin key.
    pub client: Client,
    pub things: Things,
    made: AtomicU64,
}

/// A section that the running jobs have; they have a checkpoint as well.
const SECTION: &str = "part-1";

/// Objects that the variable parts of the routes can name.
#[derive(Clone, Debug)]
pub(crate) struct Things {
    pub queue: String,
    /// A job that waits.
    pub queued: String,
    /// A job that is handed out, for long.
    pub running: String,
    pub lease: String,
    pub dead: String,
    pub operation: String,
    /// An unused key.
    pub key: String,
    /// An event of a source; where there is none, no event at all.
    pub event: String,
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        Scene::set_on(shop_on(Launch::fresh(), MANY_WRONG_KEYS)).await
    }

    pub(crate) async fn set_on(launch: Launch) -> Scene {
        let server = launch.start().await;
        let client = server.client();
        let things = make_things(&client, "mail").await;
        Scene { server, client, things, made: AtomicU64::new(0) }
    }

    /// A name that was not used before.
    pub(crate) fn name(&self) -> String {
        format!("n{}", self.made.fetch_add(1, Ordering::SeqCst))
    }

    /// A path whose things are made for this one request, where the request changes or needs something.
    pub(crate) async fn fresh_path(&self, route: &Route) -> String {
        let mut things = self.things.clone();
        match (route.method.as_str(), route.path) {
            ("DELETE" | "PUT" | "PATCH", "/v1/queues/{queue}") => {
                things.queue = self.name();
                make_queue(&self.client, &things.queue, json!({})).await;
            }
            (_, "/v1/queues/{queue}/rotate-secret") => {
                things.queue = self.name();
                make_queue(&self.client, &things.queue, json!({"webhookUrl": "https://example.com/hook"})).await;
            }
            (_, path) if path.starts_with("/v1/jobs/{id}/") => {
                let queue = self.name();
                make_queue(&self.client, &queue, json!({"visibilityTimeout": "12h"})).await;
                let (running, dead) = (running(&self.client, &queue).await, dead(&self.client, &queue).await);
                (things.running, things.lease, things.dead) = (running.0, running.1, dead);
            }
            _ => {}
        }
        things.path(route)
    }

    /// The least body the route takes, as members with JSON text; `None` where it takes none.
    pub(crate) fn body(&self, route: &Route) -> Option<Vec<(String, String)>> {
        let object = route.body?;
        let member = |name: &str, value: Value| (name.to_owned(), value.to_string());
        Some(match object.name {
            "NewQueue" => vec![member("name", json!(self.name()))],
            "NewJobBatch" => vec![member("jobs", json!([]))],
            "HeartbeatBatch" => vec![member("heartbeats", json!([]))],
            "ProgressBatch" => vec![member("reports", json!([]))],
            "OutcomeBatch" => vec![member("outcomes", json!([]))],
            "ReceiveSeveralRequest" => vec![member("queues", json!([{"name": self.things.queue}]))],
            "JobsWait" => vec![member("jobs", json!([{"id": self.things.queued}]))],
            "NewKey" => vec![member("name", json!("spare")), member("scopes", json!(["read"]))],
            "Finalize" => vec![member("uploadId", json!("0123456789abcdef"))],
            "NewToken" => vec![member("can", json!(["read"]))],
            "NewCheckpoint" => vec![member("schemaVersion", json!(1)), member("data", json!(null))],
            "NewOutput" => vec![member("text", json!("a word"))],
            "Directives" => vec![member("directives", json!([]))],
            "SimpleIds" => vec![member("ids", json!([]))],
            _ => vec![],
        })
    }

    /// The server has survived: it answers, and no handler has panicked.
    pub(crate) async fn assert_unharmed(&self) {
        self.client.get("/readyz").await.unwrap().expect(200);
        let log = self.server.log();
        assert!(!log.contains("panicked"), "a panic is in the log");
    }
}

impl Things {
    /// The path of a route with its variable parts filled in.
    pub(crate) fn path(&self, route: &Route) -> String {
        let id = match route.path {
            // A stream of a job that is not finished has no end.
            "/v1/jobs/{id}/replay" | "/v1/jobs/{id}/stream" | "/v1/jobs/{id}/ws" => &self.dead,
            path if path.starts_with("/v1/operations") => &self.operation,
            path if path.starts_with("/v1/keys") => &self.key,
            path if path.starts_with("/v1/events") => &self.event,
            "/v1/jobs/{id}" | "/v1/jobs/{id}/cancel" => &self.queued,
            _ => &self.running,
        };
        let path = route.path.replace("{queue}", &self.queue).replace("{id}", id);
        path.replace("{name}", SECTION)
            .replace("{link}", "of-nobody")
            .replace("{source}", "shop")
            .replace("{type}", "paid")
    }
}

/// One of everything, in the namespace of the client's key.
pub(crate) async fn make_things(client: &Client, queue: &str) -> Things {
    make_queue(client, queue, json!({"visibilityTimeout": "12h"})).await;
    let dead = dead(client, queue).await;
    let (running, lease) = running(client, queue).await;
    let queued = publish_many(client, queue, WAITING_JOBS).await.remove(0);
    let dry = client.post(&format!("/v1/queues/{queue}/dead/replay"), json!({"ids": []})).await.unwrap().expect(202);
    let key = client.post("/v1/keys", json!({"name": "spare", "scopes": ["read"]})).await.unwrap().expect(201);
    let (operation, key) = (text(&dry["id"]), text(&key["id"]));
    let event = client.post("/events/shop/paid", json!({})).await.unwrap();
    let event = if event.status == 200 { text(&event.body["event_id"]) } else { running.clone() };
    Things { queue: queue.to_owned(), queued, running, lease, dead, operation, key, event }
}

/// A job that is handed out and has saved something, and its lease.
async fn running(client: &Client, queue: &str) -> (String, String) {
    let (id, lease) = handed_out(client, queue).await;
    let saved = json!({"schemaVersion": 1, "data": {"page": 7}, "lease": lease});
    client.put(&format!("/v1/jobs/{id}/checkpoint"), saved).await.unwrap().expect(200);
    client.put(&format!("/v1/jobs/{id}/sections/{SECTION}"), json!("done")).await.unwrap().expect(200);
    (id, lease)
}

async fn handed_out(client: &Client, queue: &str) -> (String, String) {
    let id = publish(client, queue, json!(1)).await;
    let held = receive_one(client, queue).await;
    assert_eq!(held["id"], json!(id), "nothing else waits");
    (id, text(&held["lease"]))
}

async fn dead(client: &Client, queue: &str) -> String {
    let (id, lease) = handed_out(client, queue).await;
    settle(client, &id, "nack", json!({"retryable": false, "lease": lease})).await;
    id
}
