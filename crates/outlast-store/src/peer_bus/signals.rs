//! Signals added up: counts summed, repetitions dropped. Of bounded size: what does not fit becomes the blunter "all jobs"
//! or "everything", which is always true enough, since a signal only makes somebody look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{JobId, NamespaceId, Progress};

use super::{LeaseDigest, Signal};

/// Queues and namespaces named one by one; beyond it is "everything".
pub const QUEUES_MAX: usize = 1024;
/// Jobs named one by one: what forty milliseconds bring at 100,000 changes a second. Beyond it is "all jobs".
pub const JOBS_MAX: usize = 4096;
/// Jobs whose progress is held at once: what so many workers say in a second. Each takes less than half a KiB.
pub const PROGRESS_MAX: usize = 65_536;

/// Changes of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSignals {
    /// Jobs that became eligible.
    pub more: u32,
    pub changed: bool,
}

/// How far a job has come, and in which hand-out.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedProgress {
    pub hand_out: LeaseDigest,
    pub progress: Arc<Progress>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalSet {
    /// Anything may have changed; the other fields add nothing.
    pub everything: bool,
    /// Any job may have changed.
    pub all_jobs: bool,
    pub keys: bool,
    pub operations: bool,
    pub namespaces: BTreeSet<NamespaceId>,
    pub queues: BTreeMap<NamespaceId, BTreeMap<Box<str>, QueueSignals>>,
    pub jobs: BTreeSet<JobId>,
    /// How far some jobs have come, and in which hand-out.
    pub progress: BTreeMap<JobId, ReportedProgress>,
    /// Entries of `queues` over all namespaces.
    queue_count: usize,
}

impl SignalSet {
    pub fn everything() -> SignalSet {
        SignalSet { everything: true, ..SignalSet::default() }
    }

    pub fn is_empty(&self) -> bool {
        *self == SignalSet::default()
    }

    pub fn add(&mut self, signal: Signal<'_>) {
        if self.everything {
            return;
        }
        match signal {
            Signal::QueueHas { namespace, queue, count } => {
                self.at_queue(namespace, queue, QueueSignals { more: count, changed: false });
            }
            Signal::QueueChanged { namespace, queue } => {
                self.at_queue(namespace, queue, QueueSignals { more: 0, changed: true });
            }
            Signal::NamespaceChanged(namespace) => {
                self.namespaces.insert(namespace);
            }
            Signal::JobChanged(id) => self.at_job(id),
            Signal::KeysChanged => self.keys = true,
            Signal::OperationStarted => self.operations = true,
            Signal::Everything => self.everything = true,
        }
        self.keep_bounds();
    }

    /// Progress of a job; the latest counts. Bounded: a report beyond the bound is left out, and the next one is sent.
    pub fn add_progress(&mut self, id: JobId, told: ReportedProgress) {
        let known = self.progress.get(&id);
        let is_room = known.is_some() || self.progress.len() < PROGRESS_MAX;
        if is_room && known.is_none_or(|known| known.progress.at <= told.progress.at) {
            self.progress.insert(id, told);
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: SignalSet) {
        self.everything |= other.everything;
        self.all_jobs |= other.all_jobs;
        self.keys |= other.keys;
        self.operations |= other.operations;
        if !self.everything {
            self.namespaces.extend(other.namespaces);
            for (namespace, queues) in other.queues {
                for (queue, news) in queues {
                    self.at_queue(namespace, &queue, news);
                }
            }
            for id in other.jobs {
                self.at_job(id);
            }
        }
        for (id, told) in other.progress {
            self.add_progress(id, told);
        }
        self.keep_bounds();
    }

    pub(super) fn at_queue(&mut self, namespace: NamespaceId, queue: &str, news: QueueSignals) {
        let queues = self.queues.entry(namespace).or_default();
        match queues.get_mut(queue) {
            Some(known) => {
                known.more = known.more.saturating_add(news.more);
                known.changed |= news.changed;
            }
            None => {
                queues.insert(queue.into(), news);
                self.queue_count += 1;
            }
        }
    }

    fn at_job(&mut self, id: JobId) {
        if !self.all_jobs {
            self.jobs.insert(id);
        }
    }

    fn keep_bounds(&mut self) {
        if self.queue_count > QUEUES_MAX || self.namespaces.len() > QUEUES_MAX {
            self.everything = true;
        }
        if self.jobs.len() > JOBS_MAX {
            self.all_jobs = true;
        }
        if self.all_jobs {
            self.jobs.clear();
        }
        if self.everything {
            *self = SignalSet { progress: std::mem::take(&mut self.progress), ..SignalSet::everything() };
        }
    }

    pub(super) fn queue_count(&self) -> usize {
        self.queue_count
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    const NAMESPACE: NamespaceId = NamespaceId(7);

    fn job(number: u128) -> JobId {
        JobId::new(Timestamp::from_millis(1), number)
    }

    #[test]
    fn signals_are_added_up_and_repetitions_dropped() {
        let mut news = SignalSet::default();
        for _ in 0..3 {
            news.add(Signal::QueueHas { namespace: NAMESPACE, queue: "mail", count: 2 });
            news.add(Signal::JobChanged(job(1)));
            news.add(Signal::KeysChanged);
        }
        news.add(Signal::QueueChanged { namespace: NAMESPACE, queue: "mail" });
        news.add(Signal::QueueHas { namespace: NamespaceId(8), queue: "mail", count: u32::MAX });
        news.add(Signal::QueueHas { namespace: NamespaceId(8), queue: "mail", count: 1 });

        assert_eq!(news.queues[&NAMESPACE]["mail"], QueueSignals { more: 6, changed: true });
        assert_eq!(news.queues[&NamespaceId(8)]["mail"].more, u32::MAX);
        assert_eq!(news.jobs.len(), 1);
        assert!(news.keys && !news.operations && !news.everything);
    }

    #[test]
    fn too_many_jobs_become_all_jobs_and_leave_the_rest() {
        let mut news = SignalSet::default();
        news.add(Signal::QueueHas { namespace: NAMESPACE, queue: "mail", count: 1 });
        for number in 0..100_000 {
            news.add(Signal::JobChanged(job(number)));
            assert!(news.jobs.len() <= JOBS_MAX);
        }

        assert!(news.all_jobs && news.jobs.is_empty() && !news.everything);
        assert_eq!(news.queues[&NAMESPACE]["mail"].more, 1);
    }

    #[test]
    fn too_many_queues_become_everything() {
        let mut news = SignalSet::default();
        for number in 0..=QUEUES_MAX {
            assert!(!news.everything, "{number}");
            news.add(Signal::QueueHas { namespace: NAMESPACE, queue: &format!("q{number}"), count: 1 });
        }

        assert_eq!(news, SignalSet::everything());
        news.add(Signal::KeysChanged);
        assert_eq!(news, SignalSet::everything());
    }

    #[test]
    fn merging_is_adding_one_after_the_other() {
        let signals = |from: u32, to: u32| {
            let mut news = SignalSet::default();
            for number in from..to {
                let queue = format!("q{}", number % 5);
                news.add(Signal::QueueHas { namespace: NamespaceId(number % 3), queue: &queue, count: number });
                news.add(Signal::QueueChanged { namespace: NamespaceId(1), queue: &queue });
                news.add(Signal::JobChanged(job(u128::from(number % 11))));
                news.add(Signal::NamespaceChanged(NamespaceId(number % 2)));
            }
            news
        };

        let mut merged = signals(0, 20);
        merged.merge(signals(20, 60));

        assert_eq!(merged, signals(0, 60));
    }
}
