//! One word for how the work on a running job goes, from its lease, its heartbeats and its progress.

use std::time::Duration;

use crate::alarm::lease_deadline;
use crate::job::Job;
use crate::queue::Queue;
use crate::state::Running;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Working,
    /// The last report is old, or the soft limit has passed, or there was no progress for half of the allowed time.
    Slow,
    /// Heartbeats come, but work does not move.
    Stuck,
    /// The lease has ended; the sweep will take it away at any moment.
    Dead,
}

impl Liveness {
    pub fn as_str(self) -> &'static str {
        match self {
            Liveness::Working => "working",
            Liveness::Slow => "slow",
            Liveness::Stuck => "stuck",
            Liveness::Dead => "dead",
        }
    }
}

/// `moved_at` may be fresher than what the job knows.
pub fn liveness(job: &Job, queue: &Queue, running: &Running, moved_at: Option<Timestamp>, now: Timestamp) -> Liveness {
    if lease_deadline(job, queue, running) <= now {
        return Liveness::Dead;
    }
    let moved_at = moved_at.max(job.work_summary.moved_at.filter(|at| *at >= running.began_at));
    let silent = |limit: Duration| moved_at.is_some_and(|at| at.plus(limit) <= now);
    let stall = queue.settings.stall_timeout;
    if silent(stall) {
        return Liveness::Stuck;
    }
    let heard_at = running.heartbeat_at.unwrap_or(running.began_at);
    let is_late = heard_at.plus(running.extension * 2 / 3) <= now;
    if is_late || silent(stall / 2) || soft_limit_reached(job, queue, running, now) {
        return Liveness::Slow;
    }
    Liveness::Working
}

/// The attempt has run for longer than the worker was asked to.
pub fn soft_limit_reached(job: &Job, queue: &Queue, running: &Running, now: Timestamp) -> bool {
    soft_limit_at(job, queue, running).is_some_and(|at| at <= now)
}

/// From when on that is so, if there is a limit.
pub fn soft_limit_at(job: &Job, queue: &Queue, running: &Running) -> Option<Timestamp> {
    job.soft_time_limit(queue).map(|limit| running.began_at.plus(limit))
}
