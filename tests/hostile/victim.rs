//! The tenant that must not notice: it publishes, receives, heartbeats and acks all the time, and notes every refusal
//! and how long each call took.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::arena::text;

/// Lines of work at the same time.
const LINES: usize = 3;
/// Between two rounds of a line: the victim is busy, not greedy.
const PAUSE: Duration = Duration::from_millis(15);

pub(crate) struct Victim {
    noted: Arc<Mutex<Report>>,
    lines: JoinSet<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    took: Vec<Duration>,
    /// The failure in place of an answer, and its call.
    pub(crate) refusals: Vec<String>,
}

impl Victim {
    pub(crate) async fn begin(client: Client) -> Victim {
        let noted: Arc<Mutex<Report>> = Arc::default();
        let mut lines = JoinSet::new();
        for line in 0..LINES {
            // Each line has a queue of its own, so that it receives what it published.
            let queue = format!("line{line}");
            let made = client.put(&format!("/v1/queues/{queue}"), json!({})).await.unwrap();
            assert!(matches!(made.status, 200 | 201), "{made:?}");
            lines.spawn(work(client.clone(), queue, Arc::clone(&noted)));
        }
        Victim { noted, lines }
    }

    /// The measurements of this time, of at least one call.
    pub(crate) async fn watch(&self, time: Duration) -> Report {
        drop(self.take());
        let stopwatch = Stopwatch::start();
        wait::until_now("the victim to be watched", time * 20 + Duration::from_secs(60), || {
            let has_calls = !self.noted.lock().unwrap().took.is_empty();
            (stopwatch.elapsed() >= time && has_calls).then_some(())
        })
        .await;
        self.take()
    }

    fn take(&self) -> Report {
        std::mem::take(&mut self.noted.lock().unwrap())
    }

    pub(crate) async fn end(mut self) {
        self.lines.shutdown().await;
    }
}

impl Report {
    pub(crate) fn add(&mut self, other: Report) {
        self.took.extend(other.took);
        self.refusals.extend(other.refusals);
    }

    pub(crate) fn calls(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn p99(&self) -> Duration {
        let mut took = self.took.clone();
        took.sort_unstable();
        let place = (took.len() * 99 / 100).min(took.len().saturating_sub(1));
        took.get(place).copied().unwrap_or_default()
    }
}

async fn work(client: Client, queue: String, noted: Arc<Mutex<Report>>) {
    loop {
        round(&client, &queue, &noted).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// One job from its publish to its end; `None` where a call was refused.
async fn round(client: &Client, queue: &str, noted: &Mutex<Report>) -> Option<()> {
    call(client, &format!("/v1/queues/{queue}/jobs"), json!({"payload": "x".repeat(500)}), noted).await?;
    let received = call(client, &format!("/v1/queues/{queue}/receive"), json!({"wait": 5}), noted).await?;
    let job = &received["jobs"][0];
    if job.is_null() {
        noted.lock().unwrap().refusals.push("a published job was not handed out".to_owned());
        return None;
    }
    let (id, lease) = (text(&job["id"]), json!({"lease": job["lease"]}));
    call(client, &format!("/v1/jobs/{id}/heartbeat"), lease.clone(), noted).await?;
    call(client, &format!("/v1/jobs/{id}/ack"), lease, noted).await?;
    Some(())
}

async fn call(client: &Client, path: &str, body: Value, noted: &Mutex<Report>) -> Option<Value> {
    let stopwatch = Stopwatch::start();
    let reply = client.post(path, body).await;
    let took = stopwatch.charged();
    let mut noted = noted.lock().unwrap();
    noted.took.push(took);
    match reply {
        Ok(reply) if (200..300).contains(&reply.status) => Some(reply.body),
        Ok(reply) => {
            noted.refusals.push(format!("{path}: {} {}", reply.status, reply.body));
            None
        }
        Err(lost) => {
            noted.refusals.push(format!("{path}: {}", lost.0));
            None
        }
    }
}
