//! Push delivery from publish to outcome: a real server, a real endpoint, and what both of them saw. Every request that
//! arrives in this suite must have been signed (I-29): the receiver looks at all of them when its test ends.

mod answers;
mod backpressure;
mod circuit;
mod acks;
mod attempts;

mod requests;
mod signing;
mod templates;
mod callbacks;

mod headers;
mod limits;
mod changes;
mod targets;

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::receiver::Receiver;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{events, job, text};

/// Everything here takes milliseconds, or the one second that the shortest timeouts have; the rest is for busy machines.
const DEADLINE: Duration = Duration::from_secs(40);

/// A server and an endpoint. The fields are dropped in this order: the endpoint judges what it saw when the server is gone.
struct Push {
    server: Server,
    client: Client,
    receiver: Receiver,
}

impl Push {
    async fn set() -> Push {
        Push::set_on(Launch::fresh()).await
    }

    async fn set_on(launch: Launch) -> Push {
        let server = launch.start().await;
        let client = server.client();
        Push { server, client, receiver: Receiver::start().await }
    }

    /// A queue that delivers to the path of its name. Gives the secret.
    async fn queue(&self, name: &str, settings: Value) -> String {
        queue_to(&self.client, &self.receiver, name, settings).await
    }

    async fn publish(&self, queue: &str, payload: Value) -> String {
        crate::api::publish(&self.client, queue, payload).await
    }

    async fn job(&self, id: &str) -> Value {
        job(&self.client, id).await
    }

    async fn ended(&self, id: &str) -> Value {
        ended(&self.client, id).await
    }

    /// The first delivery of a queue.
    async fn arrival(&self, queue: &str) -> outlast_tests::receiver::Delivery {
        self.receiver.arrivals(&format!("/{queue}"), 1, DEADLINE).await.remove(0)
    }

    async fn arrivals(&self, queue: &str, count: usize) -> Vec<outlast_tests::receiver::Delivery> {
        self.receiver.arrivals(&format!("/{queue}"), count, DEADLINE).await
    }

    fn count(&self, queue: &str) -> usize {
        self.receiver.count(&format!("/{queue}"))
    }

    async fn show(&self, queue: &str) -> Value {
        self.client.get(&format!("/v1/queues/{queue}")).await.unwrap().expect(200)
    }

    async fn patch(&self, queue: &str, settings: Value) -> Value {
        self.client.patch(&format!("/v1/queues/{queue}"), settings).await.unwrap().expect(200)
    }

    /// Waits until the queue is on hold.
    async fn held(&self, queue: &str) -> Value {
        wait::until("the queue to be on hold", DEADLINE, async || {
            let hold = self.show(queue).await["hold"].clone();
            (!hold.is_null()).then_some(hold)
        })
        .await
    }

    /// Kill -9 and a new start on the same data.
    async fn crash_and_restart(&mut self) {
        self.server.crash_and_restart().await;
        self.client = self.server.client();
    }

    /// The sum of a metric over all nodes.
    async fn metric(&self, name: &str) -> u64 {
        let mut sum = 0;
        for node in &self.server.nodes {
            let page = text(&node.client().get("/metrics").await.unwrap().expect(200));
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value = line.unwrap_or_else(|| panic!("no {name} in\n{page}"));
            sum += value.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {value}"));
        }
        sum
    }

    /// Waits until no delivery is under way anywhere, outcomes included.
    async fn all_quiet(&self) {
        wait::until("all deliveries to end", DEADLINE, async || {
            (self.metric("outlast_deliveries_in_flight").await == 0).then_some(())
        })
        .await;
    }
}

/// A queue that delivers to this receiver, to the path of its name. Gives the secret, which the receiver gets, too.
async fn queue_to(client: &Client, receiver: &Receiver, name: &str, mut settings: Value) -> String {
    let path = format!("/{name}");
    if settings["webhookUrl"].is_null() {
        settings["webhookUrl"] = json!(receiver.url(&path));
    }
    let reply = client.put(&format!("/v1/queues/{name}"), settings).await.unwrap();
    assert_eq!(reply.status, 201, "queue not made: {}", reply.body);
    let secret = text(&reply.body["signingSecret"]);
    receiver.trust(&path, &secret);
    secret
}

/// Waits until the job is in this state.
async fn until_status(client: &Client, id: &str, status: &str) -> Value {
    wait::until(&format!("a job to be {status}"), DEADLINE, async || {
        let job = job(client, id).await;
        (job["status"] == status).then_some(job)
    })
    .await
}

async fn until_phase(client: &Client, id: &str, phase: &str) -> Value {
    wait::until(&format!("a job to be {phase}"), DEADLINE, async || {
        let job = job(client, id).await;
        (job["runningPhase"] == phase).then_some(job)
    })
    .await
}

/// Waits until the job is in a terminal state.
async fn ended(client: &Client, id: &str) -> Value {
    wait::until("a job to end", DEADLINE, async || {
        let job = job(client, id).await;
        matches!(job["status"].as_str(), Some("succeeded" | "failed" | "cancelled")).then_some(job)
    })
    .await
}

/// The attempts of a job as its log has them.
async fn attempts(client: &Client, id: &str) -> Vec<Value> {
    let mut attempts = events(client, id).await;
    attempts.retain(|event| event["type"] == "attempt");
    attempts
}

/// How long from now until a time of the API, in seconds; negative if it has passed.
fn seconds_until(time: &Value) -> f64 {
    let time: jiff::Timestamp = text(time).parse().expect("times are RFC 3339");
    time.duration_since(jiff::Timestamp::now()).as_secs_f64()
}

/// No wait between attempts.
fn at_once() -> Value {
    json!({"type": "fixed", "delay": 0, "jitter": 0})
}
