//! A publisher of the mixed load. It also cancels its own waiting jobs, replays dead ones and changes its own queue.

use serde_json::{Value, json};

use super::{QUEUE, RETENTION_SECONDS, Recorder, Step, answer_of, read_change};
use crate::chance::Chance;
use crate::history::{Action, Answer};
use crate::http::Client;

/// Far enough for a delayed job to be still waiting when its cancel comes.
const DELAY_SECONDS: u64 = 3600;

pub(super) struct Publisher {
    number: u64,
    chance: Chance,
    pub(super) recorder: Recorder,
    published: u64,
    queue_changes: u64,
    /// Own jobs with a delay, not yet cancelled.
    waiting: Vec<String>,
    /// The call whose answer was lost, to be repeated after the restart.
    repeat: Option<Call>,
}

#[derive(Clone)]
enum Call {
    Publish { marker: String, body: Value },
    Cancel { job: String },
    Replay { job: String },
    ChangeQueue { value: u64 },
}

impl Publisher {
    pub(super) fn new(number: u64, chance: Chance, recorder: Recorder) -> Publisher {
        Publisher { number, chance, recorder, published: 0, queue_changes: 0, waiting: Vec::new(), repeat: None }
    }

    /// The queue that this publisher alone changes.
    pub(super) fn own_queue(&self) -> String {
        format!("own-{}", self.number)
    }

    pub(super) async fn run(&mut self, client: &Client) {
        while !self.recorder.is_stopped() {
            if self.step(client).await == Step::ServerGone && !self.recorder.goes_on().await {
                return;
            }
        }
    }

    async fn step(&mut self, client: &Client) -> Step {
        let call = self.repeat.take().unwrap_or_else(|| self.next_call());
        let action = self.action(&call);
        let sending = send(client, &call, self.own_queue());
        let answer = self.recorder.record(action, sending).await;
        if matches!(answer, Answer::Unknown(_)) {
            // A change without a retry leaves its ending open for the checker, which must allow both.
            self.repeat = self.chance.percent(70).then_some(call);
            return Step::ServerGone;
        }
        self.learn(call, answer);
        Step::Done
    }

    /// Weighted so that each kind is well over a twentieth of all operations.
    fn next_call(&mut self) -> Call {
        match self.chance.below(100) {
            0..45 => self.publish(0),
            45..65 => match self.chance.take(&mut self.waiting) {
                Some(job) => Call::Cancel { job },
                None => self.publish(DELAY_SECONDS),
            },
            65..85 => match self.recorder.take_dead(&mut self.chance) {
                Some(job) => Call::Replay { job },
                None => self.publish(DELAY_SECONDS),
            },
            _ => {
                self.queue_changes += 1;
                let value = RETENTION_SECONDS + self.queue_changes;
                Call::ChangeQueue { value }
            }
        }
    }

    fn publish(&mut self, delay: u64) -> Call {
        self.published += 1;
        let marker = format!("p{}-{}", self.number, self.published);
        let length = self.chance.between(0, 600) as usize;
        let payload = json!({ "marker": marker, "text": self.chance.text(length) });
        let body = json!({ "payload": payload, "idempotencyKey": marker, "delay": delay });
        Call::Publish { marker, body }
    }

    fn action(&self, call: &Call) -> Action {
        match call.clone() {
            Call::Publish { marker, body } => Action::Publish { marker, payload: body["payload"].clone() },
            Call::Cancel { job } => Action::Cancel { job },
            Call::Replay { job } => Action::Replay { job },
            Call::ChangeQueue { value } => Action::ChangeQueue { queue: self.own_queue(), value },
        }
    }

    fn learn(&mut self, call: Call, answer: Answer) {
        match (call, answer) {
            (Call::Publish { body, .. }, Answer::Published { job }) if body["delay"] != 0 => {
                self.waiting.push(job);
            }
            (Call::Cancel { job }, Answer::Changed { status, .. }) if status == "cancelled" => {
                self.recorder.add_dead(job);
            }
            _ => {}
        }
    }
}

async fn send(client: &Client, call: &Call, own_queue: String) -> Answer {
    match call.clone() {
        Call::Publish { body, .. } => {
            let reply = client.post(&format!("/v1/queues/{QUEUE}/jobs"), body).await;
            answer_of(reply, |body| {
                let job = body["id"].as_str()?.to_owned();
                Some(Answer::Published { job })
            })
        }
        Call::Cancel { job } => {
            let reply = client.post(&format!("/v1/jobs/{job}/cancel"), json!({})).await;
            answer_of(reply, read_change)
        }
        Call::Replay { job } => {
            let reply = client.post(&format!("/v1/jobs/{job}/replay"), json!({})).await;
            answer_of(reply, read_change)
        }
        Call::ChangeQueue { value } => {
            let reply = client.patch(&format!("/v1/queues/{own_queue}"), json!({ "retention": value })).await;
            answer_of(reply, |_| Some(Answer::QueueChanged))
        }
    }
}
