//! Reads the state of the server after the load: the whole list of the queue, and each job by its id.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio::task::JoinSet;

use super::{Actor, QUEUE, Workload};
use crate::history::{Answer, Seen, Snapshot};
use crate::http::Client;

/// Reads in flight at once; enough to keep the server busy.
const READERS: usize = 8;

impl Workload {
    /// Everything a client knows of, and everything the server lists, read job by job.
    pub async fn snapshot(&self, client: &Client) -> Snapshot {
        let mut ids: BTreeSet<String> = listed(client, QUEUE).await.into_iter().collect();
        for operation in self.history() {
            match operation.answer {
                Answer::Published { job } => drop(ids.insert(job)),
                Answer::Received(claims) => ids.extend(claims.into_iter().map(|claim| claim.job)),
                _ => {}
            }
        }
        Snapshot {
            first_version: self.first_version,
            jobs: read_all(client, ids.into_iter().collect()).await,
            queues: self.queue_settings(client).await,
        }
    }

    async fn queue_settings(&self, client: &Client) -> BTreeMap<String, u64> {
        let mut settings = BTreeMap::new();
        for actor in &self.actors {
            let Actor::Publisher(publisher) = actor else {
                continue;
            };
            let queue = publisher.own_queue();
            let reply = client.get(&format!("/v1/queues/{queue}")).await.expect("the server answers");
            if let Some(retention) = reply.body["retention"].as_f64() {
                settings.insert(queue, retention as u64);
            }
        }
        settings
    }
}

/// The ids of all jobs of a queue, over all pages.
pub async fn listed(client: &Client, queue: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let after = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let path = format!("/v1/jobs?queue={queue}&limit=200{after}");
        let page = client.get(&path).await.expect("the server answers").expect(200);
        for job in page["items"].as_array().expect("a list has items") {
            ids.push(job["id"].as_str().expect("a job has an id").to_owned());
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return ids,
        }
    }
}

/// The job objects by id; a job that does not exist is left out.
pub async fn read_jobs(client: &Client, ids: Vec<String>) -> BTreeMap<String, Value> {
    let mut readers = JoinSet::new();
    let share = ids.len().div_ceil(READERS).max(1);
    for part in ids.chunks(share) {
        let (client, part) = (client.clone(), part.to_vec());
        readers.spawn(async move {
            let mut found = Vec::new();
            for id in part {
                let reply = client.get(&format!("/v1/jobs/{id}")).await.expect("the server answers");
                match reply.status {
                    404 => {}
                    _ => found.push((id, reply.expect(200))),
                }
            }
            found
        });
    }
    readers.join_all().await.into_iter().flatten().collect()
}

async fn read_all(client: &Client, ids: Vec<String>) -> BTreeMap<String, Seen> {
    let jobs = read_jobs(client, ids).await;
    jobs.into_iter().map(|(id, job)| (id, seen(&job))).collect()
}

fn seen(job: &Value) -> Seen {
    let number = |field: &str| job[field].as_u64().unwrap_or_else(|| panic!("no {field} in {job}"));
    let text = |field: &str| job[field].as_str().unwrap_or_else(|| panic!("no {field} in {job}")).to_owned();
    Seen {
        marker: text("idempotencyKey"),
        payload: job["payload"].clone(),
        status: text("status"),
        replays: number("replays"),
        attempt: number("attempt"),
        max_attempts: number("maxAttempts"),
        defer_count: number("deferCount"),
        version: number("version"),
    }
}
