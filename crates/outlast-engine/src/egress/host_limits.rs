//! Limits per host, over all queues of this node: concurrent requests, and requests per second. A request beyond a limit waits,
//! no longer than its own deadline. Nothing here is durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::target::Place;
use super::{SendError, SendPhase};

/// Hosts remembered before those without requests are forgotten.
const HOSTS_MAX: usize = 4096;

pub(super) struct HostLimits {
    concurrency: usize,
    /// Between the starts of two requests to the same host.
    gap: Option<Duration>,
    hosts: Mutex<HashMap<Place, Arc<Host>>>,
}

struct Host {
    slots: Arc<Semaphore>,
    /// When the next request may start.
    next: Mutex<Instant>,
}

/// A turn; over when it is dropped.
pub(super) struct Turn {
    _slot: OwnedSemaphorePermit,
    /// Keeps the host from being forgotten meanwhile.
    _host: Arc<Host>,
}

impl HostLimits {
    pub(super) fn new(concurrency: usize, rate: Option<u32>) -> HostLimits {
        let gap = rate.map(|rate| Duration::from_secs(1) / rate.max(1));
        HostLimits { concurrency: concurrency.clamp(1, Semaphore::MAX_PERMITS), gap, hosts: Mutex::new(HashMap::new()) }
    }

    /// Waits for a turn. First come, first served.
    pub(super) async fn enter(&self, place: &Place, deadline: Instant) -> Result<Turn, SendError> {
        let host = self.host(place);
        let slots = Arc::clone(&host.slots);
        let slot = match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => match timeout_at(deadline, slots.acquire_owned()).await {
                Ok(Ok(slot)) => slot,
                _ => return Err(SendError::new(SendPhase::Wait, "too many requests to this host at once")),
            },
        };
        if let Some(gap) = self.gap {
            let start = host.start(gap, deadline);
            let start = start.ok_or_else(|| SendError::new(SendPhase::Wait, "too many requests to this host"))?;
            sleep_until(start).await;
        }
        Ok(Turn { _slot: slot, _host: host })
    }

    fn host(&self, place: &Place) -> Arc<Host> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get(place) {
            return Arc::clone(host);
        }
        if hosts.len() >= HOSTS_MAX {
            let now = Instant::now();
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.next() > now);
        }
        let host = Host { slots: Arc::new(Semaphore::new(self.concurrency)), next: Mutex::new(Instant::now()) };
        Arc::clone(hosts.entry(place.clone()).or_insert(Arc::new(host)))
    }
}

impl Host {
    /// Takes the next start, unless it is too late for this request.
    fn start(&self, gap: Duration, deadline: Instant) -> Option<Instant> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now().max(*next);
        if start > deadline {
            return None;
        }
        *next = start + gap;
        Some(start)
    }

    fn next(&self) -> Instant {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place::Name(name.into())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    // (T06, one node)
    #[tokio::test(start_paused = true)]
    async fn the_request_beyond_the_cap_waits_for_a_turn_and_other_hosts_do_not() {
        let host_limits = HostLimits::new(2, None);
        let first = host_limits.enter(&place("a"), soon()).await.unwrap();
        let _second = host_limits.enter(&place("a"), soon()).await.unwrap();

        let late = host_limits.enter(&place("a"), soon()).await.err().unwrap();
        assert_eq!(late.phase, SendPhase::Wait);
        host_limits.enter(&place("b"), soon()).await.unwrap();
        drop(first);
        host_limits.enter(&place("a"), soon()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_one_host_start_no_faster_than_its_rate() {
        let host_limits = HostLimits::new(100, Some(10));
        let began = Instant::now();
        for _ in 0..11 {
            host_limits.enter(&place("a"), began + Duration::from_secs(5)).await.unwrap();
        }
        assert_eq!(began.elapsed().as_millis(), 1000);

        let late = host_limits.enter(&place("a"), Instant::now() + Duration::from_millis(50)).await.err().unwrap();
        assert_eq!(late.phase, SendPhase::Wait);
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_that_nobody_calls_are_forgotten() {
        let host_limits = HostLimits::new(1, None);
        let held = host_limits.enter(&place("held"), soon()).await.unwrap();
        for number in 0..HOSTS_MAX * 2 {
            host_limits.enter(&place(&format!("h{number}")), soon()).await.unwrap();
        }

        assert!(host_limits.hosts.lock().unwrap().len() <= HOSTS_MAX);
        assert!(host_limits.enter(&place("held"), soon()).await.is_err(), "its turn is still taken");
        drop(held);
    }
}
