//! Everything that can be asked of a job that exists.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::checkpoint::{Checkpoint, Section};
use crate::digest;
use crate::event::Usage;
use crate::gate::HoldCause;
use crate::ids::Lease;
use crate::object::Object;
use crate::outage::Outage;
use crate::progress::Progress;
use crate::queue::DeferScope;
use crate::state::{CancelReason, Directives, Ending, Phase};

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Hand the job out: to a puller (`Leased`) or to the webhook (`Delivering`).
    Claim {
        phase: Phase,
        visibility: Option<Duration>,
        worker: Option<Box<str>>,
    },
    /// The webhook took the job; its outcome comes later.
    Receipt {
        lease: Lease,
    },
    /// The end of a hand-out, as its holder reports it. Without a lease it means the current one.
    Report {
        lease: Option<Lease>,
        outcome: Outcome,
        evidence: Evidence,
    },
    /// Still at work: extends the lease, and keeps what came with it.
    Heartbeat {
        lease: Option<Lease>,
        extend: Option<Duration>,
        progress: Option<Arc<Progress>>,
        checkpoint: Option<Arc<Checkpoint>>,
    },
    /// Work has moved; the lease stays as it is.
    Progress {
        lease: Option<Lease>,
        progress: Arc<Progress>,
    },
    /// Where to go on from, should this attempt not get to the end. Kept together with its progress.
    Checkpoint {
        lease: Option<Lease>,
        checkpoint: Arc<Checkpoint>,
        progress: Option<Arc<Progress>>,
    },
    /// One finished part of the work.
    Section {
        lease: Option<Lease>,
        section: Arc<Section>,
    },
    /// Text for those who watch. A numbered part is appended once: the next one has the number after the last one.
    Output {
        lease: Option<Lease>,
        part: Option<u64>,
        text: Arc<str>,
    },
    /// An object is about to be written.
    Upload {
        lease: Option<Lease>,
        object: Arc<Object>,
    },
    /// A result was uploaded and checked; it counts even if the lease is lost afterwards.
    Finalize {
        lease: Option<Lease>,
        object: Arc<Object>,
    },
    /// Leaves directives for the worker's next heartbeat.
    Direct {
        directives: Directives,
    },
    Cancel {
        reason: CancelReason,
    },
    /// Starts a failed or cancelled job again. `fresh` drops what was saved before.
    Replay {
        fresh: bool,
        payload: Option<Arc<str>>,
    },
    /// The job's alarm is due, or a caller assumes so: do everything that is due. With an outage, leases are extended
    /// by it.
    Wake {
        outage: Option<Outage>,
    },
    /// The server that was delivering it died; how it went is unknown.
    Abandon,
}

impl Command {
    /// An alarm rang and there was no outage.
    pub const WAKE: Command = Command::Wake { outage: None };

    pub fn is_wake(&self) -> bool {
        matches!(self, Command::Wake { .. })
    }

    pub fn is_replay(&self) -> bool {
        matches!(self, Command::Replay { .. })
    }

    /// Brings something to be kept, so it may wait until there is room; an outcome may not.
    pub fn grows(&self) -> bool {
        match self {
            Command::Checkpoint { .. } | Command::Section { .. } | Command::Output { .. } | Command::Upload { .. } => {
                true
            }
            Command::Heartbeat { checkpoint, .. } => checkpoint.is_some(),
            _ => false,
        }
    }

    /// Only "still here".
    pub fn beat(lease: Option<Lease>, extend: Option<Duration>) -> Command {
        Command::Heartbeat { lease, extend, progress: None, checkpoint: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done, with the inline result if there is one (JSON text).
    Ack { result: Option<Arc<str>> },
    /// Did not work. `delay` overrides the backoff.
    Nack { retryable: bool, delay: Option<Duration> },
    /// Not now: comes back later, free of charge. Without a time, after the queue's `backpressureDelay`, or when the
    /// circuit may be tried again.
    Defer { retry_after: Option<Duration>, scope: Option<DeferScope>, cause: HoldCause },
    /// Handed back at once, free of charge.
    Release,
    /// A requested cancel was carried out.
    Cancelled,
}

/// An outcome's name, for comparing a repeated report with the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    Ack,
    Nack,
    Defer,
    Release,
    Cancelled,
}

impl OutcomeKind {
    pub const ALL: [OutcomeKind; 5] =
        [OutcomeKind::Ack, OutcomeKind::Nack, OutcomeKind::Defer, OutcomeKind::Release, OutcomeKind::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            OutcomeKind::Ack => "ack",
            OutcomeKind::Nack => "nack",
            OutcomeKind::Defer => "defer",
            OutcomeKind::Release => "release",
            OutcomeKind::Cancelled => "cancelled",
        }
    }

    /// How a hand-out that gets this report ends.
    pub fn ending(self) -> Ending {
        match self {
            OutcomeKind::Ack => Ending::Acked,
            OutcomeKind::Nack => Ending::Nacked,
            OutcomeKind::Defer => Ending::Deferred,
            OutcomeKind::Release => Ending::Released,
            OutcomeKind::Cancelled => Ending::CancelConfirmed,
        }
    }
}

impl Outcome {
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Outcome::Ack { .. } => OutcomeKind::Ack,
            Outcome::Nack { .. } => OutcomeKind::Nack,
            Outcome::Defer { .. } => OutcomeKind::Defer,
            Outcome::Release => OutcomeKind::Release,
            Outcome::Cancelled => OutcomeKind::Cancelled,
        }
    }

    /// Distinguishes outcomes of one kind; `None` for an ack without a result and for kinds that have nothing to
    /// distinguish. The reason of a nack or defer is evidence, not part of the outcome.
    pub fn digest(&self) -> Option<NonZeroU64> {
        let millis = |duration: Option<Duration>| {
            duration.map_or(u64::MAX, |duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        };
        match self {
            Outcome::Ack { result } => result.as_deref().map(digest::json),
            Outcome::Nack { retryable, delay } => Some(digest::numbers(&[u64::from(*retryable), millis(*delay)])),
            Outcome::Defer { retry_after, scope, cause } => {
                let scope = scope.map_or(0, |scope| if scope == DeferScope::Job { 1 } else { 2 });
                let cause = match cause {
                    HoldCause::Backpressure => 0,
                    HoldCause::Deferred => 1,
                    HoldCause::Circuit => 2,
                };
                Some(digest::numbers(&[millis(*retry_after), scope, cause]))
            }
            Outcome::Release | Outcome::Cancelled => None,
        }
    }
}

/// The facts about an ending that the attempt log keeps.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Evidence {
    pub status_code: Option<u16>,
    pub error: Option<Box<str>>,
    pub excerpt: Option<Box<str>>,
    pub usage: Usage,
}
