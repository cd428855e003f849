//! Real time and real chance: the implementations behind core's `Clock` and `Entropy`. Nothing else in the product reads
//! the system's clock or its random numbers.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use outlast_core::{Clock, Entropy, Timestamp};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Wall-clock time at start, carried on by the monotonic clock: a step of the wall clock moves no deadline. The kernel
/// slews the monotonic clock with NTP, so the two do not drift apart.
#[derive(Debug)]
pub struct SystemClock {
    started_at: Timestamp,
    started: Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the Clock port")]
    pub fn start() -> SystemClock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        SystemClock { started_at: Timestamp::EPOCH.plus(since_epoch), started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started_at.plus(self.started.elapsed())
    }
}

/// Time that moves only by hand. For the tests of users: delays, limits and retention without waiting.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Begins at the time of the system.
    pub fn start() -> ManualClock {
        ManualClock(AtomicI64::new(SystemClock::start().now().as_millis()))
    }

    pub fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        // It never goes back and never overflows.
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(millis)));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A cryptographic generator seeded by the operating system.
pub struct SystemEntropy(ChaCha20Rng);

impl SystemEntropy {
    /// Fails only where the operating system has no randomness to give.
    pub fn seed() -> Result<SystemEntropy, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(SystemEntropy(ChaCha20Rng::from_seed(seed)))
    }
}

impl Entropy for SystemEntropy {
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// For unit tests: numbers that never repeat.
#[cfg(test)]
pub(crate) struct Counting(pub(crate) u64);

#[cfg(test)]
impl Entropy for Counting {
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}
