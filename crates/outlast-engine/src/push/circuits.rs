//! A circuit breaker per endpoint host, in the memory of this node. That a queue rests because of one is in the store, as
//! its hold, so all nodes keep to it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::Timestamp;
use outlast_core::breaker::Breaker;

/// Hosts that fail at the same time; more are not remembered.
const HOSTS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Circuits(Mutex<HashMap<Box<str>, Breaker>>);

impl Circuits {
    /// May something be sent there? If not, when it may be tried again.
    pub(crate) fn admits(&self, host: &str, now: Timestamp) -> Result<(), Timestamp> {
        self.lock().get_mut(host).map_or(Ok(()), |breaker| breaker.admits(now))
    }

    pub(crate) fn is_open(&self, host: &str, now: Timestamp) -> bool {
        self.lock().get(host).is_some_and(|breaker| breaker.is_open(now))
    }

    pub(crate) fn answered(&self, host: &str) {
        // Only hosts that have failed are here.
        self.lock().remove(host);
    }

    pub(crate) fn failed(&self, host: &str, now: Timestamp) {
        let mut breakers = self.lock();
        if let Some(breaker) = breakers.get_mut(host) {
            return breaker.failed(now);
        }
        if breakers.len() >= HOSTS_MAX {
            // Who has failed now and then can be forgotten; who is shut out cannot.
            breakers.retain(|_, breaker| breaker.is_open(now));
        }
        if breakers.len() < HOSTS_MAX {
            let mut breaker = Breaker::default();
            breaker.failed(now);
            breakers.insert(host.into(), breaker);
        }
    }

    /// How many are open.
    pub(crate) fn open(&self, now: Timestamp) -> usize {
        self.lock().values().filter(|breaker| breaker.is_open(now)).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Breaker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
