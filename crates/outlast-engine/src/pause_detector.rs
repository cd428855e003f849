//! Noticing that nobody could be heard for a while, so that the sweep takes no lease from a worker who had nobody to
//! report to. On a shared store the store knows: a node that stood still alone is no outage, since others were heard.
//! On an embedded one this process is all there is: it has stood still if the sweep is overdue and nothing else
//! happened either.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outlast_core::{Outage, Timestamp};
use outlast_store::Error;

use crate::engine::Engine;

/// What a busy machine may be late by. Beyond it, the process was stopped, or its store was.
const LATE_MAX: Duration = Duration::from_millis(1500);
/// Outages closer to each other than this are one: those who were silenced by the first were hardly heard in between.
const APART_MIN: Duration = Duration::from_secs(10);
/// Before an alarm the loop looks at the clock this often, so that it knows of a pause that ended just in time for it.
const TICK: Duration = Duration::from_secs(1);
/// A holder that is alive is heard within this after a pause, so alarms further away need no ticks.
const NEAR: Duration = Duration::from_secs(60);
/// Where nodes share a store, it knows of outages to about this much. What it missed is granted when a node starts.
const START_GRACE: Duration = Duration::from_secs(2);
/// There was no sign of life yet.
const NEVER: i64 = i64::MIN;

/// The detector of life of this process.
pub(crate) struct PauseDetector {
    last_at: AtomicI64,
    /// When the loop means to look at the clock again, or since when it is busy.
    expected_at: AtomicI64,
    latest: Mutex<Option<Outage>>,
    /// When this process began; a downtime from before it is an ordinary restart.
    began_at: AtomicI64,
}

impl Default for PauseDetector {
    fn default() -> PauseDetector {
        PauseDetector {
            last_at: AtomicI64::new(NEVER),
            expected_at: AtomicI64::new(i64::MAX),
            latest: Mutex::new(None),
            began_at: AtomicI64::new(NEVER),
        }
    }
}

impl PauseDetector {
    /// Something happens in this process. If it is the first thing after a pause, the pause becomes known by it.
    pub(crate) fn tick(&self, now: Timestamp) {
        // Read first: the loop may set it anew as soon as there was another sign.
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

    /// A node starts: whether others were there shortly before is not known, so leases that ended then last a little
    /// longer. Where others are there, they take them on time.
    fn begin(&self, now: Timestamp) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get_or_insert(Outage { from: now.minus(START_GRACE), to: now });
    }

    fn learn(&self, outage: Outage) {
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

    fn latest(&self) -> Option<Outage> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next part of a pause: up to where alarms are near in one go, then in ticks.
pub(crate) fn slice(pause: Duration) -> Duration {
    if pause > NEAR { pause - NEAR } else { pause.min(TICK) }
}

impl Engine {
    /// The last time that nobody could be heard. To be asked after what is due was read: a pause between the two is
    /// known by then, and what was due before a pause has had its time.
    pub(crate) async fn outage(&self) -> Result<Option<Outage>, Error> {
        let told = self.shared.store.attend().await?;
        if let Some(outage) = told {
            self.shared.pause_detector.learn(outage);
        }
        if !self.is_shared() {
            self.tick();
        }
        Ok(self.shared.pause_detector.latest())
    }

    /// To be called once, before the first look at the alarms.
    pub(crate) fn begin_ticks(&self) {
        let (now, detector) = (self.now(), &self.shared.pause_detector);
        detector.began_at.store(now.as_millis(), Ordering::SeqCst);
        if self.is_shared() {
            detector.begin(now);
        }
    }

    /// A call came in, or the loop is at work.
    pub(crate) fn tick(&self) {
        if !self.is_shared() {
            self.shared.pause_detector.tick(self.now());
        }
    }
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
        let detector = PauseDetector::default();
        detector.tick(at(1_000));
        detector.expect(at(2_000));
        detector.tick(at(1_500));

        detector.tick(at(60_000));

        assert_eq!(detector.latest(), away(1_500, 60_000));
    }

    #[test]
    fn whoever_comes_first_after_a_pause_makes_it_known() {
        let detector = PauseDetector::default();
        detector.tick(at(1_000));
        detector.expect(at(2_000));

        detector.tick(at(60_000));
        detector.tick(at(60_001));
        detector.expect(at(61_000));

        assert_eq!(detector.latest(), away(1_000, 60_000));
    }

    #[test]
    fn nothing_to_do_is_no_outage() {
        let detector = PauseDetector::default();
        detector.tick(at(1_000));
        detector.expect(at(500_000));

        detector.tick(at(400_000));
        detector.tick(at(500_900));

        assert_eq!(detector.latest(), None);
    }

    #[test]
    fn a_busy_loop_is_no_outage_while_others_are_served() {
        let detector = PauseDetector::default();
        detector.expect(at(0));
        for second in 0..10 {
            detector.tick(at(second * 1_000));
        }

        assert_eq!(detector.latest(), None);
    }

    #[test]
    fn outages_close_to_each_other_are_one() {
        let detector = PauseDetector::default();
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
        let detector = PauseDetector::default();
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
