//! Starts an injured store, reads everything back, receives and acks what waits, starts it once more, and says whether
//! all of that was right. A start that is refused is repeated with `--accept-loss`: then data may be missing, and none
//! may be wrong.

use std::collections::BTreeSet;

use outlast_tests::http::{Client, Reply};
use outlast_tests::server::{Launch, Server};
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
    /// The start was refused, with a message that names the damage, and went on with `--accept-loss`.
    Refused(String),
    /// It was refused with `--accept-loss`, too.
    RefusedForGood(String),
    Wrong(String),
}

impl Verdict {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Verdict::Unnoticed => "unnoticed",
            Verdict::Said => "said",
            Verdict::Refused(_) => "refused",
            Verdict::RefusedForGood(_) => "refused for good",
            Verdict::Wrong(_) => "WRONG",
        }
    }
}

pub(crate) async fn judge(launch: &Launch, scene: &Scene) -> Verdict {
    match start(launch).await {
        Ok(server) => judge_running(launch, server, scene).await.unwrap_or_else(Verdict::Wrong),
        Err(Refusal::Unclear(log)) => Verdict::Wrong(format!("the start failed and did not name damage: {log}")),
        Err(Refusal::Damage(message)) => match start(&launch.clone().with_flag("--accept-loss")).await {
            Err(Refusal::Unclear(log)) => Verdict::Wrong(format!("with --accept-loss the start failed: {log}")),
            Err(Refusal::Damage(message)) => Verdict::RefusedForGood(message),
            Ok(server) => match judge_rest(launch, server, scene).await {
                Ok(()) => Verdict::Refused(message),
                Err(what) => Verdict::Wrong(format!("with --accept-loss after {message:?}: {what}")),
            },
        },
    }
}

enum Refusal {
    /// It names the damage.
    Damage(String),
    Unclear(String),
}

async fn start(launch: &Launch) -> Result<Server, Refusal> {
    launch.try_start().await.map_err(|early| {
        let message = early.log.lines().last().unwrap_or_default();
        match DAMAGE_WORDS.iter().any(|word| message.contains(word)) {
            true => Refusal::Damage(message.to_owned()),
            false => Refusal::Unclear(early.log),
        }
    })
}

/// A server that started as if nothing were missing.
async fn judge_running(launch: &Launch, mut server: Server, scene: &Scene) -> Result<Verdict, String> {
    let mut look = Look::at(&server, scene, Expect::Everything);
    look.all(&mut server).await?;
    let has_said = look.has_said || damage_counted(&look.client).await > 0;
    server.kill9().await;
    match (look.missing.is_empty(), has_said) {
        (_, true) => start_again(launch).await.map(|()| Verdict::Said),
        (true, false) => Ok(Verdict::Unnoticed),
        (false, false) => Err(format!("missing without a word: {}", look.missing.join(", "))),
    }
}

/// A server that was started with `--accept-loss`.
async fn judge_rest(launch: &Launch, mut server: Server, scene: &Scene) -> Result<(), String> {
    if !server.log().contains("ERROR") {
        return Err(format!("a loss is an error in the log: {}", server.log()));
    }
    Look::at(&server, scene, Expect::Rest).all(&mut server).await?;
    server.kill9().await;
    start_again(launch).await
}

/// Reads, hand-outs and acks in an injured store must not keep it from starting.
async fn start_again(launch: &Launch) -> Result<(), String> {
    match start(launch).await {
        Ok(mut server) => {
            server.kill9().await;
            Ok(())
        }
        Err(Refusal::Damage(message) | Refusal::Unclear(message)) => Err(format!("it does not start again: {message}")),
    }
}

async fn damage_counted(client: &Client) -> u64 {
    let Ok(reply) = client.get("/metrics").await else { return 0 };
    let text = reply.body.as_str().unwrap_or_default();
    let count = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    count("outlast_damaged_rows ").unwrap_or(0) + count("outlast_objects_damaged_total ").unwrap_or(0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Everything,
    /// The stored value may be older, but must be right.
    Rest,
}

struct Look<'s> {
    client: Client,
    scene: &'s Scene,
    expect: Expect,
    /// Missing data, which is right only if the server reports damage.
    missing: Vec<String>,
    has_said: bool,
}

