//! The circuit breaker of an endpoint: after enough failures in a row nothing is sent there for a cool-down, then one
//! probe. Every failed probe doubles the cool-down. Pure; the dispatcher holds one per host.

use std::time::Duration;

use crate::time::Timestamp;

/// So many failures in a row, without one answer in between, open the circuit.
pub const FAILURES_MAX: u32 = 10;
const COOL_DOWN_FIRST: Duration = Duration::from_secs(5);
const COOL_DOWN_MAX: Duration = Duration::from_secs(300);

/// How long the circuit stays open the n-th time in a row, from 0.
pub fn cool_down(round: u32) -> Duration {
    COOL_DOWN_FIRST.saturating_mul(1u32.checked_shl(round).unwrap_or(u32::MAX)).min(COOL_DOWN_MAX)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    failures: u32,
    /// How often in a row it has opened.
    rounds: u32,
    open_until: Option<Timestamp>,
    /// A probe is out.
    is_probing: bool,
}

impl Breaker {
    /// May something be sent? While the circuit is open, no, with the time until then; after the cool-down, one probe.
    pub fn admits(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        match self.open_until {
            None => Ok(()),
            Some(until) if until > now => Err(until),
            Some(_) => {
                // The next one waits until the probe is back, or as long again.
                self.open_until = Some(now.plus(cool_down(self.rounds)));
                self.is_probing = true;
                Ok(())
            }
        }
    }

    pub fn is_open(&self, now: Timestamp) -> bool {
        self.open_until.is_some_and(|until| until > now)
    }

    /// The endpoint answered, whatever it said.
    pub fn answered(&mut self) {
        *self = Breaker::default();
    }

    /// The endpoint did not answer, or was broken itself.
    pub fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        // Requests that were under way when the circuit opened do not count: a hundred of them are not a hundred
        // probes.
        let is_late = self.is_open(now) && !self.is_probing;
        if self.failures >= FAILURES_MAX && !is_late {
            self.open_until = Some(now.plus(cool_down(self.rounds)));
            self.rounds = self.rounds.saturating_add(1);
            self.is_probing = false;
        }
    }

    /// Nothing worth remembering.
    pub fn is_fresh(&self) -> bool {
        *self == Breaker::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            assert!(breaker.admits(at(0)).is_ok());
            breaker.failed(at(0));
        }
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_an_answer_in_between_does_not() {
        assert!(opened().is_open(at(4)));

        let mut breaker = Breaker::default();
        for _ in 0..5 {
            for _ in 1..FAILURES_MAX {
                breaker.failed(at(0));
            }
            breaker.answered();
        }
        assert!(breaker.is_fresh() && breaker.admits(at(0)).is_ok());
    }

    #[test]
    fn when_its_time_is_over_one_probe_goes_and_its_answer_closes_it() {
        let mut breaker = opened();
        assert!(breaker.admits(at(4)).is_err());

        assert!(breaker.admits(at(5)).is_ok(), "the probe");
        assert!(breaker.admits(at(5)).is_err(), "only one");

        breaker.answered();
        assert!(breaker.admits(at(5)).is_ok());
    }

    #[test]
    fn what_was_under_way_when_it_opened_does_not_keep_it_open_longer() {
        let mut breaker = opened();
        for _ in 0..100 {
            breaker.failed(at(1));
        }

        assert!(breaker.is_open(at(4)) && breaker.admits(at(5)).is_ok());
        breaker.failed(at(6));
        assert!(breaker.is_open(at(15)) && !breaker.is_open(at(16)), "one probe was in vain");
    }

    #[test]
    fn each_probe_in_vain_doubles_the_time_up_to_a_bound() {
        let mut breaker = opened();
        assert!(breaker.admits(at(5)).is_ok());
        breaker.failed(at(5));

        assert!(breaker.is_open(at(14)) && !breaker.is_open(at(15)));
        assert_eq!([0, 1, 5, 6, 40].map(|round| cool_down(round).as_secs()), [5, 10, 160, 300, 300]);
    }
}
