//! Counters of the engine since its start. Readable at any time; never needed for correctness.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::queue_metrics::QueueMetrics;

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Figures of single queues.
    pub queues: QueueMetrics,
    pub published: Counter,
    pub duplicates: Counter,
    pub handed_out: Counter,
    /// Deliveries to endpoints that were begun.
    pub deliveries: Counter,
    pub acked: Counter,
    pub nacked: Counter,
    pub deferred: Counter,
    pub released: Counter,
    pub refused_reports: Counter,
    /// Jobs moved by an alarm: due, lease lost, expired, purged.
    pub woken: Counter,
    /// Objects that no job needed any more.
    pub objects_deleted: Counter,
    /// Times that the bytes of an object were found not to be those that were written.
    pub objects_damaged: Counter,
    /// Times that work on a job was found not to move.
    pub stalled: Counter,
    /// Events of providers that were stored, and that had been before.
    pub events: Counter,
    pub events_repeated: Counter,
    /// Webhooks with a wrong signature, or from an address that is not allowed.
    pub events_refused: Counter,
    pub filters_exhausted: Counter,
    /// Reads of single jobs and of their logs, for polls, streams and reports.
    pub job_reads: Counter,
    pub loop_failures: Counter,
}
