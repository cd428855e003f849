//! The account of deliveries: holds what a sink saw against what the server tells about each job. It trusts no counter
//! of the job; what it counts are the requests at the sink and the endings in the job's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http::Client;
use crate::sink::Arrival;

/// Reads in flight at once; enough to keep the server busy.
const READERS: usize = 8;
/// More events than any job of these rigs has.
const EVENTS_MAX: usize = 200;

/// One acknowledged job, as the server shows it in the end.
#[derive(Debug, Clone)]
pub struct Told {
    pub id: String,
    pub job: Value,
    pub events: Vec<Value>,
}

/// Everything that is known on the outside.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub jobs: Vec<Told>,
    pub deliveries: Vec<Arrival>,
    pub callbacks: Vec<Arrival>,
    /// Jobs whose endpoint only takes receipt: they succeed by ack.
    pub by_ack: BTreeSet<String>,
    /// Jobs for which an ack was sent, whatever became of it.
    pub acks_sent: BTreeSet<String>,
    /// Jobs whose ack was accepted.
    pub acks_accepted: BTreeSet<String>,
}

/// Reads jobs with their whole log.
pub async fn read(client: &Client, ids: &[String]) -> Vec<Told> {
    let mut readers = JoinSet::new();
    for part in ids.chunks(ids.len().div_ceil(READERS).max(1)) {
        let (client, part) = (client.clone(), part.to_vec());
        readers.spawn(async move {
            let mut told = Vec::new();
            for id in part {
                let job = client.get(&format!("/v1/jobs/{id}")).await.expect("the server answers").body;
                let path = format!("/v1/jobs/{id}/events?after=0&limit={EVENTS_MAX}");
                let events = client.get(&path).await.expect("the server answers").body;
                let events = events["items"].as_array().cloned().unwrap_or_default();
                told.push(Told { id, job, events });
            }
            told
        });
    }
    readers.join_all().await.into_iter().flatten().collect()
}

impl Told {
    /// The records of hand-outs that have ended.
    pub fn attempts(&self) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(|event| event["type"] == "attempt")
    }

    /// How many hand-outs ended like this.
    pub fn endings(&self, outcome: &str) -> usize {
        self.attempts().filter(|attempt| attempt["outcome"] == outcome).count()
    }

    /// How long those hand-outs lasted that ended like this, from their claim on.
    pub fn lasted(&self, outcome: &str) -> Vec<Duration> {
        let such = self.attempts().filter(|attempt| attempt["outcome"] == outcome);
        such.filter_map(|attempt| attempt["durationMs"].as_u64()).map(Duration::from_millis).collect()
    }

    fn free_endings(&self) -> usize {
        self.endings("deferred") + self.endings("released")
    }

    pub fn status(&self) -> &str {
        self.job["status"].as_str().unwrap_or("gone")
    }
}

impl Account {
    /// Every broken promise, in words that name the job.
    pub fn violations(&self) -> Vec<String> {
        let deliveries = by_job(&self.deliveries);
        let callbacks = by_job(&self.callbacks);
        let mut violations = Vec::new();
        for told in &self.jobs {
            let requests = deliveries.get(told.id.as_str()).map_or(&[][..], Vec::as_slice);
            let copies = callbacks.get(told.id.as_str()).map_or(&[][..], Vec::as_slice);
            let rules = [self.ending(told, requests), log(told), requests_fit(told, requests), callback(told, copies)];
            for violation in rules.into_iter().filter_map(Result::err) {
                violations.push(format!("{violation}: job {} is {}, log {}", told.id, told.job, json!(told.events)));
            }
        }
        violations
    }

