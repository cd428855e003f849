//! How many jobs of a namespace wait, as far as a publish must know. Counting costs a query, so a namespace far below its
//! limit is counted once in a while; close to the limit it is counted each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outlast_core::NamespaceId;
use tokio::time::Instant;

const FRESH: Duration = Duration::from_secs(1);
/// More than all nodes together publish while a count is fresh.
const SLACK: u64 = 200_000;

#[derive(Debug)]
pub(super) struct Quota {
    pub(super) waiting_max: u64,
    counted: Mutex<HashMap<NamespaceId, (u64, Instant)>>,
}

impl Quota {
    pub(super) fn new(waiting_max: u64) -> Quota {
        Quota { waiting_max, counted: Mutex::new(HashMap::new()) }
    }

    /// Must this namespace be counted before it takes `more` jobs?
    pub(super) fn must_count(&self, namespace: NamespaceId, more: usize) -> bool {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        !counted.get(&namespace).is_some_and(|(waiting, at)| {
            at.elapsed() < FRESH && waiting.saturating_add(more).saturating_add(SLACK) < self.waiting_max
        })
    }

    pub(super) fn learn(&self, namespace: NamespaceId, waiting: u64) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.insert(namespace, (waiting, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_counted_at_first_and_whenever_it_is_near_its_limit() {
        let quota = Quota::new(1_000_000);
        let namespace = NamespaceId(1);

        assert!(quota.must_count(namespace, 1));
        quota.learn(namespace, 10);
        assert!(!quota.must_count(namespace, 1));
        quota.learn(namespace, 900_000);
        assert!(quota.must_count(namespace, 1));
    }
}
