//! Detects downtime, so that the sweep takes no lease from a worker that could not report. On a shared store the store knows: a
//! node that stood still alone is no outage, since workers reached other nodes. An embedded store has only this process: it
//! has stood still if the sweep is overdue and no call came in either.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outlast_core::{Clock, Outage, Timestamp};

/// A busy machine may be late by this much. Beyond it, the process or its store was stopped.
const LATE_MAX: Duration = Duration::from_millis(1500);
/// Outages closer to each other than this count as one: in between, few workers could report.
const APART_MIN: Duration = Duration::from_secs(10);
/// Before an alarm the loop looks at the clock this often, so that it knows of a pause that ended just in time for it.
const TICK: Duration = Duration::from_secs(1);
/// A worker that is alive reports within this time after a pause, so alarms further away need no ticks.
const NEAR: Duration = Duration::from_secs(60);
/// A shared store measures outages to about this precision. A node that starts grants the difference.
const START_GRACE: Duration = Duration::from_secs(2);
/// There was no tick yet.
const NEVER: i64 = i64::MIN;

pub(crate) struct PauseDetector {
    last_at: AtomicI64,
    /// When the loop means to look at the clock again, or since when it is busy.
    expected_at: AtomicI64,
    latest: Mutex<Option<Outage>>,
    /// When this process began; a downtime from before it is an ordinary restart.
    began_at: AtomicI64,
    /// The store detects outages, and ticks of this process say nothing.
    is_shared: bool,
    /// The clock is moved by hand, so a late tick says nothing either.
    is_off: AtomicBool,
}

impl PauseDetector {
    pub(crate) fn new(is_shared: bool) -> PauseDetector {
        let (last_at, expected_at) = (AtomicI64::new(NEVER), AtomicI64::new(i64::MAX));
        PauseDetector {
            last_at,
            expected_at,
            latest: Mutex::new(None),
            began_at: AtomicI64::new(NEVER),
            is_shared,
            is_off: AtomicBool::new(false),
        }
    }

    /// A call came in, or the sweep is at work. The first tick after a pause detects the pause.
    pub(crate) fn tick(&self, clock: &dyn Clock) {
        if !self.is_shared && !self.is_off.load(Ordering::Relaxed) {
            self.tick_at(clock.now());
        }
    }

    pub(crate) fn switch_off(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    fn tick_at(&self, now: Timestamp) {
        // Read first: the sweep may set it again as soon as there was another tick.
        let expected_at = self.expected_at.load(Ordering::SeqCst);
        let last_at = self.last_at.fetch_max(now.as_millis(), Ordering::SeqCst);
        let is_late = |since: i64| now.since(Timestamp::from_millis(since)) > LATE_MAX;
        if last_at != NEVER && is_late(last_at) && is_late(expected_at) {
            self.learn(Outage { from: Timestamp::from_millis(last_at), to: now });
        }
    }

    /// The loop will look at the clock at this time.
    pub(crate) fn expect(&self, at: Timestamp) {
        self.expected_at.store(at.as_millis(), Ordering::SeqCst);
    }

    /// A node starts. It does not know whether other nodes ran shortly before, so leases that ended then last a little longer;
    /// other nodes that do run end them on time. To be called once, before the first look at the alarms.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.began_at.store(now.as_millis(), Ordering::SeqCst);
        if !self.is_shared {
            return;
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get_or_insert(Outage { from: now.minus(START_GRACE), to: now });
    }

    pub(crate) fn learn(&self, outage: Outage) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_some_and(|known| known.to >= outage.to) {
            return;
        }
        let near = latest.filter(|known| outage.from.since(known.to) < APART_MIN);
        let from = near.map_or(outage.from, |known| known.from.min(outage.from));
        if outage.from.as_millis() < self.began_at.load(Ordering::SeqCst) {
            tracing::info!(from = %outage.from, to = %outage.to, "server was down; extending running leases by that time");
        } else {
            tracing::warn!(from = %outage.from, to = %outage.to, "server was unreachable; extending running leases by that time");
        }
        *latest = Some(Outage { from, to: outage.to });
    }

    pub(crate) fn latest(&self) -> Option<Outage> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next part of a pause: up to where alarms are near in one go, then in ticks.
pub(crate) fn slice(pause: Duration) -> Duration {
    if pause > NEAR { pause - NEAR } else { pause.min(TICK) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn away(from: i64, to: i64) -> Option<Outage> {
        Some(Outage { from: at(from), to: at(to) })
    }

    #[test]
    fn a_loop_that_wakes_late_was_away_since_the_last_sign_of_life() {
        let detector = PauseDetector::new(false);
        detector.tick_at(at(1_000));
        detector.expect(at(2_000));
        detector.tick_at(at(1_500));

        detector.tick_at(at(60_000));

        assert_eq!(detector.latest(), away(1_500, 60_000));
    }

    #[test]
    fn whoever_comes_first_after_a_pause_makes_it_known() {
        let detector = PauseDetector::new(false);
        detector.tick_at(at(1_000));
        detector.expect(at(2_000));

        detector.tick_at(at(60_000));
        detector.tick_at(at(60_001));
        detector.expect(at(61_000));

        assert_eq!(detector.latest(), away(1_000, 60_000));
    }

    #[test]
    fn nothing_to_do_is_no_outage() {
        let detector = PauseDetector::new(false);
        detector.tick_at(at(1_000));
        detector.expect(at(500_000));

        detector.tick_at(at(400_000));
        detector.tick_at(at(500_900));

        assert_eq!(detector.latest(), None);
    }

    #[test]
    fn a_busy_loop_is_no_outage_while_others_are_served() {
        let detector = PauseDetector::new(false);
        detector.expect(at(0));
        for second in 0..10 {
            detector.tick_at(at(second * 1_000));
        }

        assert_eq!(detector.latest(), None);
    }

    #[test]
    fn outages_close_to_each_other_are_one() {
        let detector = PauseDetector::new(false);
        detector.learn(Outage { from: at(0), to: at(60_000) });
        detector.learn(Outage { from: at(61_000), to: at(90_000) });
        assert_eq!(detector.latest(), away(0, 90_000));

        detector.learn(Outage { from: at(0), to: at(60_000) });
        assert_eq!(detector.latest(), away(0, 90_000), "what is known already changes nothing");

        detector.learn(Outage { from: at(200_000), to: at(210_000) });
        assert_eq!(detector.latest(), away(200_000, 210_000));
    }

    #[test]
    fn a_start_grants_a_little_and_a_known_outage_is_added_to_it() {
        let detector = PauseDetector::new(true);
        detector.begin(at(10_000));
        assert_eq!(detector.latest(), away(8_000, 10_000));

        detector.learn(Outage { from: at(3_000), to: at(10_100) });
        assert_eq!(detector.latest(), away(3_000, 10_100));
        detector.begin(at(20_000));
        assert_eq!(detector.latest(), away(3_000, 10_100), "only once");
    }

    #[test]
    fn a_pause_is_slept_in_one_go_until_its_end_is_near() {
        let day = Duration::from_secs(86_400);
        assert_eq!(slice(day), day - NEAR);
        assert_eq!(slice(NEAR), TICK);
        assert_eq!(slice(Duration::from_millis(5)), Duration::from_millis(5));
    }
}
