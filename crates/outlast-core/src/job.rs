//! A job: what was asked for (`Spec`, written once) and how far it has come.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::alarm::LAG_SHARE;
use crate::ids::{JobId, Lease, QueueId};
use crate::inbound_event::EventOrigin;
use crate::queue::Queue;
use crate::state::{Ending, PendingReason, Running, State, Status};
use crate::time::Timestamp;

/// The publisher's request. Only a replay may change it, by a new payload.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Spec {
    /// JSON text, kept byte for byte.
    pub payload: Arc<str>,
    pub priority: i8,
    pub not_before: Option<Timestamp>,
    pub start_by: Option<Timestamp>,
    pub idempotency_key: Option<Box<str>>,
    /// Fair-share key, a tenant say.
    pub key: Option<Box<str>>,
    pub tags: Vec<(Box<str>, Box<str>)>,
    pub callback_url: Option<Box<str>>,
    pub notify_email: Option<Box<str>>,
    pub traceparent: Option<Box<str>>,
    pub overrides: Overrides,
    /// The event it was made of.
    pub origin: Option<Box<EventOrigin>>,
}

/// Queue settings a single job may set for itself.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Overrides {
    pub max_attempts: Option<u32>,
    pub visibility_timeout: Option<Duration>,
    pub ack_timeout: Option<Duration>,
    pub heartbeat_timeout: Option<Duration>,
    pub soft_time_limit: Option<Duration>,
    pub hard_time_limit: Option<Duration>,
    pub job_timeout: Option<Duration>,
    pub max_deferrals: Option<u32>,
    pub max_age: Option<Duration>,
    pub result_ttl: Option<Duration>,
}

/// How the last lease since the last replay ended, kept so that a repeated report gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedLease {
    pub lease: Lease,
    pub how: Ending,
    /// Distinguishes outcomes of one kind, see `Outcome::digest`.
    pub digest: Option<NonZeroU64>,
}

/// A job as stored. Every field is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub queue: QueueId,
    pub spec: Arc<Spec>,
    pub created_at: Timestamp,
    /// +1 on each durable change.
    pub version: u64,
    /// How often it was replayed; from 0.
    pub replays: u32,
    /// From 1, and again after a replay; +1 when an attempt is charged and another one follows.
    pub attempt: u32,
    /// Hand-outs over the whole life; strictly increasing.
    pub epoch: u64,
    /// Free endings by deferral since the last replay.
    pub deferrals: u32,
    pub state: State,
    /// When it could first have started: creation, the asked-for time, or the replay.
    pub opened_at: Timestamp,
    /// When it last became eligible.
    pub queued_at: Option<Timestamp>,
    /// First hand-out since the last replay.
    pub started_at: Option<Timestamp>,
    pub last: Option<EndedLease>,
    pub last_error: Option<Box<str>>,
    /// How many events the log holds; the next event has this number plus one.
    pub events: u64,
    pub work_summary: WorkSummary,
}

/// What the attempts so far have left behind: summary flags, so that a store reads artifacts only where there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkSummary {
    /// When work last moved since the last replay.
    pub moved_at: Option<Timestamp>,
    /// There is a checkpoint to go on from.
    pub has_checkpoint: bool,
    pub has_sections: bool,
    /// A result was uploaded in a hand-out that did not end in success.
    pub has_upload: bool,
    /// Output over the whole life.
    pub output_bytes: u64,
}

impl Job {
    /// A job as it enters the store: `pending` when it must wait, else `queued`.
    pub fn admit(id: JobId, queue: QueueId, spec: Arc<Spec>, now: Timestamp) -> Job {
        let opened_at = spec.not_before.map_or(now, |not_before| not_before.max(now));
        let waits = opened_at > now;
        let state = match waits {
            true => State::Pending { reason: PendingReason::Delayed, until: opened_at },
            false => State::Queued { ready_at: now },
        };
        Job {
            id,
            queue,
            spec,
            created_at: now,
            version: 1,
            replays: 0,
            attempt: 1,
            epoch: 0,
            deferrals: 0,
            state,
            opened_at,
            queued_at: (!waits).then_some(now),
            started_at: None,
            last: None,
            last_error: None,
            events: 0,
            work_summary: WorkSummary::default(),
        }
    }

    pub fn status(&self) -> Status {
        self.state.status()
    }

    /// The hand-out that is under way.
    pub fn running(&self) -> Option<&Running> {
        match &self.state {
            State::Running(running) => Some(running),
            _ => None,
        }
    }

    pub fn max_attempts(&self, queue: &Queue) -> u32 {
        self.spec.overrides.max_attempts.unwrap_or(queue.settings.max_attempts)
    }

    pub fn max_deferrals(&self, queue: &Queue) -> u32 {
        self.spec.overrides.max_deferrals.unwrap_or(queue.settings.max_deferrals)
    }

    pub fn max_age(&self, queue: &Queue) -> Duration {
        self.spec.overrides.max_age.unwrap_or(queue.settings.max_age)
    }

    pub fn visibility_timeout(&self, queue: &Queue) -> Duration {
        self.spec.overrides.visibility_timeout.unwrap_or(queue.settings.visibility_timeout)
    }

    pub fn ack_timeout(&self, queue: &Queue) -> Duration {
        self.spec.overrides.ack_timeout.unwrap_or(queue.settings.ack_timeout)
    }

    pub fn heartbeat_timeout(&self, queue: &Queue) -> Option<Duration> {
        self.spec.overrides.heartbeat_timeout.or(queue.settings.heartbeat_timeout)
    }

    pub fn soft_time_limit(&self, queue: &Queue) -> Option<Duration> {
        self.spec.overrides.soft_time_limit.or(queue.settings.soft_time_limit)
    }

    pub fn hard_time_limit(&self, queue: &Queue) -> Option<Duration> {
        self.spec.overrides.hard_time_limit.or(queue.settings.hard_time_limit)
    }

    pub fn job_timeout(&self, queue: &Queue) -> Option<Duration> {
        self.spec.overrides.job_timeout.or(queue.settings.job_timeout)
    }

    pub fn result_ttl(&self, queue: &Queue) -> Duration {
        self.spec.overrides.result_ttl.unwrap_or(queue.settings.result_ttl)
    }

    /// When the job is out of time over all its attempts, once it has started. It may be allowed to go on as long as work moves.
    pub fn job_deadline(&self, queue: &Queue) -> Option<Timestamp> {
        let timeout = self.job_timeout(queue)?;
        let moved_at = self.work_summary.moved_at.filter(|_| queue.settings.extend_while_progressing);
        let extended = moved_at.map(|at| at.plus(timeout + timeout / LAG_SHARE));
        self.started_at.map(|started_at| started_at.plus(timeout)).max(extended.filter(|_| self.started_at.is_some()))
    }

    /// Is there an uploaded result to collect: of a success, or what a job that ended otherwise had got to?
    pub fn has_uploaded_result(&self) -> bool {
        match &self.state {
            State::Succeeded { result, .. } => result.as_ref().is_some_and(|result| !result.inline),
            state => self.work_summary.has_upload && state.status().is_terminal(),
        }
    }

    /// When the job reached a terminal state.
    pub fn finished_at(&self) -> Option<Timestamp> {
        match &self.state {
            State::Succeeded { at, .. }
            | State::Failed { at, .. }
            | State::Cancelled { at, .. }
            | State::Expired { at, .. } => Some(*at),
            State::Pending { .. } | State::Queued { .. } | State::Running(_) => None,
        }
    }
}
