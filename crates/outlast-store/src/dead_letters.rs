//! Dead letters of a queue in the order of their failure: what a list of them asks for, and what it brings.

use outlast_core::{Job, State, Timestamp};

use crate::jobs::{FoundJob, Reach};

/// Which dead letters to list, the latest failure first.
#[derive(Clone, Debug)]
pub struct ListDeadLetters {
    pub reach: Reach,
    pub queue: String,
    /// Only those that failed before this one.
    pub before: Option<Failure>,
    pub limit: usize,
}

/// The place of a dead letter in the order of failures. Of those that failed in the same millisecond the job that was
/// published later counts as the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    pub at: Timestamp,
    /// The job's position, as in [`crate::jobs::JobPage::next`].
    pub position: u64,
}

/// A page may be short, even empty, and still have a `next`: it ends when its jobs fill it ([`crate::page`]). The jobs are
/// without their payloads.
#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    pub jobs: Vec<FoundJob>,
    pub next: Option<Failure>,
}

/// When the job failed, if it has.
pub fn failed_at(job: &Job) -> Option<Timestamp> {
    match job.state {
        State::Failed { at, .. } => Some(at),
        _ => None,
    }
}
