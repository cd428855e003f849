//! The pause between two tries while the server is away: doubled up to a bound, and spread, so that the workers of a
//! server that comes back do not all call at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(10);

pub(crate) struct Backoff {
    /// Seed that differs between callers.
    seed: String,
    tries: u32,
}

impl Backoff {
    pub(crate) fn new(seed: &str) -> Backoff {
        Backoff { seed: seed.to_owned(), tries: 0 }
    }

    /// A try went well.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    pub(crate) fn is_first(&self) -> bool {
        self.tries == 0
    }

    /// The pause after one more failure: within a quarter around the doubled one.
    pub(crate) fn next(&mut self) -> Duration {
        let doubled = FIRST.saturating_mul(2_u32.saturating_pow(self.tries)).min(LAST);
        self.tries = self.tries.saturating_add(1);
        let mut hasher = DefaultHasher::new();
        (&self.seed, self.tries).hash(&mut hasher);
        let percent = 75 + u32::try_from(hasher.finish() % 51).unwrap_or_default();
        doubled * percent / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ_between_callers() {
        let pauses = |seed: &str| -> Vec<Duration> {
            let mut backoff = Backoff::new(seed);
            (0..40).map(|_| backoff.next()).collect()
        };

        let (one, other) = (pauses("one"), pauses("other"));

        assert!(one[0] >= FIRST * 3 / 4 && one[0] <= FIRST * 5 / 4);
        assert!(one.iter().all(|pause| *pause <= LAST * 5 / 4));
        assert!(one[39] >= LAST * 3 / 4);
        assert_ne!(one, other);
    }
}
