//! What time does to a job: delays end, leases run out, limits strike, results expire, retention ends. Safe to call at
//! any moment: what is not due yet does not happen.

use crate::alarm::{alarm, hard_deadline, lease_deadline, waiting_deadline};
use crate::change::{Change, Effect};
use crate::entropy::Entropy;
use crate::event::Reason;
use crate::state::{CancelReason, Ending, Phase, Running, State};
use crate::time::Timestamp;

use super::draft::Draft;
use super::ending::lose;

pub(super) fn wake(mut draft: Draft<'_>, entropy: &mut dyn Entropy) -> Change {
    let now = draft.now;
    if alarm(&draft.job, draft.queue).is_none_or(|at| at > now) {
        return Change::None;
    }
    match draft.job.state.clone() {
        State::Pending { until, .. } => {
            if waiting_deadline(&draft.job, draft.queue).is_some_and(|deadline| deadline <= now) {
                return give_up_waiting(draft);
            }
            // In order of when it was due, not of when the alarm was served.
            draft.go(State::Queued { ready_at: until }, Reason::Due);
            draft.change()
        }
        State::Queued { .. } => give_up_waiting(draft),
        State::Running(running) => {
            let how = loss(&draft, &running, now);
            lose(draft, &running, how, entropy)
        }
        State::Succeeded { at, result: Some(_) } => {
            draft.effect(Effect::DropResult);
            draft.go(State::Expired { at, expired_at: now }, Reason::ResultExpired);
            draft.change()
        }
        State::Succeeded { result: None, .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Expired { .. } => Change::Delete,
    }
}

/// A waiting job is out of time.
pub(super) fn give_up_waiting(mut draft: Draft<'_>) -> Change {
    draft.cancelled(CancelReason::Timeout);
    draft.change()
}

/// Which of several deadlines that have passed counts: a cancel first, then the run's limit, the attempt's, the lease.
fn loss(draft: &Draft<'_>, running: &Running, now: Timestamp) -> Ending {
    let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= now);
    if passed(running.revoke_at) {
        return Ending::Revoked;
    }
    if passed(draft.job.run_deadline(draft.queue)) {
        return Ending::JobTimeout;
    }
    if passed(hard_deadline(&draft.job, draft.queue, running)) {
        return Ending::HardTimeLimit;
    }
    if running.phase == Phase::Delivering {
        // Who delivers reports before its lease ends, so whoever did it is gone.
        return Ending::Unknown;
    }
    match lease_deadline(&draft.job, draft.queue, running) < running.expires_at {
        true => Ending::HeartbeatLost,
        false => Ending::LeaseExpired,
    }
}
