//! The durable log of a job: one gapless sequence that every status channel reads by cursor.

use std::sync::Arc;
use std::time::Duration;

use crate::state::{Ending, Phase, Status};
use crate::time::Timestamp;

/// Numbered from 1 within a job, without gaps, across all replays.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub seq: u64,
    pub at: Timestamp,
    pub kind: EventKind,
}

/// How the note begins that says that work does not move.
pub const STALL_NOTE: &str = "progress_stall";

impl Event {
    /// Work was found not to move: only noted, or the attempt ended by it.
    pub fn is_stall(&self) -> bool {
        match &self.kind {
            EventKind::State { reason, .. } => *reason == Reason::Stalled,
            EventKind::Note { text } => text.starts_with(STALL_NOTE),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The job moved; `from` is `None` for its creation. A request to cancel is a move from `running` to `running`.
    /// `replays` counts the replays up to and including this move.
    State { from: Option<Status>, to: Status, reason: Reason, replays: u32 },
    /// A hand-out ended.
    Attempt(Attempt),
    /// A result was kept.
    Result { length: u64 },
    /// A checkpoint was kept, or one section.
    Checkpoint { schema_version: u32, section: Option<Box<str>>, length: u64 },
    /// Text for those who watch; with its number, if the worker numbers what it sends.
    Output { attempt: u32, part: Option<u64>, text: Arc<str> },
    /// A callback job was made that tells the callback URL how the job ended.
    Callback,
    /// A remark for the reader of the history.
    Note { text: Box<str> },
}

impl EventKind {
    pub fn as_str(&self) -> &'static str {
        match self {
            EventKind::State { .. } => "state",
            EventKind::Attempt(_) => "attempt",
            EventKind::Result { .. } => "result",
            EventKind::Checkpoint { .. } => "checkpoint",
            EventKind::Output { .. } => "output",
            EventKind::Callback => "callback",
            EventKind::Note { .. } => "note",
        }
    }
}

/// The record of one hand-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub number: u32,
    pub phase: Phase,
    pub outcome: Ending,
    pub duration: Duration,
    pub status_code: Option<u16>,
    pub error: Option<Box<str>>,
    /// The beginning of the answer's body, at most [`EXCERPT_BYTES_MAX`].
    pub excerpt: Option<Box<str>>,
    pub usage: Usage,
}

/// The limited resources that an attempt used, by unit: tokens, cost or any unit the worker counts. At most
/// [`USAGE_UNITS_MAX`] units, in the order they were reported; empty where nothing was.
pub type Usage = Vec<(Box<str>, f64)>;

pub const USAGE_UNITS_MAX: usize = 16;
pub const USAGE_UNIT_BYTES_MAX: usize = 64;
/// The most of one unit.
pub const USAGE_MAX: f64 = 1e12;

pub const EXCERPT_BYTES_MAX: usize = 4096;

/// Why a job moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Published,
    Delayed,
    Due,
    Claimed,
    Received,
    Acked,
    Nacked,
    Deferred,
    Released,
    LeaseExpired,
    HeartbeatLost,
    HardTimeLimit,
    AckTimeout,
    Unknown,
    AttemptsExhausted,
    NotRetryable,
    DeferralExhausted,
    MaxAgeExceeded,
    ResultAdopted,
    CancelRequested,
    CancelledByUser,
    CancelledByTimeout,
    CancelledByPipeline,
    Replayed,
    ResultExpired,
    Stalled,
    SetAside,
}

impl Reason {
    pub const ALL: [Reason; 27] = [
        Reason::Published,
        Reason::Delayed,
        Reason::Due,
        Reason::Claimed,
        Reason::Received,
        Reason::Acked,
        Reason::Nacked,
        Reason::Deferred,
        Reason::Released,
        Reason::LeaseExpired,
        Reason::HeartbeatLost,
        Reason::HardTimeLimit,
        Reason::AckTimeout,
        Reason::Unknown,
        Reason::AttemptsExhausted,
        Reason::NotRetryable,
        Reason::DeferralExhausted,
        Reason::MaxAgeExceeded,
        Reason::ResultAdopted,
        Reason::CancelRequested,
        Reason::CancelledByUser,
        Reason::CancelledByTimeout,
        Reason::CancelledByPipeline,
        Reason::Replayed,
        Reason::ResultExpired,
        Reason::Stalled,
        Reason::SetAside,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Published => "published",
            Reason::Delayed => "delayed",
            Reason::Due => "due",
            Reason::Claimed => "claimed",
            Reason::Received => "received",
            Reason::Acked => "acked",
            Reason::Nacked => "nacked",
            Reason::Deferred => "deferred",
            Reason::Released => "released",
            Reason::LeaseExpired => "lease_expired",
            Reason::HeartbeatLost => "heartbeat_lost",
            Reason::HardTimeLimit => "hard_time_limit",
            Reason::AckTimeout => "ack_timeout",
            Reason::Unknown => "unknown",
            Reason::AttemptsExhausted => "attempts_exhausted",
            Reason::NotRetryable => "not_retryable",
            Reason::DeferralExhausted => "deferral_exhausted",
            Reason::MaxAgeExceeded => "max_age_exceeded",
            Reason::ResultAdopted => "result_adopted",
            Reason::CancelRequested => "cancel_requested",
            Reason::CancelledByUser => "cancelled_by_user",
            Reason::CancelledByTimeout => "cancelled_by_timeout",
            Reason::CancelledByPipeline => "cancelled_by_pipeline",
            Reason::Replayed => "replayed",
            Reason::ResultExpired => "result_expired",
            Reason::Stalled => "stalled",
            Reason::SetAside => "set_aside",
        }
    }
}
