//! Long-running work as its worker and its viewers see it: progress, heartbeats with directives, stalls, checkpoints,
//! sections, output, and what of it is left for the next attempt. On every engine.

mod progress;
mod frames;
mod liveness;
mod heartbeat;
mod many;
mod waiting;

mod checkpoints;
mod sections;
mod output;
mod resume;
mod leftovers;

use std::time::Duration;

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Server;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, receive_one, settle, text};

/// Everything here takes milliseconds, or the second or two of the shortest timeouts; the rest is for busy machines.
const DEADLINE: Duration = Duration::from_secs(40);

/// A server with one queue, and one job of it in the hands of a worker.
struct Work {
    server: Server,
    client: Client,
    id: String,
    lease: String,
}

impl Work {
    /// With a long lease and a retry at once, unless the settings say otherwise.
    async fn begin(settings: Value) -> Work {
        let server = Server::fresh().await;
        let client = server.client();
        let mut all = json!({"visibilityTimeout": "1h", "backoff": {"type": "fixed", "delay": 0}});
        for (name, value) in settings.as_object().unwrap() {
            all[name] = value.clone();
        }
        make_queue(&client, "work", all).await;
        let id = publish(&client, "work", json!(1)).await;
        let lease = text(&receive_one(&client, "work").await["lease"]);
        Work { server, client, id, lease }
    }

    /// From here on all calls go to the first node: it knows its last report at once, the others a second later.
    fn on_one_node(mut self) -> Work {
        self.client = self.server.clients().remove(0);
        self
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/jobs/{}/{rest}", self.id)
    }

    /// A call of the worker with its lease in the header, and any answer.
    async fn call(&self, method: Method, rest: &str, body: &Value) -> Reply {
        self.call_raw(method, rest, body.to_string()).await
    }

    /// The same with a body that is sent as it is.
    async fn call_raw(&self, method: Method, rest: &str, body: String) -> Reply {
        let request = self.client.request(method, &self.path(rest)).header("x-outlast-lease", &self.lease);
        self.client.send(request.header("content-type", "application/json").body(body)).await.unwrap()
    }

    /// Reports progress; returns the merged progress.
    async fn report(&self, report: Value) -> Value {
        let answer = self.call(Method::PUT, "progress", &report).await.expect(200);
        assert_eq!((&answer["id"], &answer["accepted"]), (&json!(self.id), &json!(true)));
        answer["progress"].clone()
    }

    async fn heartbeat(&self, body: Value) -> Value {
        self.call(Method::POST, "heartbeat", &body).await.expect(200)
    }

    async fn checkpoint(&self, version: u32, data: Value) -> Value {
        self.call(Method::PUT, "checkpoint", &json!({"schemaVersion": version, "data": data})).await.expect(200)
    }

    async fn section(&self, name: &str, value: Value) -> Value {
        self.call(Method::PUT, &format!("sections/{name}"), &value).await.expect(200)
    }

    async fn output(&self, words: &str) -> Value {
        self.call(Method::POST, "output", &json!({ "text": words })).await.expect(200)
    }

    async fn direct(&self, directives: &[&str]) -> Value {
        let body = json!({ "directives": directives });
        self.client.post(&self.path("directives"), body).await.unwrap().expect(200)
    }

    async fn job(&self) -> Value {
        crate::api::job(&self.client, &self.id).await
    }

    /// All names of sections, over all pages.
    async fn section_names(&self) -> Vec<String> {
        let (mut names, mut path) = (Vec::new(), self.path("sections?limit=200"));
        loop {
            let page = self.client.get(&path).await.unwrap().expect(200);
            names.extend(page["items"].as_array().unwrap().iter().map(|item| text(&item["name"])));
            match page["nextCursor"].as_str() {
                Some(cursor) => path = self.path(&format!("sections?limit=200&cursor={cursor}")),
                None => return names,
            }
        }
    }

    /// Ends the attempt; the job goes to the next worker.
    async fn fail(&self) {
        settle(&self.client, &self.id, "nack", json!({"lease": self.lease})).await;
    }

    async fn ack(&self) {
        settle(&self.client, &self.id, "ack", json!({"lease": self.lease})).await;
    }

    /// Receives the job again; returns the hand-out.
    async fn take(&mut self) -> Value {
        let held = receive_one(&self.client, "work").await;
        assert_eq!(held["id"], json!(self.id));
        self.lease = text(&held["lease"]);
        held
    }

    /// Kill -9 of the whole server, and a new start.
    async fn crash(&mut self) {
        self.server.crash_and_restart().await;
        self.client = self.server.client();
    }
}

/// The text of an answer, not as JSON: numbers are as they were sent.
async fn raw(client: &Client, path: &str) -> String {
    let response = client.request(Method::GET, path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.text().await.unwrap()
}
