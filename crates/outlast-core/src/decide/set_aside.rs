//! The end of a job on which a rule was broken: it becomes a dead letter that says which rule, so that an operator finds,
//! reads and replays it, and all other jobs go on. Kept apart from the other endings: one of those may be the culprit.

use crate::change::{Change, Effect, Update};
use crate::gate::hold_without;
use crate::invariants::Violation;
use crate::job::Job;
use crate::queue::Queue;
use crate::state::FailReason;
use crate::time::Timestamp;

use super::draft::Draft;

/// `None` for a finished job: what is told of its end must not change.
pub fn set_aside(job: &Job, queue: &Queue, violation: &Violation, now: Timestamp) -> Option<Update> {
    if job.status().is_terminal() {
        return None;
    }
    let mut draft = Draft::new(job, queue, now);
    // Counters beyond their bounds may be the very violation, and the row must be one that a database takes.
    draft.job.attempt = job.attempt.max(1);
    draft.job.version = job.version.min(u64::MAX - 1);
    draft.job.events = job.events.min(u64::MAX - 2);
    draft.job.last_error = Some(violation.to_string().into());
    if let Some(hold) = hold_without(queue, job.id) {
        draft.effect(Effect::SetHold(Some(hold)));
    }
    draft.failed(FailReason::SetAside);
    match draft.change() {
        Change::Update(update) => Some(*update),
        Change::None | Change::Delete => None,
    }
}
