//! Conditions that hold for every job at every moment, and across every change. The property tests, the simulator and
//! the stores before they write all check them here; no other code states these rules.

use crate::change::Update;
use crate::ids::JobId;
use crate::job::Job;
use crate::queue::Queue;
use crate::state::{State, Status};

/// A broken rule: a bug of ours, never of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {rule}")]
pub struct Violation {
    pub id: &'static str,
    pub rule: &'static str,
    /// Nothing else of the job: payloads and keys do not belong into messages.
    pub job: JobId,
}

/// Rules of a single moment.
pub fn check(job: &Job, queue: &Queue) -> Result<(), Violation> {
    check_job(job)?;
    let rules = [
        ("I-17", "attempt stays within the limit", job.attempt <= job.max_attempts(queue)),
        ("I-18", "deferrals stay within their budget", job.deferrals <= job.max_deferrals(queue)),
        ("I-14", "a lease ends after it began", running_times_are_ordered(job)),
        (
            "state",
            "a pending job waits for a later time than it was made",
            !matches!(job.state, State::Pending { until, .. } if until < job.created_at),
        ),
    ];
    first_broken(&rules, job)
}

/// Those of them that hold whatever the queue's settings are changed to and however often a clock is set back: stores check
/// them before they write.
pub fn check_job(job: &Job) -> Result<(), Violation> {
    let rules = [
        ("I-17", "the first attempt is number 1", job.attempt >= 1),
        (
            "I-14",
            "a running job was handed out",
            !matches!(job.state, State::Running(_)) || (job.epoch > 0 && job.started_at.is_some()),
        ),
        ("I-16", "a finished job knows when", job.status().is_terminal() == job.finished_at().is_some()),
        (
            "state",
            "a queued job knows since when",
            !matches!(job.state, State::Queued { .. }) || job.queued_at.is_some(),
        ),
    ];
    first_broken(&rules, job)
}

/// Rules between one moment and the next.
pub fn check_step(before: &Job, update: &Update) -> Result<(), Violation> {
    let after = &update.job;
    let replayed = after.replays == before.replays + 1;
    let rules = [
        ("state", "the version grows by one", after.version == before.version + 1),
        ("state", "events are gapless", events_are_gapless(before, update)),
        ("I-14", "epochs never fall, and grow by one on a hand-out only", epoch_is_right(before, after)),
        ("I-14", "a lease is replaced only after it ended", lease_is_right(before, after)),
        (
            "I-16",
            "a finished job changes only by replay or expiry",
            !before.status().is_terminal() || replayed || expires(before, after),
        ),
        (
            "I-16",
            "only a failed or cancelled job is replayed",
            after.replays == before.replays
                || (replayed && matches!(before.status(), Status::Failed | Status::Cancelled)),
        ),
        (
            "I-17",
            "an attempt is charged at most once per step",
            replayed || after.attempt == before.attempt || after.attempt == before.attempt + 1,
        ),
        ("I-18", "a deferral charges nothing", after.deferrals <= before.deferrals || after.attempt == before.attempt),
        (
            "state",
            "creation never changes",
            before.id == after.id && before.created_at == after.created_at && before.queue == after.queue,
        ),
    ];
    first_broken(&rules, after)
}

fn first_broken(rules: &[(&'static str, &'static str, bool)], job: &Job) -> Result<(), Violation> {
    match rules.iter().find(|(_, _, holds)| !holds) {
        Some((id, rule, _)) => Err(Violation { id, rule, job: job.id }),
        None => Ok(()),
    }
}

fn running_times_are_ordered(job: &Job) -> bool {
    match &job.state {
        State::Running(running) => running.expires_at >= running.began_at && running.began_at >= job.created_at,
        _ => true,
    }
}

fn events_are_gapless(before: &Job, update: &Update) -> bool {
    let numbered = update.events.iter().zip(before.events + 1..).all(|(event, seq)| event.seq == seq);
    let count = u64::try_from(update.events.len()).unwrap_or(u64::MAX);
    numbered && update.job.events == before.events + count
}

fn epoch_is_right(before: &Job, after: &Job) -> bool {
    match handed_out(before, after) {
        true => after.epoch == before.epoch + 1,
        false => after.epoch == before.epoch,
    }
}

fn handed_out(before: &Job, after: &Job) -> bool {
    before.status() == Status::Queued && after.status() == Status::Running
}

fn lease_is_right(before: &Job, after: &Job) -> bool {
    match (&before.state, &after.state) {
        (State::Running(old), State::Running(new)) => old.lease == new.lease,
        (_, State::Running(_)) => before.status() == Status::Queued,
        _ => true,
    }
}

fn expires(before: &Job, after: &Job) -> bool {
    before.status() == Status::Succeeded
        && after.status() == Status::Expired
        && before.finished_at() == after.finished_at()
}
