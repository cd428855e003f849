//! The result of a decision: the changed job, its new events, and the effects that the same transaction must write.

use std::sync::Arc;

use crate::checkpoint::{Checkpoint, SECTIONS_MAX, Section};
use crate::command::OutcomeKind;
use crate::event::Event;
use crate::gate::Hold;
use crate::gcra::Gcra;
use crate::ids::JobId;
use crate::job::{Job, Spec};
use crate::object::{Object, Role};
use crate::state::Status;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The command has no effect here, and that is fine (a repeated report, an alarm that is not due).
    None,
    Update(Box<Update>),
    /// Retention has ended: the job and all its data are deleted.
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
    /// Delete the job's inline result.
    DropResult,
    /// Set or lift the queue's hold.
    SetHold(Option<Hold>),
    /// The queue's rate limit was used.
    SetGcra(Gcra),
    /// Create a job in a queue of the same namespace. A system queue is made when it is missing; an idempotency key in the
    /// spec has the job made once only.
    Publish { queue: Arc<str>, content: OutboxContent },
    /// In the place of any earlier one.
    KeepCheckpoint(Arc<Checkpoint>),
    /// In the place of an earlier one of that name.
    KeepSection(Arc<Section>),
    /// Forget the checkpoint and all sections.
    DropCheckpoints,
    /// An object is about to be written.
    Expect(Arc<Object>),
    /// An expected object is complete and belongs to the job.
    Keep(Arc<Object>),
    /// Objects of the job that are no longer needed: they are deleted at that time.
    ScheduleDelete(ScheduledDelete),
}

impl Effect {
    pub fn is_publish(&self) -> bool {
        matches!(self, Effect::Publish { .. })
    }
}

/// The spec of a job that an effect creates.
#[derive(Clone, Debug, PartialEq)]
pub enum OutboxContent {
    Spec(Arc<Spec>),
    /// A notice of how the changed job ended. The layer that owns our URLs composes it, from the job as it is after the
    /// change.
    Notice,
}

/// Which objects of a job are to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduledDelete {
    /// Of this role; of any, if none is named.
    pub role: Option<Role>,
    /// Those that were expected, or those that were kept.
    pub attached: bool,
    pub at: Timestamp,
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
    #[error("job {holder} has the idempotency key of this job by now")]
    KeyTaken { holder: JobId },
    #[error("a callback says how another job ended, and always the same")]
    PayloadFixed,
    #[error("the job is {status}, not queued")]
    NotQueued { status: Status },
    #[error("no cancel was requested")]
    NoCancelRequested,
    #[error("a result was uploaded already")]
    ResultExists,
    #[error("the job's output has {OUTPUT_BYTES_MAX} bytes, which is the most there can be")]
    OutputFull,
    #[error("the job has {SECTIONS_MAX} sections, which is the most there can be")]
    SectionsFull,
    #[error("a part of the output is missing: the next one is part {next}")]
    OutputGap { next: u64 },
    /// A bug of ours, never of the caller.
    #[error("the server broke a rule of its own on this job and set it aside")]
    SetAside,
}

/// The most output a job keeps over its whole life.
pub const OUTPUT_BYTES_MAX: u64 = 8 << 20;
