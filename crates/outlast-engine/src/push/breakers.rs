//! Circuit breakers in the memory of this node, one per namespace and endpoint host: the failures of one tenant's endpoint say
//! nothing about another tenant's. The hold of a queue is in the store, so all nodes obey it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::breaker::Breaker;
use outlast_core::{NamespaceId, Timestamp};

/// Hosts of a namespace that fail at the same time; more are not remembered.
const HOSTS_MAX: usize = 1000;
/// Namespaces with such hosts; more are not remembered.
const NAMESPACES_MAX: usize = 10_000;

type Hosts = HashMap<Box<str>, Breaker>;

#[derive(Default)]
pub(crate) struct Breakers(Mutex<HashMap<NamespaceId, Hosts>>);

impl Breakers {
    /// May something be sent there? If not, when it may be tried again.
    pub(crate) fn admits(&self, namespace: NamespaceId, host: &str, now: Timestamp) -> Result<(), Timestamp> {
        let mut namespaces = self.lock();
        let breaker = namespaces.get_mut(&namespace).and_then(|hosts| hosts.get_mut(host));
        breaker.map_or(Ok(()), |breaker| breaker.admits(now))
    }

    pub(crate) fn is_open(&self, namespace: NamespaceId, host: &str, now: Timestamp) -> bool {
        let namespaces = self.lock();
        namespaces.get(&namespace).and_then(|hosts| hosts.get(host)).is_some_and(|breaker| breaker.is_open(now))
    }

    pub(crate) fn answered(&self, namespace: NamespaceId, host: &str) {
        // Only hosts that have failed are here.
        let mut namespaces = self.lock();
        let Some(hosts) = namespaces.get_mut(&namespace) else {
            return;
        };
        hosts.remove(host);
        if hosts.is_empty() {
            namespaces.remove(&namespace);
        }
    }

    pub(crate) fn failed(&self, namespace: NamespaceId, host: &str, now: Timestamp) {
        let mut namespaces = self.lock();
        if !namespaces.contains_key(&namespace) && namespaces.len() >= NAMESPACES_MAX {
            // A closed breaker can be forgotten; an open one cannot.
            namespaces.retain(|_, hosts| hosts.values().any(|breaker| breaker.is_open(now)));
            if namespaces.len() >= NAMESPACES_MAX {
                return;
            }
        }
        let hosts = namespaces.entry(namespace).or_default();
        if let Some(breaker) = hosts.get_mut(host) {
            return breaker.failed(now);
        }
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, breaker| breaker.is_open(now));
        }
        if hosts.len() < HOSTS_MAX {
            let mut breaker = Breaker::default();
            breaker.failed(now);
            hosts.insert(host.into(), breaker);
        }
    }

    /// How many are open.
    pub(crate) fn open(&self, now: Timestamp) -> usize {
        self.lock().values().flat_map(HashMap::values).filter(|breaker| breaker.is_open(now)).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NamespaceId, Hosts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: NamespaceId = NamespaceId(1);
    const THEIRS: NamespaceId = NamespaceId(2);
    const NOW: Timestamp = Timestamp::EPOCH;

    fn open(breakers: &Breakers, namespace: NamespaceId, host: &str) {
        while !breakers.is_open(namespace, host, NOW) {
            breakers.failed(namespace, host, NOW);
        }
    }

    #[test]
    fn a_circuit_is_open_for_its_namespace_only() {
        let breakers = Breakers::default();
        open(&breakers, OURS, "https://example.com");

        assert!(breakers.admits(OURS, "https://example.com", NOW).is_err());
        assert!(breakers.admits(THEIRS, "https://example.com", NOW).is_ok());
        assert!(!breakers.is_open(THEIRS, "https://example.com", NOW));

        breakers.answered(THEIRS, "https://example.com");
        assert!(breakers.is_open(OURS, "https://example.com", NOW), "an answer to others closes nothing");
        breakers.answered(OURS, "https://example.com");
        assert_eq!((breakers.open(NOW), breakers.lock().len()), (0, 0));
    }

    #[test]
    fn one_namespace_cannot_use_up_the_places_of_another() {
        let breakers = Breakers::default();
        for host in 0..2 * HOSTS_MAX {
            open_or_full(&breakers, &format!("https://{host}.example.com"));
        }
        assert_eq!(breakers.open(NOW), HOSTS_MAX);

        open(&breakers, THEIRS, "https://example.com");
        assert_eq!(breakers.open(NOW), HOSTS_MAX + 1);
    }

    fn open_or_full(breakers: &Breakers, host: &str) {
        for _ in 0..20 {
            breakers.failed(OURS, host, NOW);
        }
    }
}
