//! The end of a job on which a rule was broken: it becomes a dead letter that says which rule, so that an operator finds,
//! reads and replays it, and all other jobs go on. Kept apart from the other endings: one of those may be the culprit.

use crate::change::{Change, Effect, Update};
use crate::gate::hold_without;
use crate::invariants::Violation;
use crate::job::Job;
use crate::queue::Queue;
use crate::state::FailReason;
use crate::time::Timestamp;

use super::builder::TransitionBuilder;

/// `None` for a finished job: its end has been reported and must not change.
pub fn set_aside(job: &Job, queue: &Queue, violation: &Violation, now: Timestamp) -> Option<Update> {
    if job.status().is_terminal() {
        return None;
    }
    let mut builder = TransitionBuilder::new(job, queue, now);
    // Counters beyond their bounds may be the very violation, and the row must be one that a database takes.
    builder.job.attempt = job.attempt.max(1);
    builder.job.version = job.version.min(u64::MAX - 1);
    builder.job.events = job.events.min(u64::MAX - 2);
    builder.job.last_error = Some(violation.to_string().into());
    if let Some(hold) = hold_without(queue, job.id) {
        builder.effect(Effect::SetHold(Some(hold)));
    }
    builder.failed(FailReason::SetAside);
    match builder.change() {
        Change::Update(update) => Some(*update),
        Change::None | Change::Delete => None,
    }
}
