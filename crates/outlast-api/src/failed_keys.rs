//! Slows down addresses that send wrong keys: a token bucket per address, in memory, on this node. A valid key is never
//! slowed down, whatever else comes from its address, so that no client behind the same NAT or proxy is locked out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A bucket regains one failure in this time.
const REFILL: Duration = Duration::from_millis(500);
/// Addresses that are remembered. Others share one bucket until there is room again.
const ADDRESSES_MAX: usize = 10_000;
/// When the memory is full, recovered addresses are looked for at most this often: it is a walk over all of them.
const PRUNE_PAUSE: Duration = Duration::from_secs(1);

/// Failed attempts of this node's callers.
pub(crate) struct FailedKeys {
    /// Failures that an address may have at once.
    burst: u32,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// When each address has its whole burst again. One that has it is not in here.
    full_at: HashMap<IpAddr, Instant>,
    /// The same of all addresses beyond `ADDRESSES_MAX` together.
    others_full_at: Option<Instant>,
    pruned_at: Option<Instant>,
}

impl FailedKeys {
    pub(crate) fn new(burst: usize) -> FailedKeys {
        FailedKeys { burst: u32::try_from(burst).unwrap_or(u32::MAX), buckets: Mutex::default() }
    }

    /// How long the address has to wait before another wrong key gets an ordinary answer.
    pub(crate) fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let full_at = self.lock().full_at(subject(address))?;
        let owed = full_at.saturating_duration_since(now);
        let most = REFILL * self.burst.saturating_sub(1);
        (owed > most).then(|| owed.saturating_sub(most))
    }

    /// Counts a wrong key. Beyond the burst nothing is counted: the wait does not grow.
    pub(crate) fn failed(&self, address: IpAddr, now: Instant) {
        if self.wait(address, now).is_some() {
            return;
        }
        let mut buckets = self.lock();
        let subject = subject(address);
        let full_at = buckets.full_at(subject).unwrap_or(now).max(now) + REFILL;
        buckets.set(subject, full_at, now);
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    fn full_at(&self, subject: IpAddr) -> Option<Instant> {
        let others = self.others_full_at.filter(|_| self.full_at.len() >= ADDRESSES_MAX);
        self.full_at.get(&subject).copied().or(others)
    }

    fn set(&mut self, subject: IpAddr, full_at: Instant, now: Instant) {
        let is_new = !self.full_at.contains_key(&subject);
        if is_new && self.full_at.len() >= ADDRESSES_MAX {
            let was_pruned = self.pruned_at.is_some_and(|at| now.saturating_duration_since(at) < PRUNE_PAUSE);
            if !was_pruned {
                self.pruned_at = Some(now);
                self.full_at.retain(|_, full_at| *full_at > now);
            }
            if self.full_at.len() >= ADDRESSES_MAX {
                self.others_full_at = Some(full_at);
                return;
            }
        }
        self.full_at.insert(subject, full_at);
    }
}

/// One caller has a whole /64 of IPv6.
fn subject(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn an_address_has_its_burst_and_then_one_failure_for_each_refill() {
        let (failed, now) = (FailedKeys::new(3), Instant::now());
        for _ in 0..3 {
            assert_eq!(failed.wait(address(1), now), None);
            failed.failed(address(1), now);
        }
        let waits = failed.wait(address(1), now).unwrap();
        assert!(waits <= REFILL && !waits.is_zero());
        assert_eq!(failed.wait(address(2), now), None, "each address has its own");

        failed.failed(address(1), now);
        assert_eq!(failed.wait(address(1), now), Some(waits), "the wait does not grow");
        let later = now + REFILL;
        assert_eq!(failed.wait(address(1), later), None);
        failed.failed(address(1), later);
        assert!(failed.wait(address(1), later).is_some());
    }

    #[test]
    fn the_memory_is_bounded_and_strangers_beyond_it_share_a_bucket() {
        let (failed, now) = (FailedKeys::new(2), Instant::now());
        for number in 0..30_000 {
            failed.failed(address(number), now);
        }
        assert_eq!(failed.lock().full_at.len(), ADDRESSES_MAX);
        assert!(failed.wait(address(50_000), now).is_some());
        assert_eq!(failed.wait(address(1), now), None, "a known address keeps its own");

        let later = now + 2 * REFILL + PRUNE_PAUSE;
        assert_eq!(failed.wait(address(50_000), later), None);
        failed.failed(address(50_000), later);
        assert_eq!(failed.lock().full_at.len(), 1, "recovered addresses are forgotten");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let (failed, now) = (FailedKeys::new(1), Instant::now());
        failed.failed("2001:db8::1".parse().unwrap(), now);

        assert!(failed.wait("2001:db8::ffff".parse().unwrap(), now).is_some());
        assert!(failed.wait("2001:db8:0:1::1".parse().unwrap(), now).is_none());
        failed.failed("::ffff:10.0.0.1".parse().unwrap(), now);
        assert!(failed.wait("10.0.0.1".parse().unwrap(), now).is_some());
    }
}
