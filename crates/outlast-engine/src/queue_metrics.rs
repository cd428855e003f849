//! Metrics of single queues: how long jobs waited and were worked on, how long commits took, how many leases were lost. Recording takes no lock and no memory. The number of queues with figures of their own is bounded, and no
//! namespace can take them all; the figures of the rest are added up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use outlast_core::{NamespaceId, QueueId};
use outlast_store::histogram::{COMMIT_BOUNDS, Histogram, JOB_BOUNDS};

use crate::counters::Counter;

/// Queues with figures of their own: some 50,000 lines at worst, which a scrape can take.
const QUEUES_MAX: usize = 1024;
/// Queues that are remembered, with and without figures of their own: a power of two. One beyond them costs a few more reads.
const PLACES: usize = 16 * QUEUES_MAX;
/// How many places are looked at for one queue.
const PROBES_MAX: usize = 16;
/// The number of the figures that are added up.
const OTHERS: u64 = 0xffff;

#[derive(Debug)]
pub struct QueueFigures {
    /// From when a job could be handed out until it was.
    pub wait: Histogram,
    /// From a hand-out to its end.
    pub work: Histogram,
    /// From a publish or report to its commit.
    pub commit: Histogram,
    /// Hand-outs whose worker let the lease run out or stopped its heartbeats.
    pub leases_lost: Counter,
}

impl Default for QueueFigures {
    fn default() -> QueueFigures {
        QueueFigures {
            wait: Histogram::new(JOB_BOUNDS),
            work: Histogram::new(JOB_BOUNDS),
            commit: Histogram::new(COMMIT_BOUNDS),
            leases_lost: Counter::default(),
        }
    }
}

/// Queues stay until the process ends, also deleted ones: their numbers are never used again.
#[derive(Debug)]
pub struct QueueMetrics {
    /// Number of the queue plus one, and number of its figures in the low 16 bits; 0 is a free place.
    places: Box<[AtomicU64]>,
    figures: Box<[OnceLock<Box<QueueFigures>>]>,
    others: Box<QueueFigures>,
    /// Only for queues that are new here.
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    count: usize,
    by_namespace: HashMap<NamespaceId, usize>,
}

impl Given {
    /// A namespace may have as many as are left: the first one half of all, the next one half of the rest, and so on.
    fn give(&mut self, namespace: NamespaceId) -> Option<usize> {
        let own = self.by_namespace.entry(namespace).or_default();
        if *own >= QUEUES_MAX - self.count {
            return None;
        }
        *own += 1;
        self.count += 1;
        Some(self.count - 1)
    }
}

impl Default for QueueMetrics {
    fn default() -> QueueMetrics {
        QueueMetrics {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            figures: (0..QUEUES_MAX).map(|_| OnceLock::new()).collect(),
            others: Box::default(),
            given: Mutex::default(),
        }
    }
}

impl QueueMetrics {
    /// The figures that this queue is counted in.
    pub(crate) fn of(&self, namespace: NamespaceId, queue: QueueId) -> &QueueFigures {
        match self.find(queue) {
            Ok(number) => self.numbered(number),
            Err(Some(_)) => self.admit(namespace, queue),
            Err(None) => &self.others,
        }
    }

    /// The figures of this queue alone; `None` if nothing was counted, or only with others.
    pub fn own(&self, queue: QueueId) -> Option<&QueueFigures> {
        let number = self.find(queue).ok().filter(|number| *number != OTHERS)?;
        Some(self.numbered(number))
    }

    /// The sum of all queues without figures of their own.
    pub fn others(&self) -> &QueueFigures {
        &self.others
    }

    fn numbered(&self, number: u64) -> &QueueFigures {
        let own = usize::try_from(number).ok().and_then(|number| self.figures.get(number));
        own.map_or(&*self.others, |figures| figures.get_or_init(Box::default))
    }

    /// The number of the queue's figures, or a free place for it, if there is one.
    fn find(&self, queue: QueueId) -> Result<u64, Option<&AtomicU64>> {
        let id = u64::from(queue.0) + 1;
        // Numbers of queues follow each other, so they hardly meet.
        let start = usize::try_from(queue.0).unwrap_or_default();
        for probe in 0..PROBES_MAX {
            let Some(place) = self.places.get((start + probe) % PLACES) else { break };
            match place.load(Ordering::Acquire) {
                0 => return Err(Some(place)),
                taken if taken >> 16 == id => return Ok(taken & OTHERS),
                _ => {}
            }
        }
        Err(None)
    }

    fn admit(&self, namespace: NamespaceId, queue: QueueId) -> &QueueFigures {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        match self.find(queue) {
            Ok(number) => self.numbered(number),
            Err(None) => &self.others,
            Err(Some(place)) => {
                let number = given.give(namespace).and_then(|number| u64::try_from(number).ok()).unwrap_or(OTHERS);
                place.store((u64::from(queue.0) + 1) << 16 | number, Ordering::Release);
                self.numbered(number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn waited(metrics: &QueueMetrics, queue: u32) -> Option<u64> {
        metrics.own(QueueId(queue)).map(|own| own.wait.read().count())
    }

    #[test]
    fn a_queue_has_figures_of_its_own() {
        let metrics = QueueMetrics::default();
        for queue in [1, 2, 2] {
            metrics.of(NamespaceId(1), QueueId(queue)).wait.record(Duration::from_secs(1));
        }

        assert_eq!((waited(&metrics, 1), waited(&metrics, 2), waited(&metrics, 3)), (Some(1), Some(2), None));
        assert_eq!(metrics.others().wait.read().count(), 0);
    }

    #[test]
    fn a_namespace_with_many_queues_leaves_room_for_others_and_loses_no_count() {
        let metrics = QueueMetrics::default();
        let many = 100_000_u32;
        for queue in 1..=many {
            metrics.of(NamespaceId(1), QueueId(queue)).wait.record(Duration::from_secs(1));
        }
        for namespace in 2..8 {
            metrics.of(NamespaceId(namespace), QueueId(many + namespace)).wait.record(Duration::from_secs(1));
        }

        let own = (1..=many).filter_map(|queue| waited(&metrics, queue)).sum::<u64>();
        assert_eq!(own, 512, "half of all");
        assert_eq!(own + metrics.others().wait.read().count(), u64::from(many) + 6);
    }

    #[test]
    fn later_namespaces_get_figures_of_their_own() {
        let metrics = QueueMetrics::default();
        for queue in 1..=5_000 {
            metrics.of(NamespaceId(1), QueueId(queue));
        }
        for namespace in 2..8 {
            let queue = 6_000 + namespace;
            metrics.of(NamespaceId(namespace), QueueId(queue)).wait.record(Duration::from_secs(1));
            assert_eq!(waited(&metrics, queue), Some(1), "namespace {namespace}");
        }
    }
}
