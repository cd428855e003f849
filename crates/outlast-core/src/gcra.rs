//! The spacing of hand-outs under a rate limit: a bucket that drains evenly, kept as the one moment at which it would be
//! empty again. It is stored with the queue and changes in the transaction that hands a job out, so that it is exact
//! over all nodes.

use crate::queue::RateLimit;
use crate::time::Timestamp;

/// When the bucket is empty, in microseconds since 1970. Unset and past mean empty now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra(pub i64);

/// The rate limiter's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Up to so many now, at least one.
    Now(u32),
    /// None before this time.
    At(Timestamp),
}

impl Gcra {
    /// How many may go out at `now`.
    pub fn permit(self, limit: RateLimit, now: Timestamp) -> Permit {
        let spacing = spacing(limit);
        let tolerance = (i128::from(burst(limit)) - 1) * spacing;
        let ahead = (i128::from(self.0) - micros(now)).max(0);
        if ahead > tolerance {
            // Rounded up to the next millisecond, so that a retry at that time succeeds.
            let at = (i128::from(self.0) - tolerance).div_euclid(1000) + 1;
            return Permit::At(Timestamp::from_millis(clamped(at)));
        }
        Permit::Now(u32::try_from((tolerance - ahead) / spacing + 1).unwrap_or(u32::MAX))
    }

    /// Under another limit: what was used before holds back no longer than the new one, used to the full, would.
    pub fn under(self, limit: Option<RateLimit>, now: Timestamp) -> Gcra {
        match limit {
            Some(limit) => Gcra(self.0.min(Gcra::default().after(burst(limit), limit, now).0)),
            None => self,
        }
    }

    /// After `count` have gone out at `now`.
    pub fn after(self, count: u32, limit: RateLimit, now: Timestamp) -> Gcra {
        Gcra(clamped(i128::from(self.0).max(micros(now)) + i128::from(count) * spacing(limit)))
    }
}

/// How many may go out together after a pause: so few that the limit holds in every window of its length.
fn burst(limit: RateLimit) -> u32 {
    1 + limit.limit / 25
}

/// The time between two, in microseconds. One percent longer than it need be: what goes out evenly does not arrive
/// evenly, and the limit is meant for where it arrives.
fn spacing(limit: RateLimit) -> i128 {
    let window = i128::try_from(limit.per.as_micros()).unwrap_or(i128::MAX / 1024);
    let hand_outs = i128::from(limit.limit.max(1) - burst(limit).min(limit.limit.max(1)) + 1);
    (window * 101 / (hand_outs * 100)).max(1)
}

fn micros(at: Timestamp) -> i128 {
    i128::from(at.as_millis()) * 1000
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    /// Takes whatever is let through, asking whenever told to, and returns when each went out, in milliseconds.
    fn greedy(limit: RateLimit, start: i64, count: usize) -> Vec<i64> {
        let (mut gcra, mut now, mut taken) = (Gcra::default(), Timestamp::from_millis(start), Vec::new());
        while taken.len() < count {
            match gcra.permit(limit, now) {
                Permit::Now(room) => {
                    assert!(room > 0);
                    gcra = gcra.after(room, limit, now);
                    taken.extend((0..room).map(|_| now.as_millis()));
                }
                Permit::At(at) => {
                    assert!(at > now, "waiting must help");
                    now = at;
                }
            }
        }
        taken
    }

    #[test]
    fn fifty_a_second_is_never_more_than_five_hundred_in_ten_seconds() {
        let limit = RateLimit { limit: 50, per: Duration::from_secs(1) };
        let taken = greedy(limit, 1_000_000, 2000);

        for (at, first) in taken.iter().enumerate() {
            let within = taken[at..].iter().take_while(|taken| **taken - first < 10_000).count();
            assert!(within <= 500, "{within}");
        }
        let seconds = (taken[1999] - taken[0]) as f64 / 1000.0;
        assert!(2000.0 / seconds > 46.0, "the limit is nearly used: {}", 2000.0 / seconds);
    }

    #[test]
    fn one_per_hour_is_one_and_then_none_for_an_hour() {
        let limit = RateLimit { limit: 1, per: Duration::from_secs(3600) };
        let taken = greedy(limit, 0, 3);

        assert!(taken[1] - taken[0] >= 3_600_000 && taken[2] - taken[1] >= 3_600_000);
    }

    #[test]
    fn a_new_limit_is_not_held_back_by_the_old_one() {
        let (slow, fast) = (
            RateLimit { limit: 1, per: Duration::from_secs(86_400) },
            RateLimit { limit: 50, per: Duration::from_secs(1) },
        );
        let now = Timestamp::from_millis(5_000_000);
        let used = Gcra::default().after(1, slow, now);

        let next = used.under(Some(fast), now);

        assert!(matches!(next.permit(fast, now.plus(Duration::from_millis(30))), Permit::Now(_)));
        assert_eq!(next.under(Some(slow), now), next, "a slower limit forgives nothing");
    }

    proptest! {
        /// I-25: no window of the limit's own length holds more than the limit, whatever the numbers.
        #[test]
        fn no_window_holds_more_than_the_limit(limit in 1u32..500, per in 100u64..100_000, start in 0i64..4_000_000_000_000) {
            let limit = RateLimit { limit, per: Duration::from_millis(per) };
            let window = i64::try_from(per).unwrap();
            let taken = greedy(limit, start, 1200);
            for (at, first) in taken.iter().enumerate() {
                let within = taken[at..].iter().take_while(|taken| **taken - first < window).count();
                prop_assert!(within <= usize::try_from(limit.limit).unwrap());
            }
        }

        #[test]
        fn hostile_numbers_do_not_panic(limit in any::<u32>(), per in any::<u64>(), gcra in any::<i64>(), now in any::<i64>()) {
            let limit = RateLimit { limit, per: Duration::from_millis(per) };
            let (gcra, now) = (Gcra(gcra), Timestamp::from_millis(now));
            let _ = gcra.permit(limit, now);
            let _ = gcra.after(u32::MAX, limit, now);
        }
    }
}
