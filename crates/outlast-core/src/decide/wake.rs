//! What time does to a job: delays end, leases run out, limits strike, results expire, retention ends. Safe to call at
//! any moment: what is not due yet does not happen.

use crate::alarm::{alarm, hard_deadline, holding_deadline, lease_deadline, stall_deadline, waiting_deadline};
use crate::change::{Change, Doom, Effect};
use crate::entropy::Entropy;
use crate::event::{EventKind, Reason, STALL_NOTE};
use crate::object::Role;
use crate::outage::Outage;
use crate::queue::StallAction;
use crate::state::{CancelReason, Ending, Phase, Running, State};
use crate::time::Timestamp;

use super::draft::Draft;
use super::ending::lose;

pub(super) fn wake(mut draft: Draft<'_>, outage: Option<Outage>, entropy: &mut dyn Entropy) -> Change {
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
        State::Running(running) if outage.is_some_and(|outage| was_unheard(&draft, &running, outage)) => {
            // Nobody could say whether work moved: it is counted from when somebody can again.
            draft.job.headway.moved_at = outage.map(|outage| outage.to);
            draft.job.state = State::Running(running);
            draft.change()
        }
        State::Running(running) => match (loss(&draft, &running, now), outage) {
            (None, _) => flag_stall(draft, running),
            (Some(how), Some(outage)) => match spare(&draft, &running, how, outage) {
                Some(spared) => {
                    draft.job.state = State::Running(spared);
                    draft.change()
                }
                None => lose(draft, &running, how, entropy),
            },
            (Some(how), None) => lose(draft, &running, how, entropy),
        },
        State::Succeeded { at, result: Some(result) } => {
            draft.effect(match result.inline {
                true => Effect::DropResult,
                false => Effect::Doom(Doom { role: Some(Role::Result), kept: true, at: now }),
            });
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

/// Which of several deadlines that have passed counts: a cancel first, then the job's limit, the attempt's, the lease, and
/// at last work that does not move. `None` when that shall only be noted.
fn loss(draft: &Draft<'_>, running: &Running, now: Timestamp) -> Option<Ending> {
    let (job, queue) = (&draft.job, draft.queue);
    let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= now);
    if passed(running.revoke_at) {
        return Some(Ending::Revoked);
    }
    if passed(job.job_deadline(queue)) {
        return Some(Ending::JobTimeout);
    }
    if passed(hard_deadline(job, queue, running)) {
        return Some(Ending::HardTimeLimit);
    }
    let deadline = holding_deadline(job, queue, running);
    if deadline > now {
        return (queue.settings.stall_action == StallAction::Retry).then_some(Ending::Stalled);
    }
    if running.phase == Phase::Delivering {
        // Who delivers reports before its lease ends, so whoever did it is gone.
        return Some(Ending::Unknown);
    }
    Some(match running.phase {
        _ if deadline < running.expires_at => Ending::HeartbeatLost,
        Phase::AwaitingAck => Ending::AckTimeout,
        Phase::Leased | Phase::Delivering => Ending::LeaseExpired,
    })
}

/// The hand-out as it goes on, if its holder could not be heard during an outage. Limits of the work itself stay.
fn spare(draft: &Draft<'_>, running: &Running, how: Ending, outage: Outage) -> Option<Running> {
    let (job, queue, mut spared) = (&draft.job, draft.queue, running.clone());
    let (deadline, extension) = match how {
        Ending::Revoked => (running.revoke_at?, queue.settings.drain_timeout),
        Ending::HeartbeatLost => (holding_deadline(job, queue, running), job.heartbeat_timeout(queue)?),
        Ending::LeaseExpired | Ending::AckTimeout | Ending::Unknown => {
            (holding_deadline(job, queue, running), running.extension)
        }
        _ => return None,
    };
    let until = outage.grace(running, deadline, extension).filter(|until| *until > draft.now)?;
    spared.work.grace_until = Some(until);
    spared.revoke_at = running.revoke_at.map(|revoke_at| if how == Ending::Revoked { until } else { revoke_at });
    Some(spared)
}

/// Is it only that work has not moved, and could that not be heard during the outage?
fn was_unheard(draft: &Draft<'_>, running: &Running, outage: Outage) -> bool {
    let (job, queue) = (&draft.job, draft.queue);
    let others = [Some(lease_deadline(job, queue, running)), running.revoke_at];
    let is_alone = others.into_iter().flatten().all(|deadline| deadline > draft.now);
    let stall = stall_deadline(job, queue, running).filter(|at| *at <= draft.now);
    let moved_at = job.headway.moved_at;
    is_alone && stall.is_some_and(|at| at >= outage.from) && moved_at.is_some_and(|at| at < outage.to)
}

/// Heartbeats come and work does not move: said once, until it moves again.
fn flag_stall(mut draft: Draft<'_>, mut running: Running) -> Change {
    let since = stall_deadline(&draft.job, draft.queue, &running);
    if since.is_none_or(|at| at > draft.now) {
        return Change::None;
    }
    running.work.is_stalled = true;
    draft.job.state = State::Running(running);
    let seconds = draft.queue.settings.stall_timeout.as_secs_f64();
    draft.event(EventKind::Note { text: format!("{STALL_NOTE}: no progress for {seconds} s").into() });
    draft.change()
}
