//! The one loop over the one alarm index: delays, backoff, leases, time limits, expiry, retention. Sleeps until the next
//! alarm or until an earlier one is set; an idle service on an embedded store does not tick.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outlast_core::{Command, Timestamp};
use outlast_store::Error;
use outlast_store::jobs::{Order, Reach};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::outage::slice;

/// Jobs woken in one transaction; also the bound of a purge.
const BATCH_MAX: usize = 1000;
/// The pause after a store error, before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// No single sleep is longer; timers of years overflow.
const SLEEP_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Where nodes share the store, no single sleep is longer than this: a node that set an alarm may be gone before it rings.
const LOOK_SHARED: Duration = Duration::from_secs(1);

/// What the loop sleeps for, so that only an earlier alarm disturbs it.
pub(crate) struct Sweep {
    sleeping_until: AtomicI64,
    earlier: Notify,
}

impl Default for Sweep {
    fn default() -> Sweep {
        Sweep { sleeping_until: AtomicI64::new(i64::MAX), earlier: Notify::new() }
    }
}

impl Sweep {
    /// Alarms may have been set that nobody told of.
    pub(crate) fn look_now(&self) {
        self.earlier.notify_one();
    }
}

/// Longer than it takes to serve an alarm.
const OTHERS_PAUSE: Duration = Duration::from_millis(20);

impl Engine {
    /// An alarm was set. Wakes the loop if it would sleep past it.
    pub(crate) fn note_alarm(&self, wake_at: Option<Timestamp>) {
        let sweep = &self.shared.sweep;
        if wake_at.is_some_and(|at| at.as_millis() < sweep.sleeping_until.load(Ordering::SeqCst)) {
            sweep.earlier.notify_one();
        }
    }

    pub(crate) async fn run_sweep(self) {
        let mut stopping = self.stopping();
        self.begin_signs();
        while !*stopping.borrow() {
            let pause = match self.sweep_once().await {
                Ok(pause) if self.is_shared() => pause.min(self.jitter(LOOK_SHARED)),
                Ok(pause) => pause,
                Err(Error::Stopped) => break,
                Err(error) => {
                    tracing::warn!(%error, "alarms could not be served; trying again");
                    self.shared.meters.loop_failures.add(1);
                    RETRY_PAUSE
                }
            };
            // Biased, here as in the other loops, so that a simulated run is decided by its seed alone.
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                () = self.shared.sweep.earlier.notified() => {}
                () = self.rest(pause) => {}
            }
        }
        tracing::debug!("the sweep has ended");
    }

    /// Sleeps, and keeps an eye on the clock meanwhile: whoever wakes up late was not heard, and could not hear.
    async fn rest(&self, pause: Duration) {
        let end = Instant::now() + pause;
        loop {
            let left = slice(end.saturating_duration_since(Instant::now()));
            self.shared.signs.expect(self.now().plus(left));
            sleep(left).await;
            self.give_sign();
            if Instant::now() >= end {
                return;
            }
        }
    }

    /// Serves every alarm that has rung; returns how long nothing will.
    pub async fn sweep_once(&self) -> Result<Duration, Error> {
        // While awake, every new alarm rings: it may be one that `due` has just not seen.
        self.shared.sweep.sleeping_until.store(i64::MAX, Ordering::SeqCst);
        self.give_sign();
        loop {
            self.shared.signs.expect(self.now());
            let due = self.shared.store.due(BATCH_MAX).await?;
            let outage = self.outage().await?;
            if self.is_draining() && !self.is_shared() {
                // The door is shut: nobody can keep a lease. Alarms ring at the next start, which knows of the time between.
                return Ok(SLEEP_MAX);
            }
            if due.jobs.is_empty() {
                let until = due.next.map_or(i64::MAX, Timestamp::as_millis);
                self.shared.sweep.sleeping_until.store(until, Ordering::SeqCst);
                return Ok(due.next.map_or(SLEEP_MAX, |next| next.since(self.now()).min(SLEEP_MAX)));
            }
            let count = due.jobs.len();
            let order = |id| Order { id, reach: Reach::Everything, command: Command::Wake { outage } };
            let answers = self.apply(due.jobs.into_iter().map(order).collect()).await?;
            self.shared.meters.woken.add(count);
            self.shared.meters.stalled.add(answers.iter().flatten().filter(|applied| applied.stalled).count());
            let moved = answers.iter().flatten().any(|applied| applied.changed);
            if self.is_shared() && !moved {
                // Another node is at it, or this node's idea of the time is ahead of the database's.
                sleep(self.jitter(OTHERS_PAUSE)).await;
            }
        }
    }
}
