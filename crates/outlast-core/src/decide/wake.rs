//! Effects of time on a job: delays end, leases run out, limits apply, results expire, retention ends. Safe to call at
//! any moment: only due effects happen.

use crate::alarm::{alarm, hard_deadline, holding_deadline, lease_deadline, stall_deadline, waiting_deadline};
use crate::change::{Change, Effect, ScheduledDelete};
use crate::entropy::Entropy;
use crate::event::{EventKind, Reason, STALL_NOTE};
use crate::object::Role;
use crate::outage::Outage;
use crate::queue::StallAction;
use crate::state::{CancelReason, Ending, Phase, Running, State};
use crate::time::Timestamp;

use super::builder::TransitionBuilder;
use super::ending::lose;

pub(super) fn wake(mut builder: TransitionBuilder<'_>, outage: Option<Outage>, entropy: &mut dyn Entropy) -> Change {
    let now = builder.now;
    if alarm(&builder.job, builder.queue).is_none_or(|at| at > now) {
        return Change::None;
    }
    match builder.job.state.clone() {
        State::Pending { until, .. } => {
            if waiting_deadline(&builder.job, builder.queue).is_some_and(|deadline| deadline <= now) {
                return give_up_waiting(builder);
            }
            // In order of when it was due, not of when the alarm was served.
            builder.go(State::Queued { ready_at: until }, Reason::Due);
            builder.change()
        }
        State::Queued { .. } => give_up_waiting(builder),
        State::Running(running) if outage.is_some_and(|outage| was_unheard(&builder, &running, outage)) => {
            // During the outage no progress could be reported, so the stall timeout counts from its end.
            builder.job.work_summary.moved_at = outage.map(|outage| outage.to);
            builder.job.state = State::Running(running);
            builder.change()
        }
        State::Running(running) => match (loss(&builder, &running, now), outage) {
            (None, _) => flag_stall(builder, running),
            (Some(how), Some(outage)) => match spare(&builder, &running, how, outage) {
                Some(spared) => {
                    builder.job.state = State::Running(spared);
                    builder.change()
                }
                None => lose(builder, &running, how, entropy),
            },
            (Some(how), None) => lose(builder, &running, how, entropy),
        },
        State::Succeeded { at, result: Some(result) } => {
            builder.effect(match result.inline {
                true => Effect::DropResult,
                false => Effect::ScheduleDelete(ScheduledDelete { role: Some(Role::Result), attached: true, at: now }),
            });
            builder.go(State::Expired { at, expired_at: now }, Reason::ResultExpired);
            builder.change()
        }
        State::Succeeded { result: None, .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Expired { .. } => Change::Delete,
    }
}

/// A waiting job is out of time.
pub(super) fn give_up_waiting(mut builder: TransitionBuilder<'_>) -> Change {
    builder.cancelled(CancelReason::Timeout);
    builder.change()
}

/// Which of several deadlines that have passed counts: a cancel first, then the job's limit, the attempt's, the lease, and
/// at last work that does not move. `None` when that shall only be noted.
fn loss(builder: &TransitionBuilder<'_>, running: &Running, now: Timestamp) -> Option<Ending> {
    let (job, queue) = (&builder.job, builder.queue);
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
        // The deliverer always reports before the lease ends; if it has not, its process died.
        return Some(Ending::Unknown);
    }
    Some(match running.phase {
        _ if deadline < running.expires_at => Ending::HeartbeatLost,
        Phase::AwaitingAck => Ending::AckTimeout,
        Phase::Leased | Phase::Delivering => Ending::LeaseExpired,
    })
}

/// The hand-out with a longer lease, if its holder could not report during an outage. Limits of the work itself do not
/// change.
fn spare(builder: &TransitionBuilder<'_>, running: &Running, how: Ending, outage: Outage) -> Option<Running> {
    let (job, queue, mut spared) = (&builder.job, builder.queue, running.clone());
    let (deadline, extension) = match how {
        Ending::Revoked => (running.revoke_at?, queue.settings.drain_timeout),
        Ending::HeartbeatLost => (holding_deadline(job, queue, running), job.heartbeat_timeout(queue)?),
        Ending::LeaseExpired | Ending::AckTimeout | Ending::Unknown => {
            (holding_deadline(job, queue, running), running.extension)
        }
        _ => return None,
    };
    let until = outage.grace(running, deadline, extension).filter(|until| *until > builder.now)?;
    spared.work.grace_until = Some(until);
    spared.revoke_at = running.revoke_at.map(|revoke_at| if how == Ending::Revoked { until } else { revoke_at });
    Some(spared)
}

/// Is the only problem that work did not move, and could the worker not report that because of the outage?
fn was_unheard(builder: &TransitionBuilder<'_>, running: &Running, outage: Outage) -> bool {
    let (job, queue) = (&builder.job, builder.queue);
    let others = [Some(lease_deadline(job, queue, running)), running.revoke_at];
    let is_alone = others.into_iter().flatten().all(|deadline| deadline > builder.now);
    let stall = stall_deadline(job, queue, running).filter(|at| *at <= builder.now);
    let moved_at = job.work_summary.moved_at;
    is_alone && stall.is_some_and(|at| at >= outage.from) && moved_at.is_some_and(|at| at < outage.to)
}

/// Heartbeats come and work does not move: said once, until it moves again.
fn flag_stall(mut builder: TransitionBuilder<'_>, mut running: Running) -> Change {
    let since = stall_deadline(&builder.job, builder.queue, &running);
    if since.is_none_or(|at| at > builder.now) {
        return Change::None;
    }
    running.work.is_stalled = true;
    builder.job.state = State::Running(running);
    let seconds = builder.queue.settings.stall_timeout.as_secs_f64();
    builder.event(EventKind::Note { text: format!("{STALL_NOTE}: no progress for {seconds} s").into() });
    builder.change()
}