impl<'s> Look<'s> {
    fn at(server: &Server, scene: &'s Scene, expect: Expect) -> Look<'s> {
        Look { client: scene.client.at(&server.base), scene, expect, missing: Vec::new(), has_said: false }
    }

    /// `Err` is a wrong answer, or a server that has ended.
    async fn all(&mut self, server: &mut Server) -> Result<(), String> {
        let looked = self.everything().await;
        let log: String = server.log().lines().rev().take(5).collect::<Vec<_>>().join("\n");
        looked.map_err(|what| format!("{what}\n{log}"))?;
        match server.is_running() {
            true => Ok(()),
            false => Err(format!("the server ended:\n{log}")),
        }
    }

    async fn everything(&mut self) -> Result<(), String> {
        for (path, expected) in &self.scene.shown {
            if let Some(body) = self.get(path).await? {
                self.compare(path, &body, expected)?;
            }
        }
        for key in &self.scene.keys {
            self.try_key(key).await?;
        }
        self.list().await?;
        self.receive().await
    }

    /// The body of a success; `None` where it is missing or damaged.
    async fn get(&mut self, path: &str) -> Result<Option<Value>, String> {
        let reply = match self.client.get(path).await {
            Ok(reply) => reply,
            // Damage in the middle of an object cuts the answer; from then on it is refused.
            Err(_) if is_object(path) => {
                let again = self.client.get(path).await.map_err(|lost| format!("{path}: cut again: {}", lost.0))?;
                match DAMAGE_CODES.contains(&again.code()) {
                    true => again,
                    false => return Err(format!("{path}: an answer was cut, and then {} came", again.status)),
                }
            }
            Err(lost) => return Err(format!("{path}: no answer: {}", lost.0)),
        };
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
            // A job that was finished may be waiting again.
            409 if self.expect == Expect::Rest => Ok(None),
            status => Err(format!("{path}: {status} {}", reply.body)),
        }
    }

    /// A key that is damaged does not work, and none does more than it may.
    async fn try_key(&mut self, key: &str) -> Result<(), String> {
        let mut client = self.client.clone();
        client.key = key.to_owned();
        let read = client.get("/v1/queues/work").await.map_err(|lost| lost.0)?;
        match read.status {
            401 => self.missing.push("a key".to_owned()),
            _ => drop(self.body("a read with a key", read)?),
        }
        let write = client.post("/v1/queues/work/jobs", json!({"payload": 1})).await.map_err(|lost| lost.0)?;
        match write.status {
            401 | 403 => Ok(()),
            status => Err(format!("a key that may read was allowed to publish: {status}")),
        }
    }

    async fn list(&mut self) -> Result<(), String> {
        let mut listed = BTreeSet::new();
        let mut path = "/v1/jobs?limit=200".to_owned();
        while let Some(page) = self.get(&path).await? {
            for job in page["items"].as_array().into_iter().flatten() {
                let id = job["id"].as_str().unwrap_or_default();
                match self.scene.payloads.get(id) {
                    None => return Err(format!("the list has a job that was never published: {job}")),
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

    /// A running job's times may move with the start, and a log may grow; what users gave stays.
    fn compare(&mut self, path: &str, body: &Value, expected: &Value) -> Result<(), String> {
        let differs =
            |what: &str, found: &Value, expected: &Value| Err(format!("{path}: {what} is {found}, was {expected}"));
        if path.contains("/events?") || path.contains("/sections?") {
            let (found, was) = (items(body), items(expected));
            if found.starts_with(&was) {
                return Ok(());
            }
            // The later of two logs may tell of what this start did.
            let is_kin = self.expect == Expect::Rest && found.iter().zip(&was).all(|(found, was)| kin(found, was));
            if !is_kin && !found.iter().all(|item| was.contains(item)) {
                return differs("the list", body, expected);
            }
            self.missing.push(format!("a part of {path}"));
            return Ok(());
        }
        let is_job = expected.get("status").is_some() && expected.get("queue").is_some();
        let fields = match (is_job, self.expect) {
            (true, Expect::Everything) => &JOB_FIELDS[..],
            (true, Expect::Rest) => &JOB_FIELDS[..JOB_FIXED],
            (false, Expect::Everything) if path.starts_with("/v1/queues/") => &QUEUE_FIELDS,
            // A lost queue of the file is created again.
            (false, Expect::Rest) if path.starts_with("/v1/queues/") => &QUEUE_FIELDS[..QUEUE_FIXED],
            _ if body == expected => return Ok(()),
            _ => return differs("the answer", body, expected),
        };
        for field in fields {
            if body[field] != expected[field] {
                return differs(field, &body[field], &expected[field]);
            }
        }
        Ok(())
    }
}

/// First the fields that never change, then the others.
const JOB_FIELDS: [&str; 9] =
    ["id", "queue", "payload", "tags", "idempotencyKey", "createdAt", "priority", "status", "attempt"];
const JOB_FIXED: usize = 7;
const QUEUE_FIELDS: [&str; 6] = ["name", "mode", "maxAttempts", "visibilityTimeout", "paused", "createdAt"];
const QUEUE_FIXED: usize = 5;

/// Events of the same number may differ where a lease ran out in the one log and an ack came in the other.
fn kin(found: &Value, was: &Value) -> bool {
    found["seq"] == was["seq"]
}

fn is_object(path: &str) -> bool {
    path.ends_with("/result") || path.ends_with("/checkpoint/blob")
}

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().cloned().unwrap_or_default()
}
