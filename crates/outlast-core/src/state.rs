//! The states of a job. The data of a state is inside it: a lease cannot exist outside `Running`, a result not outside
//! `Succeeded`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::Lease;
use crate::progress::Progress;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Accepted, not yet eligible.
    Pending {
        reason: PendingReason,
        until: Timestamp,
    },
    /// Eligible; handed out in order of priority, then `ready_at`.
    Queued {
        ready_at: Timestamp,
    },
    /// Exactly one live lease exists.
    Running(Running),
    Succeeded {
        at: Timestamp,
        result: Option<ResultMeta>,
    },
    /// A dead letter.
    Failed {
        at: Timestamp,
        reason: FailReason,
    },
    Cancelled {
        at: Timestamp,
        reason: CancelReason,
    },
    /// Was succeeded; the result has been deleted. `at` is when it had succeeded.
    Expired {
        at: Timestamp,
        expired_at: Timestamp,
    },
}

/// One hand-out in progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    pub phase: Phase,
    pub lease: Lease,
    pub began_at: Timestamp,
    /// When the lease (or the wait for the ack) runs out.
    pub expires_at: Timestamp,
    /// The extension by one heartbeat, unless it asks for another.
    pub extension: Duration,
    pub heartbeat_at: Option<Timestamp>,
    /// A cancel was asked for; the lease is revoked at this time.
    pub revoke_at: Option<Timestamp>,
    pub worker: Option<Box<str>>,
    /// A finalised result: if the lease is lost now, the job has succeeded all the same.
    pub upload: Option<ResultMeta>,
    pub work: Work,
}

/// The known progress and directives of a running attempt.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Work {
    /// As of the last report that was written down; a fresher one may be known elsewhere.
    pub progress: Option<Arc<Progress>>,
    /// Heartbeats came, but work did not move for too long.
    pub is_stalled: bool,
    pub directives: Directives,
    /// The lease lasts at least until then, since its holder could not report during an outage.
    pub grace_until: Option<Timestamp>,
    /// Objects were announced in this hand-out.
    pub has_uploads: bool,
    /// The last numbered part of the output of this hand-out.
    pub last_part: Option<OutputPart>,
}

/// A numbered part of a job's output, and the number of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPart {
    pub part: u64,
    pub seq: u64,
}

/// Requests of an operator to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Directives {
    /// Save now, whenever the next checkpoint would be due.
    pub checkpoint_now: bool,
    /// Save and release, so that another worker goes on.
    pub hand_over: bool,
    pub slow_down: bool,
}

/// Metadata of a result; the bytes are stored beside the job.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultMeta {
    pub length: u64,
    pub inline: bool,
}

/// The flat name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    Pending,
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Expired,
}

impl Status {
    pub const ALL: [Status; 7] = [
        Status::Pending,
        Status::Queued,
        Status::Running,
        Status::Succeeded,
        Status::Failed,
        Status::Cancelled,
        Status::Expired,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Queued => "queued",
            Status::Running => "running",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Only replay (from `failed`, `cancelled`) or the result's expiry (from `succeeded`) leaves these.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Status::Pending | Status::Queued | Status::Running)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    pub fn status(&self) -> Status {
        match self {
            State::Pending { .. } => Status::Pending,
            State::Queued { .. } => Status::Queued,
            State::Running(_) => Status::Running,
            State::Succeeded { .. } => Status::Succeeded,
            State::Failed { .. } => Status::Failed,
            State::Cancelled { .. } => Status::Cancelled,
            State::Expired { .. } => Status::Expired,
        }
    }
}

/// Why a pending job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PendingReason {
    Delayed,
    Backoff,
    Deferred,
    Dependencies,
}

impl PendingReason {
    pub fn as_str(self) -> &'static str {
        match self {
            PendingReason::Delayed => "delayed",
            PendingReason::Backoff => "backoff",
            PendingReason::Deferred => "deferred",
            PendingReason::Dependencies => "dependencies",
        }
    }
}

/// How far a hand-out has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The webhook is being called.
    Delivering,
    /// The webhook took it; the outcome comes by call.
    AwaitingAck,
    /// A puller holds it.
    Leased,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Delivering => "delivering",
            Phase::AwaitingAck => "awaiting_ack",
            Phase::Leased => "leased",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailReason {
    AttemptsExhausted,
    NotRetryable,
    AckTimeout,
    DeferralExhausted,
    MaxAgeExceeded,
    /// A rule of the server was broken while it worked on the job: a bug of ours, see [`crate::invariants`].
    SetAside,
}

impl FailReason {
    pub fn as_str(self) -> &'static str {
        match self {
            FailReason::AttemptsExhausted => "attempts_exhausted",
            FailReason::NotRetryable => "not_retryable",
            FailReason::AckTimeout => "ack_timeout",
            FailReason::DeferralExhausted => "deferral_exhausted",
            FailReason::MaxAgeExceeded => "max_age_exceeded",
            FailReason::SetAside => "set_aside",
        }
    }

    pub const ALL: [FailReason; 6] = [
        FailReason::AttemptsExhausted,
        FailReason::NotRetryable,
        FailReason::AckTimeout,
        FailReason::DeferralExhausted,
        FailReason::MaxAgeExceeded,
        FailReason::SetAside,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    User,
    Timeout,
    Pipeline,
}

impl CancelReason {
    pub fn as_str(self) -> &'static str {
        match self {
            CancelReason::User => "user",
            CancelReason::Timeout => "timeout",
            CancelReason::Pipeline => "pipeline",
        }
    }
}

/// How a hand-out ended. The first five are reports; the others are losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    Acked,
    Nacked,
    Deferred,
    Released,
    CancelConfirmed,
    /// The lease ran out.
    LeaseExpired,
    HeartbeatLost,
    HardTimeLimit,
    JobTimeout,
    /// A cancel was not confirmed in time.
    Revoked,
    /// The server died while delivering, so the outcome is unknown.
    Unknown,
    /// Heartbeats came, but work did not move.
    Stalled,
    /// The webhook took the job, and its outcome did not come in time.
    AckTimeout,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Acked => "acked",
            Ending::Nacked => "nacked",
            Ending::Deferred => "deferred",
            Ending::Released => "released",
            Ending::CancelConfirmed => "cancel_confirmed",
            Ending::LeaseExpired => "lease_expired",
            Ending::HeartbeatLost => "heartbeat_lost",
            Ending::HardTimeLimit => "hard_time_limit",
            Ending::JobTimeout => "job_timeout",
            Ending::Revoked => "revoked",
            Ending::Unknown => "unknown",
            Ending::Stalled => "stalled",
            Ending::AckTimeout => "ack_timeout",
        }
    }
}
