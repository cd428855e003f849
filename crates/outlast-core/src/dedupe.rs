//! Idempotency: when a key still belongs to a job. One job per (namespace, queue, key) while this says so.

use crate::job::Job;
use crate::queue::{Dedupe, Queue};
use crate::state::Status;
use crate::time::Timestamp;

/// Longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Does `job` still hold its key? An unfinished job always does; a finished one until its window ends, or, with
/// `unless_failed`, until it failed, was cancelled or expired.
pub fn holds_key(job: &Job, queue: &Queue, now: Timestamp) -> bool {
    let status = job.status();
    if !status.is_terminal() {
        return true;
    }
    if queue.settings.dedupe == Dedupe::UnlessFailed && status != Status::Succeeded {
        return false;
    }
    now < job.created_at.plus(queue.settings.dedupe_window())
}

/// Does `other` keep `job` from being replayed? A replayed job is live and holds its key again, so no other job may be live
/// with that key or have succeeded with it. Two jobs that both failed do not block each other: either may be replayed.
pub fn blocks_replay(other: &Job, job: &Job, queue: &Queue, now: Timestamp) -> bool {
    let failed = matches!(other.status(), Status::Failed | Status::Cancelled | Status::Expired);
    job.spec.idempotency_key.is_some()
        && other.id != job.id
        && other.queue == job.queue
        && other.spec.idempotency_key == job.spec.idempotency_key
        && !failed
        && holds_key(other, queue, now)
}
