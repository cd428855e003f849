//! Time and chance for tests: clocks that move only with the test, and randomness that repeats.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::{Clock, Entropy, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use tokio::time::Instant;

/// Where virtual time begins: January 2027, so that ids and dates look like real ones.
const BEGINNING_MILLIS: i64 = 1_800_000_000_000;

pub fn beginning() -> Timestamp {
    Timestamp::from_millis(BEGINNING_MILLIS)
}

/// A clock that moves only on request. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<AtomicI64>);

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock(Arc::new(AtomicI64::new(BEGINNING_MILLIS)))
    }
}

impl VirtualClock {
    pub fn advance(&self, time: Duration) {
        self.set(self.now().plus(time));
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's own, which a paused runtime moves from timer to timer. To be made and read inside that
/// runtime.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    started: Instant,
}

impl RuntimeClock {
    pub fn start() -> RuntimeClock {
        RuntimeClock { started: Instant::now() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        beginning().plus(self.started.elapsed())
    }
}

/// Randomness that repeats. Clones draw from the same stream, so that a test can set it for a store it has given away.
#[derive(Clone, Debug)]
pub struct SeededEntropy(Arc<Mutex<ChaCha8Rng>>);

impl SeededEntropy {
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy(Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    /// Restarts the stream.
    pub fn reseed(&self, seed: u64) {
        *self.generator() = ChaCha8Rng::seed_from_u64(seed);
    }

    fn generator(&self) -> MutexGuard<'_, ChaCha8Rng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&mut self) -> u64 {
        self.generator().next_u64()
    }
}
