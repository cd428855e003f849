//! A store with jobs of all kinds and states, made through the real server, and everything that it showed of them
//! before it was killed. One half of it is in the database, the other half only in the log; a second copy was stopped
//! cleanly.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Launch;
use reqwest::Method;
use serde_json::{Value, json};

/// Jobs of each kind, half of them before the last start.
const JOBS: usize = 14;
/// Bytes of the results and checkpoints that are objects: in one chunk and in two.
const OBJECT_BYTES: [usize; 4] = [40, 5_000, 70_000, 1_200_000];
const SOURCE: &str = "sources: {shop: {verify: stripe, secret: a-secret-between-the-provider-and-us}}\n\
                      queues: {orders: {source: shop, events: ['order.*']}}";
pub(crate) const QUEUES: [&str; 4] = ["begun", "work", "later", "orders"];
/// The URLs that show a job.
const PARTS: [&str; 6] = ["", "/events?limit=200", "/result", "/checkpoint", "/checkpoint/blob", "/sections?limit=200"];

/// How the server ended before the injury.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Killed,
    Stopped,
}

pub(crate) struct Scene {
    pub(crate) launch: Launch,
    /// Made once: that takes longer than many requests.
    pub(crate) client: Client,
    /// The response of each URL. A log may grow; everything else stays.
    pub(crate) shown: BTreeMap<String, Value>,
    /// The payload of each job.
    pub(crate) payloads: BTreeMap<String, Value>,
    /// Jobs that wait to be received.
    pub(crate) queued: Vec<String>,
    /// Keys that may read.
    pub(crate) keys: Vec<String>,
}

struct Making {
    client: Client,
    ids: Vec<String>,
    keys: Vec<String>,
}

impl Scene {
    pub(crate) async fn make() -> Scene {
        let launch = Launch::embedded().with_config(SOURCE);
        let mut server = launch.start().await;
        let mut making = Making { client: server.client(), ids: Vec::new(), keys: Vec::new() };
        making.queues().await;
        making.fill(0).await;
        assert!(server.terminate().await.success());
        server = launch.start().await;
        making.client = server.client();
        making.fill(JOBS / 2).await;
        let scene = Scene::record(launch, making).await;
        server.kill9().await;
        let stopped = scene.directory(Ending::Stopped);
        copy(&scene.directory(Ending::Killed), &stopped);
        assert!(scene.launch.clone().on(&stopped).start().await.terminate().await.success());
        scene
    }

    pub(crate) fn directory(&self, ending: Ending) -> PathBuf {
        match ending {
            Ending::Killed => self.launch.data.clone(),
            Ending::Stopped => self.launch.scratch().join("stopped"),
        }
    }

    async fn record(launch: Launch, making: Making) -> Scene {
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
            for part in PARTS {
                let path = format!("/v1/jobs/{id}{part}");
                let reply = client.get(&path).await.unwrap();
                if reply.status == 200 {
                    shown.insert(path, reply.body);
                }
            }
        }
        for path in events.into_iter().chain(QUEUES.map(|queue| format!("/v1/queues/{queue}"))) {
            let body = client.get(&path).await.unwrap().expect(200);
            shown.insert(path, body);
        }
        assert!(making.ids.iter().all(|id| payloads.contains_key(id)), "every acknowledged job is listed");
        Scene { launch, client: making.client, shown, payloads, queued, keys: making.keys }
    }
}

impl Making {
    async fn queues(&self) {
        for queue in ["begun", "work", "later"] {
            let settings = json!({"maxAttempts": 1, "visibilityTimeout": 7200});
            let made = self.client.put(&format!("/v1/queues/{queue}"), settings).await.unwrap();
            assert!(made.status < 300, "{}", made.body);
        }
    }

    async fn fill(&mut self, first: usize) {
        let key = json!({"name": format!("reader {first}"), "scopes": ["read"]});
        let made = self.client.post("/v1/keys", key).await.unwrap().expect(201);
        self.keys.push(made["key"].as_str().unwrap().to_owned());
        for number in first..first + JOBS / 2 {
            self.finished(number).await;
            self.failed(number).await;
            self.running(number).await;
        }
        for (number, length) in OBJECT_BYTES.into_iter().enumerate() {
            self.finished_with_object(number, length).await;
            self.running_with_object(number, length).await;
        }
        for number in 2 * first..2 * first + JOBS {
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
        let id = self.publish("begun", number, json!({})).await;
        let reply = self.client.post("/v1/queues/begun/receive", json!({"batch": 1, "wait": 30})).await.unwrap();
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

    async fn finished_with_object(&mut self, number: usize, length: usize) {
        let (id, lease) = self.begin(number).await;
        self.upload((&id, &lease), "result", length).await.expect(201);
        self.client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": lease})).await.unwrap().expect(200);
    }

    async fn running_with_object(&mut self, number: usize, length: usize) {
        let (id, lease) = self.begin(number).await;
        self.upload((&id, &lease), "checkpoint/blob?schemaVersion=1", length).await.expect(200);
    }

    async fn upload(&self, (id, lease): (&str, &str), rest: &str, length: usize) -> Reply {
        let text: String =
            (0..).flat_map(|line| format!("line {line} of {id}\n").into_bytes()).take(length).map(char::from).collect();
        let request = self.client.request(Method::PUT, &format!("/v1/jobs/{id}/{rest}"));
        let request = request.header("x-outlast-lease", lease).header("content-type", "text/plain");
        self.client.send(request.body(text)).await.unwrap()
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

/// Files keep their mode, which is private.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory can be made");
    fs::set_permissions(to, fs::metadata(from).expect("it is there").permissions()).expect("its mode can be set");
    for entry in fs::read_dir(from).expect("the directory can be listed") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::copy(entry.path(), target).map(|_| ()).expect("a file can be copied"),
        }
    }
}
