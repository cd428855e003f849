//! A store with jobs of all kinds and states, made through the real server, and everything that it showed of them before it
//! was stopped.

use std::collections::BTreeMap;
use std::path::PathBuf;

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};

/// Jobs of each kind.
const JOBS: usize = 14;
const SOURCE: &str = "sources: {shop: {verify: stripe, secret: a-secret-between-the-provider-and-us}}\n\
                      queues: {orders: {source: shop, events: ['order.*']}}";
pub(crate) const QUEUES: [&str; 3] = ["work", "later", "orders"];

pub(crate) struct Scene {
    pub(crate) launch: Launch,
    /// Made once: that takes longer than many requests.
    pub(crate) client: Client,
    /// What each URL showed. A log may grow, all else stays.
    pub(crate) shown: BTreeMap<String, Value>,
    /// The payload of each job.
    pub(crate) payloads: BTreeMap<String, Value>,
    /// Jobs that wait to be received.
    pub(crate) queued: Vec<String>,
}

struct Making {
    client: Client,
    ids: Vec<String>,
}

impl Scene {
    pub(crate) async fn make() -> Scene {
        let launch = Launch::embedded().with_config(SOURCE);
        let mut server = launch.start().await;
        let mut making = Making { client: server.client(), ids: Vec::new() };
        making.fill().await;
        let scene = Scene::record(launch, &making).await;
        assert!(server.terminate().await.success());
        scene
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.launch.data.clone()
    }

    async fn record(launch: Launch, making: &Making) -> Scene {
        let client = &making.client;
        let (mut shown, mut payloads, mut queued) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut events: Vec<String> = Vec::new();
        for item in client.get("/v1/events?limit=200").await.unwrap().expect(200)["items"].as_array().unwrap() {
            events.push(format!("/v1/events/{}", item["id"].as_str().unwrap()));
        }
        let jobs = client.get("/v1/jobs?limit=200").await.unwrap().expect(200);
        assert!(jobs["nextCursor"].is_null(), "all jobs are on one page");
        for job in jobs["items"].as_array().unwrap() {
            let id = job["id"].as_str().unwrap().to_owned();
            let full = client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
            if full["status"] == "queued" {
                queued.push(id.clone());
            }
            payloads.insert(id.clone(), full["payload"].clone());
            for part in ["", "/events?limit=200", "/result", "/checkpoint", "/sections?limit=200"] {
                let path = format!("/v1/jobs/{id}{part}");
                let reply = client.get(&path).await.unwrap();
                if reply.status == 200 {
                    shown.insert(path, reply.body);
                }
            }
        }
        for path in events {
            let body = client.get(&path).await.unwrap().expect(200);
            shown.insert(path, body);
        }
        assert!(making.ids.iter().all(|id| payloads.contains_key(id)), "every acknowledged job is listed");
        Scene { launch, client: client.clone(), shown, payloads, queued }
    }
}

impl Making {
    async fn fill(&mut self) {
        for queue in ["work", "later"] {
            let settings = json!({"maxAttempts": 1, "visibilityTimeout": 7200});
            let made = self.client.put(&format!("/v1/queues/{queue}"), settings).await.unwrap();
            assert!(made.status < 300, "{}", made.body);
        }
        for number in 0..JOBS {
            self.finished(number).await;
            self.failed(number).await;
            self.running(number).await;
        }
        for number in 0..2 * JOBS {
            self.publish("work", number, json!({})).await;
            self.publish("later", number, json!({"delay": 86_400})).await;
            let body = json!({"order": number, "lines": "ab ".repeat(number * 20)});
            let path = format!("/events/shop/order.n{number}");
            let reply = self.client.post(&path, body).await.unwrap().expect(200);
            assert_eq!(reply["jobs_created"], 1);
        }
    }

    /// A job with a payload between some bytes and some pages.
    async fn publish(&mut self, queue: &str, number: usize, more: Value) -> String {
        let mut body = json!({
            "payload": {"number": number, "text": format!("{queue}-{number}-").repeat(1 + number * number * 3)},
            "tags": {"kind": queue},
            "idempotencyKey": format!("{queue}-{number}-{}", self.ids.len()),
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = self.client.post(&format!("/v1/queues/{queue}/jobs"), body).await.unwrap().expect(202);
        let id = reply["id"].as_str().unwrap().to_owned();
        self.ids.push(id.clone());
        id
    }

    /// Published and received at once, so that it is the one that is handed out.
    async fn begin(&mut self, number: usize) -> (String, String) {
        let id = self.publish("work", number, json!({})).await;
        let reply = self.client.post("/v1/queues/work/receive", json!({"batch": 1, "wait": 30})).await.unwrap();
        let job = reply.expect(200)["jobs"][0].clone();
        assert_eq!(job["id"], json!(id));
        (id, job["lease"].as_str().unwrap().to_owned())
    }

    async fn call(&self, (id, lease): (&str, &str), method: Method, rest: &str, body: &Value) -> Reply {
        let request = self.client.request(method, &format!("/v1/jobs/{id}/{rest}"));
        self.client.send(request.header("x-outlast-lease", lease).json(body)).await.unwrap()
    }

    /// With output, a checkpoint, sections and a result.
    async fn finished(&mut self, number: usize) {
        let (id, lease) = self.begin(number).await;
        self.work(&id, &lease, number).await;
        let result = json!({"result": {"number": number, "words": "done ".repeat(number * 30)}, "lease": lease});
        self.client.post(&format!("/v1/jobs/{id}/ack"), result).await.unwrap().expect(200);
    }

    async fn failed(&mut self, number: usize) {
        let (id, lease) = self.begin(number).await;
        let error = json!({"lease": lease, "reason": format!("it broke {number} times")});
        self.client.post(&format!("/v1/jobs/{id}/nack"), error).await.unwrap().expect(200);
    }

    async fn running(&mut self, number: usize) {
        let (id, lease) = self.begin(number).await;
        self.work(&id, &lease, number).await;
    }

    async fn work(&self, id: &str, lease: &str, number: usize) {
        for line in 0..=number % 4 {
            let text = json!({"text": format!("line {line} of {id}: {}", "word ".repeat(60))});
            self.call((id, lease), Method::POST, "output", &text).await.expect(200);
        }
        let data = json!({"schemaVersion": 1, "data": {"step": number, "seen": "x".repeat(number * 40)}});
        self.call((id, lease), Method::PUT, "checkpoint", &data).await.expect(200);
        for section in 0..number % 3 {
            let value = json!({"section": section, "text": format!("part of {id} ").repeat(20)});
            self.call((id, lease), Method::PUT, &format!("sections/s{section}"), &value).await.expect(200);
        }
    }
}
