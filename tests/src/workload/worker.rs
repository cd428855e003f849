//! A worker of the mixed load: receives a few jobs and ends each by ack, nack, final nack or defer, with its lease.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{QUEUE, Recorder, Step, answer_of, read_change};
use crate::chance::Chance;
use crate::history::{Action, Answer, Claim, Outcome};
use crate::http::Client;

/// A short long poll, so that a worker with nothing to do neither spins nor misses the end of the run.
const WAIT_SECONDS: f64 = 0.2;

pub(super) struct Worker {
    chance: Chance,
    pub(super) recorder: Recorder,
    /// Claims in hand, the next to be ended first. A retry keeps the outcome it was sent with.
    held: VecDeque<(Claim, Option<Outcome>)>,
}

impl Worker {
    pub(super) fn new(chance: Chance, recorder: Recorder) -> Worker {
        Worker { chance, recorder, held: VecDeque::new() }
    }

    pub(super) async fn run(&mut self, client: &Client) {
        while !self.recorder.is_stopped() {
            let step = match self.held.pop_front() {
                Some((claim, outcome)) => self.settle(client, claim, outcome).await,
                None => self.receive(client).await,
            };
            if step == Step::ServerGone && !self.recorder.goes_on().await {
                return;
            }
        }
    }

    async fn receive(&mut self, client: &Client) -> Step {
        let request = json!({ "batch": self.chance.between(1, 6), "wait": WAIT_SECONDS });
        let path = format!("/v1/queues/{QUEUE}/receive");
        let receiving = async { answer_of(client.post(&path, request).await, read_claims) };
        match self.recorder.record(Action::Receive, receiving).await {
            Answer::Received(claims) => self.held.extend(claims.into_iter().map(|claim| (claim, None))),
            Answer::Unknown(_) => return Step::ServerGone,
            _ => {}
        }
        Step::Done
    }

    async fn settle(&mut self, client: &Client, claim: Claim, outcome: Option<Outcome>) -> Step {
        let outcome = outcome.unwrap_or_else(|| self.choose());
        let action = Action::Settle { job: claim.job.clone(), lease: claim.lease.clone(), outcome };
        let sending = send(client, &claim, outcome);
        match self.recorder.record(action, sending).await {
            Answer::Changed { status, .. } if status == "failed" => self.recorder.add_dead(claim.job),
            Answer::Unknown(_) => {
                if self.chance.percent(75) {
                    self.held.push_front((claim, Some(outcome)));
                }
                return Step::ServerGone;
            }
            _ => {}
        }
        Step::Done
    }

    fn choose(&mut self) -> Outcome {
        match self.chance.below(100) {
            0..34 => Outcome::Ack,
            34..54 => Outcome::Nack,
            54..66 => Outcome::Fail,
            _ => Outcome::Defer,
        }
    }
}

async fn send(client: &Client, claim: &Claim, outcome: Outcome) -> Answer {
    let lease = &claim.lease;
    let (verb, body) = match outcome {
        Outcome::Ack => ("ack", json!({ "lease": lease })),
        Outcome::Nack => ("nack", json!({ "lease": lease, "delay": 0, "reason": "rig" })),
        Outcome::Fail => ("nack", json!({ "lease": lease, "retryable": false, "reason": "rig" })),
        Outcome::Defer => ("defer", json!({ "lease": lease, "retryAfter": 0.02, "scope": "job" })),
    };
    answer_of(client.post(&format!("/v1/jobs/{}/{verb}", claim.job), body).await, read_change)
}

fn read_claims(body: &Value) -> Option<Answer> {
    let mut claims = Vec::new();
    for job in body["jobs"].as_array()? {
        claims.push(Claim {
            job: job["id"].as_str()?.to_owned(),
            lease: job["lease"].as_str()?.to_owned(),
            replays: job["replays"].as_u64()?,
            attempt: job["attempt"].as_u64()?,
        });
    }
    Some(Answer::Received(claims))
}
