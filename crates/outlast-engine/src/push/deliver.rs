//! One delivery from its claim to its outcome: signed, sent, its answer read, its outcome stored. The claim has been
//! committed before it comes here; until the outcome is, it holds a slot.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::queue::Mode;
use outlast_core::webhook_answer::{self, NoAnswer, WebhookAnswer, WebhookHead};
use outlast_core::{Command, Evidence, Job, Outcome, Queue, Running, State};
use outlast_store::Error;
use outlast_store::jobs::{JobCommand, Reach};
use tokio::time::sleep;

use crate::egress::{Incoming, Outgoing, SendError, SendPhase};

use super::Push;
use super::body::body;
use super::endpoint::{Endpoint, Target};

/// Of any other answer so much is read: enough for the excerpt, and for the connection to be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const EXCERPT_BYTES_MAX: usize = outlast_core::event::EXCERPT_BYTES_MAX;

/// The endpoint may have closed an idle connection in the moment we used it. That costs no attempt; the next try goes over a
/// fresh connection, and what breaks there is charged.
const USED_CONNECTION_BROKE: &str = "the connection, which had been used before, was closed without an answer";
const STORE_PAUSE_FIRST: Duration = Duration::from_millis(50);
const STORE_PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) struct Delivery {
    pub(super) job: Job,
    pub(super) endpoint: Arc<Endpoint>,
    /// It is the probe of a queue that rests for this cause.
    pub(super) probes: Option<HoldCause>,
}

/// The result of an exchange.
struct Ended {
    command: End,
    evidence: Evidence,
}

enum End {
    Receipt,
    Report(Outcome),
}

impl Push {
    pub(super) async fn deliver(&self, delivery: Delivery) {
        let State::Running(running) = &delivery.job.state else {
            return;
        };
        // A node that stood still for long may come back after its lease: then another node delivers.
        if self.clock.now() >= running.expires_at {
            return;
        }
        self.announcer.counters.deliveries.add(1);
        let mut stopping = self.lifecycle.stopping();
        let ended = tokio::select! {
            biased;
            ended = self.exchange(&delivery, running) => ended,
            _ = stopping.wait_for(|stopped| *stopped) => {
                Ended { command: End::Report(Outcome::Release), evidence: said("the server was stopped") }
            }
        };
        self.conclude(&delivery, running, ended).await;
    }

    async fn exchange(&self, delivery: &Delivery, running: &Running) -> Ended {
        let Delivery { job, endpoint, probes } = delivery;
        let queue = &endpoint.queue;
        let kept = match self.jobs.saved_work(job).await {
            Ok(kept) => kept.unwrap_or_default(),
            // The endpoint must not start over: another node, or a later attempt, can read the checkpoint.
            Err(Error::Unavailable | Error::Overloaded | Error::Stopped) => {
                let evidence = said("what earlier attempts saved cannot be read now");
                return Ended { command: End::Report(Outcome::Release), evidence };
            }
            Err(_) => return failed("what earlier attempts saved cannot be read"),
        };
        let (Some(target), Some(body)) =
            (endpoint.target(job), body(&self.settings.public_url, job, (queue, running), &kept))
        else {
            return failed("the job cannot be delivered: it has no URL, or its payload is not readable");
        };
        let breakers = &self.breakers;
        if let Err(until) = breakers.admits(queue.namespace, &target.host, self.clock.now())
            && *probes != Some(HoldCause::Circuit)
        {
            return circuit_open(queue, until.since(self.clock.now()));
        }
        let request = Outgoing {
            headers: endpoint.headers(job, &running.lease.to_string(), &body, self.clock.now()),
            url: Arc::clone(&target.url),
            body,
            // An answer after the end of the lease would be refused.
            timeout: queue.settings.webhook_timeout.min(running.expires_at.since(self.clock.now())),
            fresh: job.last_error.as_deref() == Some(USED_CONNECTION_BROKE),
            body_max: ANSWER_BYTES_MAX,
            json_max: match queue.settings.mode {
                Mode::Standard => self.settings.result_bytes_max,
                _ => ANSWER_BYTES_MAX,
            },
        };
        match self.egress.send(request).await {
            Ok(answer) => self.answered(delivery, &target, answer),
            Err(error) => self.unanswered(delivery, &target, &error),
        }
    }

