//! How long to wait before the next attempt. Jitter only ever shortens a wait by its share, so the first bound a user
//! reads in the settings is the latest moment, and `delay × (1 − jitter)` the earliest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entropy::{Entropy, unit};

/// The wait after the n-th charged attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Backoff {
    /// `delay × factor^(n−1)`, at most `max_delay`.
    Exponential {
        #[serde(with = "crate::time::seconds")]
        delay: Duration,
        /// Settings stored without a factor double.
        #[serde(default = "doubling")]
        factor: f64,
        #[serde(with = "crate::time::seconds")]
        max_delay: Duration,
        jitter: f64,
    },
    /// Always `delay`.
    Fixed {
        #[serde(with = "crate::time::seconds")]
        delay: Duration,
        jitter: f64,
    },
    /// The n-th entry; the last one again when there are more attempts than entries.
    Schedule { delays: Vec<Seconds>, jitter: f64 },
}

/// One entry of a schedule, in seconds on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(#[serde(with = "crate::time::seconds")] pub Duration);

fn doubling() -> f64 {
    2.0
}

/// More waits than `maxAttempts` can ever use.
pub const SCHEDULE_LENGTH_MAX: usize = 20;

impl Default for Backoff {
    fn default() -> Backoff {
        // Five attempts span some three minutes: longer than a restart or a deployment of the service behind a worker.
        Backoff::Exponential {
            delay: Duration::from_secs(5),
            factor: 3.0,
            max_delay: Duration::from_secs(3600),
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// The wait after charged attempt number `attempt` (from 1), before jitter.
    pub fn base(&self, attempt: u32) -> Duration {
        let earlier = attempt.saturating_sub(1);
        match self {
            Backoff::Exponential { delay, .. } if delay.is_zero() => Duration::ZERO,
            Backoff::Exponential { delay, factor, max_delay, .. } => {
                // More than `Duration` can hold, infinity included, is more than any `max_delay`.
                let power = factor.powi(i32::try_from(earlier).unwrap_or(i32::MAX));
                let seconds = delay.as_secs_f64() * power;
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).min(*max_delay)
            }
            Backoff::Fixed { delay, .. } => *delay,
            Backoff::Schedule { delays, .. } => {
                let index = usize::try_from(earlier).unwrap_or(usize::MAX).min(delays.len().saturating_sub(1));
                delays.get(index).map_or(Duration::ZERO, |entry| entry.0)
            }
        }
    }

    /// The share of a wait that chance may take away, 0 to 1.
    pub fn jitter(&self) -> f64 {
        match self {
            Backoff::Exponential { jitter, .. } | Backoff::Fixed { jitter, .. } | Backoff::Schedule { jitter, .. } => {
                *jitter
            }
        }
    }

    /// The wait after charged attempt number `attempt`, in whole milliseconds.
    pub fn wait(&self, attempt: u32, entropy: &mut dyn Entropy) -> Duration {
        let base = self.base(attempt);
        let factor = 1.0 - self.jitter().clamp(0.0, 1.0) * unit(entropy);
        let millis = base.mul_f64(factor).as_millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    struct Fixed(u64);

    impl Entropy for Fixed {
        fn next_u64(&mut self) -> u64 {
            self.0
        }
    }

    fn seconds(backoff: &Backoff) -> Vec<u64> {
        (1..=5).map(|attempt| backoff.base(attempt).as_secs()).collect()
    }

    #[test]
    fn each_kind_of_backoff_waits_as_its_name_says() {
        let schedule = [60, 300, 900].map(|s| Seconds(Duration::from_secs(s))).to_vec();

        let exponential = |delay, factor| Backoff::Exponential {
            delay: Duration::from_secs(delay),
            factor,
            max_delay: Duration::from_secs(3600),
            jitter: 0.0,
        };
        assert_eq!(seconds(&Backoff::default()), [5, 15, 45, 135, 405]);
        assert_eq!(seconds(&exponential(1, 2.0)), [1, 2, 4, 8, 16]);
        assert_eq!(seconds(&exponential(100, 10.0)), [100, 1000, 3600, 3600, 3600]);
        assert_eq!(seconds(&exponential(7, 1.0)), [7; 5]);
        assert_eq!(seconds(&exponential(0, 10.0)), [0; 5]);
        assert_eq!(seconds(&Backoff::Fixed { delay: Duration::from_secs(7), jitter: 0.0 }), [7; 5]);
        assert_eq!(seconds(&Backoff::Schedule { delays: schedule, jitter: 0.0 }), [60, 300, 900, 900, 900]);
        assert_eq!(seconds(&Backoff::Schedule { delays: Vec::new(), jitter: 0.0 }), [0; 5]);
    }

    #[test]
    fn settings_stored_without_a_factor_still_double() {
        let stored = r#"{"type":"exponential","delay":1,"maxDelay":3600,"jitter":0.2}"#;

        let backoff: Backoff = serde_json::from_str(stored).unwrap();

        assert_eq!(seconds(&backoff), [1, 2, 4, 8, 16]);
    }

    proptest! {
        /// I-22: never earlier than backoff − jitter, never later than backoff, whatever the numbers.
        #[test]
        fn a_wait_lies_between_backoff_minus_jitter_and_backoff(
            delay in any::<u64>(), factor in 1.0f64..=10.0, max in any::<u64>(), jitter in 0.0f64..=1.0,
            attempt in any::<u32>(), bits in any::<u64>(),
        ) {
            let backoff = Backoff::Exponential {
                delay: Duration::from_millis(delay / 2), factor, max_delay: Duration::from_millis(max / 2), jitter,
            };
            let base = backoff.base(attempt);

            let wait = backoff.wait(attempt, &mut Fixed(bits));

            prop_assert!(wait <= base);
            prop_assert!(wait.as_secs_f64() >= base.as_secs_f64() * (1.0 - jitter) * 0.999_999 - 0.002);
        }
    }
}
