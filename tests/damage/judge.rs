//! Starts an injured store, reads everything back, receives and acks what waits, and says whether that was right.

use std::collections::BTreeSet;

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Launch;
use serde_json::{Value, json};

use crate::scene::{QUEUES, Scene};

/// Codes that say: this is damaged, and you do not get it.
const DAMAGE_CODES: [&str; 3] = ["data_damaged", "result_damaged", "result_missing"];
/// One of these is in the message of a start that is refused for damage.
const DAMAGE_WORDS: [&str; 3] = ["damaged", "lost", "missing"];
/// Enough to receive everything, and an end where a server hands out for ever.
const RECEIVES_MAX: usize = 40;

#[derive(Debug)]
pub(crate) enum Verdict {
    /// It struck nothing that matters.
    Unnoticed,
    /// The server said that something is damaged.
    Said,
    /// The start was refused, with a message that names the damage.
    Refused(String),
    Wrong(String),
}

impl Verdict {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Verdict::Unnoticed => "unnoticed",
            Verdict::Said => "said",
            Verdict::Refused(_) => "refused",
            Verdict::Wrong(_) => "WRONG",
        }
    }
}

pub(crate) async fn judge(launch: &Launch, scene: &Scene) -> Verdict {
    let mut server = match launch.try_start().await {
        Ok(server) => server,
        Err(early) => {
            let message = early.log.lines().last().unwrap_or_default();
            return match DAMAGE_WORDS.iter().any(|word| message.contains(word)) {
                true => Verdict::Refused(message.to_owned()),
                false => Verdict::Wrong(format!("the start failed and did not name damage: {}", early.log)),
            };
        }
    };
    let mut look = Look { client: scene.client.at(&server.base), scene, missing: Vec::new(), has_said: false };
    let looked = look.everything().await;
    let damaged = server.is_running() && damaged_rows(&look.client).await > 0;
    let (missing, has_said) = (look.missing, look.has_said || damaged);
    if let Err(what) = looked {
        let log: String = server.log().lines().rev().take(5).collect::<Vec<_>>().join("\n");
        return Verdict::Wrong(format!("{what}\n{log}"));
    }
    if !server.is_running() {
        return Verdict::Wrong(format!("the server ended:\n{}", server.log()));
    }
    server.kill9().await;
    match (missing.is_empty(), has_said) {
        (_, true) => Verdict::Said,
        (true, false) => Verdict::Unnoticed,
        (false, false) => Verdict::Wrong(format!("missing without a word: {}", missing.join(", "))),
    }
}

async fn damaged_rows(client: &Client) -> u64 {
    let Ok(reply) = client.get("/metrics").await else { return 0 };
    let text = reply.body.as_str().unwrap_or_default().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("outlast_damaged_rows "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

struct Look<'s> {
    client: Client,
    scene: &'s Scene,
    /// What is not there, which is right only if the server says that something is damaged.
    missing: Vec<String>,
    has_said: bool,
}

impl Look<'_> {
    /// `Err` is a wrong answer.
    async fn everything(&mut self) -> Result<(), String> {
        for (path, expected) in &self.scene.shown {
            if let Some(body) = self.get(path).await? {
                let is_log = path.contains("/events?");
                compare(path, &body, expected, is_log)?;
            }
        }
        self.list().await?;
        self.receive().await
    }

    /// The body of a success; `None` where it is missing or damaged.
    async fn get(&mut self, path: &str) -> Result<Option<Value>, String> {
        let reply = self.client.get(path).await.map_err(|lost| format!("{path}: no answer: {}", lost.0))?;
        self.body(path, reply)
    }

    fn body(&mut self, path: &str, reply: Reply) -> Result<Option<Value>, String> {
        match reply.status {
            200 | 202 => Ok(Some(reply.body)),
            404 => {
                self.missing.push(path.to_owned());
                Ok(None)
            }
            _ if DAMAGE_CODES.contains(&reply.code()) => {
                self.has_said = true;
                Ok(None)
            }
            status => Err(format!("{path}: {status} {}", reply.body)),
        }
    }

    async fn list(&mut self) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        let mut path = "/v1/jobs?limit=200".to_owned();
        while let Some(page) = self.get(&path).await? {
            for job in page["items"].as_array().into_iter().flatten() {
                let id = job["id"].as_str().unwrap_or_default();
                match self.scene.payloads.get(id) {
                    None => return Err(format!("the list has a job that nobody published: {job}")),
                    Some(_) => listed.insert(id.to_owned()),
                };
            }
            match page["nextCursor"].as_str() {
                Some(cursor) => path = format!("/v1/jobs?limit=200&cursor={cursor}"),
                None => break,
            }
        }
        let missing = self.scene.payloads.keys().filter(|id| !listed.contains(*id));
        self.missing.extend(missing.map(|id| format!("{id} in the list")));
        Ok(())
    }

    /// Takes and finishes all that waits.
    async fn receive(&mut self) -> Result<(), String> {
        let mut received = BTreeSet::new();
        for queue in QUEUES {
            for _ in 0..RECEIVES_MAX {
                let path = format!("/v1/queues/{queue}/receive");
                let reply = self.client.post(&path, json!({"batch": 20})).await;
                let reply = reply.map_err(|lost| format!("{path}: no answer: {}", lost.0))?;
                let Some(page) = self.body(&path, reply)? else { break };
                let jobs = page["jobs"].as_array().cloned().unwrap_or_default();
                if jobs.is_empty() {
                    break;
                }
                for job in &jobs {
                    received.insert(self.finish(job).await?);
                }
            }
        }
        let missing = self.scene.queued.iter().filter(|id| !received.contains(*id));
        self.missing.extend(missing.map(|id| format!("{id} among those handed out")));
        Ok(())
    }

    async fn finish(&mut self, job: &Value) -> Result<String, String> {
        let id = job["id"].as_str().unwrap_or_default().to_owned();
        match self.scene.payloads.get(&id) {
            Some(payload) if *payload == job["payload"] => {}
            expected => return Err(format!("handed out {job}, expected the payload {expected:?}")),
        }
        let path = format!("/v1/jobs/{id}/ack");
        let reply = self.client.post(&path, json!({"lease": job["lease"]})).await;
        let reply = reply.map_err(|lost| format!("{path}: no answer: {}", lost.0))?;
        self.body(&path, reply)?;
        Ok(id)
    }
}

/// A running job's times may move with the start, and a log may grow; what users gave stays.
fn compare(path: &str, body: &Value, expected: &Value, is_log: bool) -> Result<(), String> {
    let differs =
        |what: &str, found: &Value, expected: &Value| Err(format!("{path}: {what} is {found}, was {expected}"));
    if is_log {
        let (found, was) = (list(body), list(expected));
        return match found.starts_with(&was) {
            true => Ok(()),
            false => differs("the log", body, expected),
        };
    }
    let is_job = expected.get("queue").is_some() && expected.get("status").is_some();
    if !is_job {
        return if body == expected { Ok(()) } else { differs("the answer", body, expected) };
    }
    for field in ["id", "queue", "payload", "tags", "idempotencyKey", "status", "createdAt", "attempt", "priority"] {
        if body[field] != expected[field] {
            return differs(field, &body[field], &expected[field]);
        }
    }
    Ok(())
}

fn list(page: &Value) -> Vec<Value> {
    page["items"].as_array().cloned().unwrap_or_default()
}
