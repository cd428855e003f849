//! Heartbeats that wait. Their leases were renewed on arrival; the wait ends when the directives of a lease differ from those
//! that its worker has seen, or when a lease is lost. A cancel so reaches a worker at once, with one connection for all its jobs.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use outlast_core::alarm::{heartbeat_interval, lease_deadline, work_deadline};
use outlast_core::directive::{Directive, DirectiveSet, directives, is_held_back};
use outlast_core::liveness::{soft_limit_at, soft_limit_reached};
use outlast_core::{Job, JobId, Lease, Queue, QueueId, Refusal, Running, State, Timestamp};
use outlast_store::jobs::{Declined, FoundJob, Reach};
use tokio::time::{Instant, sleep_until};

use super::Work;
use crate::notifier::job_listeners::JobListeners;

/// A hold of a queue sets `slow_down` and wakes no watcher of a job: it is looked for this often.
const QUEUE_LOOK: Duration = Duration::from_secs(5);
/// Jobs that change all the time, by output say, are read at most this often.
const ROUND_GAP: Duration = Duration::from_millis(50);
/// How many jobs are read at once.
const READS_MAX: usize = 8;

/// What a worker learns about its lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseStatus {
    pub expires_at: Timestamp,
    /// The end of what the work may take.
    pub deadline: Option<Timestamp>,
    pub directives: Vec<Directive>,
    pub cancel_requested: bool,
    pub soft_limit_reached: bool,
}

impl LeaseStatus {
    pub fn of(job: &Job, queue: &Queue, running: &Running, now: Timestamp) -> LeaseStatus {
        LeaseStatus {
            expires_at: lease_deadline(job, queue, running),
            deadline: work_deadline(job, queue, running),
            directives: directives(job, queue, running, now),
            cancel_requested: running.revoke_at.is_some(),
            soft_limit_reached: soft_limit_reached(job, queue, running, now),
        }
    }
}

/// A lease that a waiting heartbeat has renewed. Small: the job itself is not kept.
#[derive(Clone, Debug)]
pub struct WatchedLease {
    id: JobId,
    lease: Lease,
    queue: QueueId,
    /// `None`: directives do not end the wait.
    seen: Option<DirectiveSet>,
    was_held_back: bool,
    soft_limit_at: Option<Timestamp>,
    /// No wait is longer, so that the next heartbeat comes in time.
    pub wait_max: Duration,
}

impl WatchedLease {
    /// `None` when the job does not run any more.
    pub fn new(job: &Job, queue: &Queue, seen: Option<DirectiveSet>, now: Timestamp) -> Option<WatchedLease> {
        let running = job.running()?;
        Some(WatchedLease {
            id: job.id,
            lease: running.lease,
            queue: job.queue,
            seen,
            was_held_back: is_held_back(queue, now),
            soft_limit_at: soft_limit_at(job, queue, running),
            wait_max: heartbeat_interval(job, queue, running, now),
        })
    }

    /// Has the worker something to learn?
    pub fn differs(&self, status: &LeaseStatus) -> bool {
        self.seen.is_some_and(|seen| seen != status.directives.iter().copied().collect())
    }

    /// The news about this lease, if there is any.
    fn news(&self, found: Option<FoundJob>, now: Timestamp) -> Option<Result<LeaseStatus, Declined>> {
        let Some(FoundJob { job, queue }) = found else {
            return Some(Err(Declined::NotFound));
        };
        match &job.state {
            State::Running(running) if running.lease == self.lease => {
                let status = LeaseStatus::of(&job, &queue, running, now);
                self.differs(&status).then_some(Ok(status))
            }
            _ => Some(Err(Declined::Refused(Refusal::LeaseLost))),
        }
    }
}

/// Listens to the jobs of a heartbeat.
pub struct LeaseWatch {
    listeners: JobListeners,
    reach: Reach,
}

