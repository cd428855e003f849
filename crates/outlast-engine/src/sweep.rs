//! The one loop over all alarms: jobs (delays, backoff, leases, time limits, expiry, retention), and every other kind of
//! thing that rings. It sleeps until the next alarm or until an earlier one is set; an idle service on an embedded store
//! does not tick. Alarms of jobs are served in the loop; each other kind has one task at a time beside it, a *round*.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outlast_core::{Command, Timestamp};
use outlast_store::Error;
use outlast_store::alarms::AlarmKind;
use outlast_store::jobs::{Order, Reach};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::engine::Engine;
use crate::pause_detector::slice;
use crate::rounds::Rounds;

/// Jobs woken in one transaction; also the bound of a purge.
const BATCH_MAX: usize = 1000;
/// The pause after a failure, before trying again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// No single sleep is longer; timers of years overflow.
const SLEEP_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Where nodes share the store, no single sleep is longer than this: a node that set an alarm may be gone before it rings.
const LOOK_SHARED: Duration = Duration::from_secs(1);
/// Longer than it takes to serve an alarm.
const OTHERS_PAUSE: Duration = Duration::from_millis(20);

/// When the loop looks at the alarms next, so that only an earlier alarm disturbs it.
pub(crate) struct Sweep {
    next_look: AtomicI64,
    earlier: Notify,
}

impl Default for Sweep {
    fn default() -> Sweep {
        Sweep { next_look: AtomicI64::new(i64::MAX), earlier: Notify::new() }
    }
}

impl Sweep {
    /// Alarms may have been set that nobody told of.
    pub(crate) fn look_now(&self) {
        self.look_at(i64::MIN);
    }

    fn look_at(&self, millis: i64) {
        if self.next_look.fetch_min(millis, Ordering::SeqCst) > millis {
            self.earlier.notify_one();
        }
    }
}

impl Engine {
    /// An alarm was set. Notifier the loop if it would sleep past it.
    pub(crate) fn note_alarm(&self, wake_at: Option<Timestamp>) {
        if let Some(at) = wake_at {
            self.shared.sweep.look_at(at.as_millis());
        }
    }

    pub(crate) async fn run_sweep(self) {
        let mut stopping = self.stopping();
        self.begin_ticks();
        let mut rounds = Rounds::default();
        while !*stopping.borrow() {
            match self.sweep_once(&mut rounds).await {
                Ok(next) => drop(self.shared.sweep.next_look.fetch_min(next.as_millis(), Ordering::SeqCst)),
                Err(Error::Stopped) => break,
                Err(error) => {
                    tracing::warn!(%error, "alarms could not be served; trying again");
                    self.shared.counters.loop_failures.add(1);
                    self.shared.sweep.next_look.store(self.now().plus(RETRY_PAUSE).as_millis(), Ordering::SeqCst);
                }
            }
            // Biased, here as in the other loops, so that a simulated run is decided by its seed alone.
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                () = rounds.ended(&self) => {}
                () = self.rest() => {}
            }
        }
        rounds.finish().await;
        tracing::debug!("the sweep has ended");
    }

    /// Sleeps until the next look, and keeps an eye on the clock meanwhile: whoever notifier up late was not heard, and could
    /// not hear.
    async fn rest(&self) {
        let shared_end = self.is_shared().then(|| Instant::now() + self.jitter(LOOK_SHARED));
        loop {
            let next_look = Timestamp::from_millis(self.shared.sweep.next_look.load(Ordering::SeqCst));
            let mut left = next_look.since(self.now()).min(SLEEP_MAX);
            if let Some(end) = shared_end {
                left = left.min(end.saturating_duration_since(Instant::now()));
            }
            if left.is_zero() {
                return;
            }
            let left = slice(left);
            self.shared.pause_detector.expect(self.now().plus(left));
            tokio::select! {
                biased;
                () = self.shared.sweep.earlier.notified() => {}
                () = sleep(left) => {}
            }
            self.tick();
        }
    }

    /// Serves every alarm that has notified; returns when the next one will.
    async fn sweep_once(&self, rounds: &mut Rounds) -> Result<Timestamp, Error> {
        // While awake, every new alarm counts: it may be one that `due` has just not seen.
        self.shared.sweep.next_look.store(i64::MAX, Ordering::SeqCst);
        self.tick();
        loop {
            self.shared.pause_detector.expect(self.now());
            let due = self.shared.store.due(BATCH_MAX).await?;
            let outage = self.outage().await?;
            if self.is_draining() && !self.is_shared() {
                // The door is shut: nobody can keep a lease. Alarms ring at the next start, which knows of the time between.
                return Ok(self.now().plus(SLEEP_MAX));
            }
            let next_round = rounds.serve(self, &due.others);
            if due.jobs.is_empty() {
                let next = due.next.into_iter().chain(next_round).min();
                return Ok(next.unwrap_or_else(|| self.now().plus(SLEEP_MAX)));
            }
            let count = due.jobs.len();
            let order = |id| Order { id, reach: Reach::Everything, command: Command::Wake { outage } };
            let answers = self.apply(due.jobs.into_iter().map(order).collect()).await?;
            self.shared.counters.woken.add(count);
            self.shared.counters.stalled.add(answers.iter().flatten().filter(|applied| applied.stalled).count());
            let moved = answers.iter().flatten().any(|applied| applied.changed);
            if self.is_shared() && !moved {
                // Another node is at it, or this node's idea of the time is ahead of the database's.
                sleep(self.jitter(OTHERS_PAUSE)).await;
            }
        }
    }

    /// Serves what is due of a kind; says how long the kind rests after it.
    pub(crate) async fn serve_alarms(&self, kind: AlarmKind) -> Result<Duration, Error> {
        match kind {
            AlarmKind::Object => self.collect_objects().await,
            AlarmKind::Event => self.prune_events().await,
            AlarmKind::Operation => self.carry_on_operations().await,
        }
    }
}