    fn answered(&self, delivery: &Delivery, target: &Target, answer: Incoming) -> Ended {
        let breakers = &self.breakers;
        let namespace = delivery.endpoint.queue.namespace;
        match webhook_answer::is_broken(answer.status) {
            true => breakers.failed(namespace, &target.host, self.clock.now()),
            false => breakers.answered(namespace, &target.host),
        }
        let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
        let head = WebhookHead {
            status: answer.status,
            retry_after: header("retry-after"),
            forbids_retry: header("x-outlast-retry").is_some_and(|value| value.trim().eq_ignore_ascii_case("false")),
        };
        let mode = delivery.endpoint.queue.settings.mode;
        let evidence = Evidence { status_code: Some(answer.status), ..Evidence::default() };
        match webhook_answer::read(head, mode, self.clock.now()) {
            WebhookAnswer::Receipt => Ended { command: End::Receipt, evidence },
            WebhookAnswer::Outcome(Outcome::Ack { .. }) => {
                let result = if mode == Mode::Standard { result(&answer) } else { None };
                Ended { command: End::Report(Outcome::Ack { result }), evidence }
            }
            WebhookAnswer::Outcome(outcome) => {
                let error = format!("the endpoint answered {}", answer.status).into();
                let excerpt = self.settings.keeps_excerpts.then(|| excerpt(&answer.body)).flatten();
                let evidence = Evidence { error: Some(error), excerpt, ..evidence };
                let broken = webhook_answer::is_broken(answer.status);
                Ended {
                    command: End::Report(if broken {
                        webhook_answer::as_endpoint_failure(outcome, delivery.probes)
                    } else {
                        outcome
                    }),
                    evidence,
                }
            }
        }
    }

    fn unanswered(&self, delivery: &Delivery, target: &Target, error: &SendError) -> Ended {
        let evidence =
            Evidence { error: Some(format!("{}: {error}", error.phase.as_str()).into()), ..Evidence::default() };
        let (job, queue) = (&delivery.job, &delivery.endpoint.queue);
        let why = if error.broke_used_connection() && job.deferrals < job.max_deferrals(queue) {
            NoAnswer::UsedConnection
        } else if error.is_resolver_outage() || error.phase == SendPhase::Wait {
            NoAnswer::OurSide
        } else {
            NoAnswer::Endpoint
        };
        if why == NoAnswer::Endpoint && error.phase != SendPhase::Blocked {
            self.breakers.failed(queue.namespace, &target.host, self.clock.now());
        }
        let evidence = if why == NoAnswer::UsedConnection { said(USED_CONNECTION_BROKE) } else { evidence };
        Ended { command: End::Report(webhook_answer::missing(why, delivery.probes)), evidence }
    }

    /// Stores the outcome. While the store is away it is tried again for as long as the lease lasts; after that
    /// the job is claimed again.
    async fn conclude(&self, delivery: &Delivery, running: &Running, ended: Ended) {
        let lease = running.lease;
        let command = match ended.command {
            End::Receipt => Command::Receipt { lease },
            End::Report(outcome) => Command::Report { lease: Some(lease), outcome, evidence: ended.evidence },
        };
        let mut pause = STORE_PAUSE_FIRST;
        loop {
            let order = JobCommand { id: delivery.job.id, reach: Reach::Everything, command: command.clone() };
            match self.jobs.apply_one(order).await {
                // Refused means that the worker or the clock was faster; their outcome counts.
                Ok(_) | Err(Error::Stopped) => return,
                Err(error) if self.clock.now().plus(pause) >= running.expires_at => {
                    tracing::warn!(job = %delivery.job.id, %error, "an outcome could not be stored while its lease lasted");
                    return;
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(STORE_PAUSE_MAX);
        }
    }
}

fn circuit_open(queue: &Queue, wait: Duration) -> Ended {
    let why = "the endpoint's circuit is open after failures in a row; nothing was sent";
    let outcome = webhook_answer::circuit_open(queue.settings.backpressure_scope, wait);
    Ended { command: End::Report(outcome), evidence: said(why) }
}

fn failed(why: &str) -> Ended {
    Ended { command: End::Report(Outcome::Nack { retryable: false, delay: None }), evidence: said(why) }
}

fn said(error: &str) -> Evidence {
    Evidence { error: Some(error.into()), ..Evidence::default() }
}

/// A whole body that is JSON.
fn result(answer: &Incoming) -> Option<Arc<str>> {
    if answer.is_cut || answer.body.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(&answer.body).ok()?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| text.into())
}

/// The beginning of a body, as text. One character more than is kept, so that the last one is cut off as a whole and not
/// replaced for being cut.
fn excerpt(body: &[u8]) -> Option<Box<str>> {
    let beginning = body.get(..body.len().min(EXCERPT_BYTES_MAX + char::MAX_LEN_UTF8)).unwrap_or_default();
    (!beginning.is_empty()).then(|| String::from_utf8_lossy(beginning).into())
}