impl Work {
    /// Begins to listen. To be called before the heartbeats are stored: a change after them is then not missed.
    pub fn watch_leases(&self, jobs: &[JobId], reach: &Reach) -> LeaseWatch {
        let listeners = JobListeners::new(&self.announcer.notifier, jobs.iter().copied(), reach.namespace());
        LeaseWatch { listeners, reach: reach.clone() }
    }

    /// Waits until there is news about one of the leases, at most for `wait`; `leases` are those of all jobs that the watch
    /// listens to. Returns the news with the place of its lease, or nothing. Cancel-safe.
    pub async fn lease_news(
        &self,
        mut watch: LeaseWatch,
        leases: &[WatchedLease],
        wait: Duration,
    ) -> Vec<(usize, Result<LeaseStatus, Declined>)> {
        (0..leases.len()).for_each(|place| watch.listeners.skip_own_change(place));
        let end = Instant::now() + wait;
        let mut queue_look = Instant::now() + QUEUE_LOOK;
        loop {
            let began = (Instant::now(), self.clock.now());
            let timer = end.min(queue_look).min(soft_limit(leases, began).unwrap_or(end));
            let places = tokio::select! {
                biased;
                places = watch.listeners.changed() => places,
                () = sleep_until(timer) => self.due(&watch.reach, leases, began.1, &mut queue_look).await,
            };
            let news = self.news(&watch.reach, leases, places).await;
            if !news.is_empty() || Instant::now() >= end || self.jobs.lifecycle.is_draining() {
                return news;
            }
            sleep_until(end.min(began.0 + ROUND_GAP)).await;
        }
    }

    /// The places of leases that time may have changed since `then`.
    async fn due(
        &self,
        reach: &Reach,
        leases: &[WatchedLease],
        then: Timestamp,
        queue_look: &mut Instant,
    ) -> Vec<usize> {
        let now = self.clock.now();
        let passed = |lease: &WatchedLease| lease.soft_limit_at.is_some_and(|at| at > then && at <= now);
        let mut due: Vec<usize> = places(leases, passed);
        if Instant::now() < *queue_look {
            return due;
        }
        *queue_look = Instant::now() + QUEUE_LOOK;
        let mut queues: Vec<QueueId> = Vec::new();
        for lease in leases.iter().filter(|lease| lease.seen.is_some()) {
            if queues.contains(&lease.queue) {
                continue;
            }
            queues.push(lease.queue);
            let found = self.jobs.job(reach, lease.id).await.ok().flatten();
            if found.is_some_and(|found| is_held_back(&found.queue, now) != lease.was_held_back) {
                due.extend(places(leases, |other| other.queue == lease.queue));
            }
        }
        due
    }

    /// Reads these jobs. What cannot be read is no news: the next heartbeat meets the same error.
    async fn news(
        &self,
        reach: &Reach,
        leases: &[WatchedLease],
        places: Vec<usize>,
    ) -> Vec<(usize, Result<LeaseStatus, Declined>)> {
        let read = |place: usize| async move {
            let lease = leases.get(place)?;
            let found = self.jobs.job(reach, lease.id).await.ok()?;
            lease.news(found, self.clock.now()).map(|news| (place, news))
        };
        stream::iter(places).map(read).buffered(READS_MAX).filter_map(std::future::ready).collect().await
    }
}

fn places(leases: &[WatchedLease], wanted: impl Fn(&WatchedLease) -> bool) -> Vec<usize> {
    leases.iter().enumerate().filter(|(_, lease)| wanted(lease)).map(|(place, _)| place).collect()
}

/// When the next soft limit is reached that a worker waits to learn of.
fn soft_limit(leases: &[WatchedLease], (began, now): (Instant, Timestamp)) -> Option<Instant> {
    let watched = leases.iter().filter(|lease| lease.seen.is_some());
    let next = watched.filter_map(|lease| lease.soft_limit_at).filter(|at| *at > now).min()?;
    Some(began + next.since(now) + Duration::from_millis(1))
}