    /// I-01, I-03, I-27: delivered, or failed with evidence; never neither.
    fn ending(&self, told: &Told, requests: &[&Arrival]) -> Result<(), String> {
        let is_done = |arrival: &&Arrival| matches!(arrival.answered, Some(200 | 201 | 204));
        let was_answered = !self.by_ack.contains(&told.id) && requests.iter().any(is_done);
        let last = told.attempts().last();
        if self.acks_accepted.contains(&told.id) && told.status() != "succeeded" {
            return Err("I-03: its ack was accepted, and it has not succeeded".to_owned());
        }
        match told.status() {
            "succeeded" if was_answered || self.acks_sent.contains(&told.id) => Ok(()),
            "succeeded" => Err("I-27: it has succeeded without a success of the endpoint".to_owned()),
            "failed" => {
                let evidence = last.is_some_and(|last| !last["error"].is_null() || !last["statusCode"].is_null());
                let reason = told.job["error"]["reason"].as_str().unwrap_or_default();
                let charged = told.attempts().count() - told.free_endings();
                let max = told.job["maxAttempts"].as_u64().unwrap_or(0) as usize;
                match (evidence, reason) {
                    (false, _) | (_, "") => Err("I-27: it has failed without evidence".to_owned()),
                    (_, "attempts_exhausted") if charged != max => Err(format!("I-17: it gave up after {charged}")),
                    _ => Ok(()),
                }
            }
            other => Err(format!("I-01, I-27: it ends as {other}")),
        }
    }
}

fn by_job(arrivals: &[Arrival]) -> BTreeMap<&str, Vec<&Arrival>> {
    let mut map: BTreeMap<&str, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        map.entry(&arrival.job).or_default().push(arrival);
    }
    map
}

/// I-16, I-17: the log has no gap and one end, and no more hand-outs than attempts and free endings.
fn log(told: &Told) -> Result<(), String> {
    let is_gapless = told.events.iter().zip(1..).all(|(event, seq)| event["seq"] == json!(seq));
    if !is_gapless {
        return Err("the log has a gap".to_owned());
    }
    let is_end = |event: &&Value| matches!(event["to"].as_str(), Some("succeeded" | "failed" | "cancelled"));
    let ends = told.events.iter().filter(is_end).count();
    if ends != 1 {
        return Err(format!("I-16: it ended {ends} times"));
    }
    let max = told.job["maxAttempts"].as_u64().unwrap_or(0) as usize;
    let hand_outs = told.attempts().count();
    if hand_outs > max + told.free_endings() {
        return Err(format!("I-17: {hand_outs} hand-outs, {max} attempts and {} free endings", told.free_endings()));
    }
    Ok(())
}

/// I-17, F27: every request belongs to a hand-out of its own, and all up to a replay carry the same `webhook-id`.
fn requests_fit(told: &Told, requests: &[&Arrival]) -> Result<(), String> {
    let leases: BTreeSet<&str> = requests.iter().map(|arrival| arrival.lease.as_str()).collect();
    if leases.len() != requests.len() || leases.contains("") {
        return Err("I-17: two requests of one hand-out".to_owned());
    }
    if requests.iter().any(|arrival| arrival.webhook_id != told.id) {
        return Err("F27: a redelivery has another webhook-id".to_owned());
    }
    let last = told.job["attempt"].as_u64().unwrap_or(0);
    for number in 1..=last {
        let sent = requests.iter().filter(|arrival| arrival.attempt == number).count();
        let ended = told.attempts().filter(|attempt| attempt["number"] == json!(number)).count();
        if sent > ended {
            return Err(format!("I-17: attempt {number} was sent {sent} times and ended {ended} times"));
        }
    }
    match requests.iter().find(|arrival| arrival.attempt > last) {
        Some(arrival) => Err(format!("I-17: attempt {} was sent and is not in the log", arrival.attempt)),
        None => Ok(()),
    }
}

/// I-28: a callback is sent at least once, always equal, and matches the end of the job; never without a callback URL.
fn callback(told: &Told, copies: &[&Arrival]) -> Result<(), String> {
    if told.job["callback"].is_null() {
        return match copies {
            [] => Ok(()),
            _ => Err("I-28: a callback of a job without a callback URL".to_owned()),
        };
    }
    let Some(first) = copies.first() else {
        return Err("I-28: its callback is missing".to_owned());
    };
    if copies.iter().any(|copy| copy.body != first.body || copy.webhook_id != first.webhook_id) {
        return Err("I-28: copies of its callback differ".to_owned());
    }
    let is_same = |field: &str| first.body[field] == told.job[field];
    if !["id", "queue", "status", "replays", "finishedAt"].into_iter().all(is_same) {
        return Err(format!("I-28: its callback says {}", first.body));
    }
    match told.job["callback"]["status"].as_str() {
        Some("succeeded") => Ok(()),
        other => Err(format!("I-28: its callback was taken and is {other:?}")),
    }
}

#[cfg(test)]
mod planted;
