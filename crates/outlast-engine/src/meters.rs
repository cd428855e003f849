//! What the engine counts about itself since it started. Readable at any time; never needed for correctness.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Meters {
    pub published: Meter,
    pub duplicates: Meter,
    pub handed_out: Meter,
    /// Deliveries to endpoints that were begun.
    pub deliveries: Meter,
    pub acked: Meter,
    pub nacked: Meter,
    pub deferred: Meter,
    pub released: Meter,
    pub refused_reports: Meter,
    /// Jobs moved by an alarm: due, lease lost, expired, purged.
    pub woken: Meter,
    /// Objects that nobody wanted any more.
    pub objects_deleted: Meter,
    /// Times that the bytes of an object were found not to be those that were written.
    pub objects_damaged: Meter,
    /// Times that work on a job was found not to move.
    pub stalled: Meter,
    /// Events of providers that were stored, and that had been before.
    pub events: Meter,
    pub events_repeated: Meter,
    /// Webhooks whose signature was not believed, or that came from elsewhere.
    pub events_refused: Meter,
    pub filters_exhausted: Meter,
    /// Reads of single jobs and of their logs, for those who poll, follow or report.
    pub job_reads: Meter,
    pub loop_failures: Meter,
}
