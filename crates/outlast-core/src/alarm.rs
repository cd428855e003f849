//! The one alarm of a job: the next moment at which something must happen to it by itself. Stores keep it as `wake_at`;
//! when it rings, `decide` gets `Command::Wake` and asks again here what is due.

use std::time::Duration;

use crate::job::Job;
use crate::queue::Queue;
use crate::state::{Phase, Running, State};
use crate::time::Timestamp;

/// When to wake this job; `None` when only a command can move it.
pub fn alarm(job: &Job, queue: &Queue) -> Option<Timestamp> {
    match &job.state {
        State::Pending { until, .. } => earliest([Some(*until), waiting_deadline(job, queue)]),
        State::Queued { .. } => waiting_deadline(job, queue),
        State::Running(running) => earliest([
            Some(lease_deadline(job, queue, running)),
            running.revoke_at,
            hard_deadline(job, queue, running),
            job.run_deadline(queue),
        ]),
        State::Succeeded { at, result } => Some(match result {
            Some(_) => at.plus(job.result_ttl(queue)),
            None => purge_at(*at, queue),
        }),
        State::Failed { at, .. } | State::Cancelled { at, .. } => Some(purge_at(*at, queue)),
        State::Expired { expired_at, .. } => Some(purge_at(*expired_at, queue)),
    }
}

/// When retention ends, rounded up to a thousandth of itself and at most to the minute, so that jobs finished around the
/// same time are purged in one transaction instead of one by one.
fn purge_at(at: Timestamp, queue: &Queue) -> Timestamp {
    let retention = queue.settings.retention;
    let grain = i64::try_from((retention / 1000).min(Duration::from_secs(60)).as_millis()).unwrap_or(1).max(1);
    let exact = at.plus(retention).as_millis();
    Timestamp::from_millis(exact.saturating_add(grain - 1) / grain * grain)
}

/// When a job that is not running is given up: `startBy` before its first start (a replay is
/// a new wish, so it does not count there), the run's time limit after it.
pub(crate) fn waiting_deadline(job: &Job, queue: &Queue) -> Option<Timestamp> {
    match job.started_at {
        None if job.run == 1 => job.spec.start_by,
        None => None,
        Some(_) => job.run_deadline(queue),
    }
}

/// When the lease is lost: it ran out, or a heartbeat is overdue.
pub fn lease_deadline(job: &Job, queue: &Queue, running: &Running) -> Timestamp {
    match job.heartbeat_timeout(queue) {
        // The endpoint has not even answered: what bounds it is the webhook's own time.
        _ if running.phase == Phase::Delivering => running.expires_at,
        Some(timeout) => running.expires_at.min(running.heartbeat_at.unwrap_or(running.began_at).plus(timeout)),
        None => running.expires_at,
    }
}

pub(crate) fn hard_deadline(job: &Job, queue: &Queue, running: &Running) -> Option<Timestamp> {
    job.hard_time_limit(queue).map(|limit| running.began_at.plus(limit))
}

fn earliest<const N: usize>(times: [Option<Timestamp>; N]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}
