//! What all viewers have seen, and when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::load::Meter;

#[derive(Default)]
pub(super) struct Audience {
    /// For each event, when it came to whom.
    arrivals: Mutex<BTreeMap<u64, Vec<Instant>>>,
    open: AtomicUsize,
    /// The server is killed under its viewers; before that no stream may end.
    expects_cuts: AtomicBool,
    /// Answers that asked to come later.
    pub(super) later: Meter,
    /// Connections that were taken and ended without an answer.
    pub(super) cut: Meter,
}

impl Audience {
    pub(super) fn note(&self, event: u64, arrived: Instant) {
        self.lock().entry(event).or_default().push(arrived);
    }

    pub(super) fn count_of(&self, event: u64) -> usize {
        self.lock().get(&event).map_or(0, Vec::len)
    }

    pub(super) fn arrivals(&self, event: u64) -> Vec<Instant> {
        self.lock().get(&event).cloned().unwrap_or_default()
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// All streams are over from here on, whether their viewers know it yet or not.
    pub(super) fn expect_cuts(&self) {
        self.open.store(0, Ordering::Relaxed);
        self.expects_cuts.store(true, Ordering::Relaxed);
    }

    pub(super) fn expects_cuts(&self) -> bool {
        self.expects_cuts.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Instant>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
