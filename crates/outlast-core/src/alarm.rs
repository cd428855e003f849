//! The one alarm of a job: the next time at which the server must act on it. Stores keep it as `wake_at`; when it is
//! due, `decide` gets `Command::Wake` and asks here again what has to happen.

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
            stall_deadline(job, queue, running),
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
/// a new wish, so it does not count there), the job's time limit after it.
pub(crate) fn waiting_deadline(job: &Job, queue: &Queue) -> Option<Timestamp> {
    match job.started_at {
        None if job.replays == 0 => job.spec.start_by,
        None => None,
        Some(_) => job.job_deadline(queue),
    }
}

/// By when the holder must report again or be done: the lease, and the limits of the work where they are nearer.
pub fn lease_deadline(job: &Job, queue: &Queue, running: &Running) -> Timestamp {
    let holding = holding_deadline(job, queue, running);
    [hard_deadline(job, queue, running), job.job_deadline(queue)].into_iter().flatten().fold(holding, Timestamp::min)
}

/// When the lease is lost: it ran out, or a heartbeat is overdue.
pub(crate) fn holding_deadline(job: &Job, queue: &Queue, running: &Running) -> Timestamp {
    let deadline = match job.heartbeat_timeout(queue) {
        // The endpoint has not even answered: what bounds it is the webhook's own time.
        _ if running.phase == Phase::Delivering => running.expires_at,
        Some(timeout) => running.expires_at.min(running.heartbeat_at.unwrap_or(running.began_at).plus(timeout)),
        None => running.expires_at,
    };
    running.work.grace_until.map_or(deadline, |until| until.max(deadline))
}

/// How soon the next heartbeat should come: in a third of the time after which the lease is lost.
pub fn heartbeat_interval(job: &Job, queue: &Queue, running: &Running, now: Timestamp) -> Duration {
    holding_deadline(job, queue, running).since(now) / 3
}

/// The end of what the work may take, if there is one: of the attempt or of the job.
pub fn work_deadline(job: &Job, queue: &Queue, running: &Running) -> Option<Timestamp> {
    earliest([hard_deadline(job, queue, running), job.job_deadline(queue)])
}

/// Not every move is written down at once: what is stored may be behind by this much, a share of what depends on it.
pub fn move_lag(job: &Job, queue: &Queue) -> Duration {
    let stall = queue.settings.stall_timeout / LAG_SHARE;
    let job_timeout = job.job_timeout(queue).filter(|_| queue.settings.extend_while_progressing);
    job_timeout.map_or(stall, |timeout| stall.min(timeout / LAG_SHARE))
}

/// Deadlines that count from the last move are later by this share, rather than early by what is not written down.
pub(crate) const LAG_SHARE: u32 = 8;

/// When work counts as stalled: it moved in this attempt and has not since. A job that never reports progress never
/// stalls. Reports may be stored late, so this is rather too late than too early.
pub(crate) fn stall_deadline(job: &Job, queue: &Queue, running: &Running) -> Option<Timestamp> {
    let moved_at = job.work_summary.moved_at.filter(|at| *at >= running.began_at && !running.work.is_stalled)?;
    let timeout = queue.settings.stall_timeout;
    Some(moved_at.plus(timeout + timeout / LAG_SHARE))
}

pub(crate) fn hard_deadline(job: &Job, queue: &Queue, running: &Running) -> Option<Timestamp> {
    job.hard_time_limit(queue).map(|limit| running.began_at.plus(limit))
}

fn earliest<const N: usize>(times: [Option<Timestamp>; N]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}
