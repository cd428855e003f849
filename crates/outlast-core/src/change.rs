//! What a decision is: the job as it shall be, its new events, and what else the same transaction must write.

use std::sync::Arc;

use crate::command::OutcomeKind;
use crate::event::Event;
use crate::gate::Hold;
use crate::job::Job;
use crate::pace::Pace;
use crate::state::Status;

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The command has no effect here, and that is fine (a repeated report, an alarm that is not due).
    None,
    Update(Box<Update>),
    /// Retention is over: the job and all that belongs to it goes.
    Delete,
}

/// One transaction writes all of it or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub job: Job,
    pub events: Vec<Event>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this inline result with the job.
    KeepResult(Arc<str>),
    /// Delete the job's result.
    DropResult,
    /// Set or lift the queue's hold.
    SetHold(Option<Hold>),
    /// The queue's rate limit was used.
    SetPace(Pace),
    /// Tell the job's callback URL how it ended.
    Callback,
    /// Forget what earlier runs saved.
    DropCheckpoints,
}

/// The caller can act on it; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the lease is not the job's present one")]
    LeaseLost,
    #[error("the queue requires the lease with every report")]
    LeaseRequired,
    #[error("the job is {status}, not running")]
    NotRunning { status: Status },
    #[error("the job already ended this lease with {} and is {status}", recorded.as_str())]
    OutcomeConflict { status: Status, recorded: OutcomeKind },
    #[error("the job is {status}; only a failed or cancelled job can be replayed")]
    NotReplayable { status: Status },
    #[error("a callback says how another job ended, and always the same")]
    PayloadFixed,
    #[error("the job is {status}, not queued")]
    NotQueued { status: Status },
    #[error("no cancel was requested")]
    NoCancelRequested,
}
