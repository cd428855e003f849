//! The one loop over all alarms: jobs (delays, backoff, leases, time limits, expiry, retention), and every other kind of
//! thing that has one. It sleeps until the next alarm or until an earlier one is set; an idle service on an embedded store
//! does not tick. Alarms of jobs are served in the loop; each other kind has one task at a time beside it, a *round*.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, Command, Outage, Timestamp};
use outlast_store::alarms::AlarmKind;
use outlast_store::jobs::{JobCommand, Reach};
use outlast_store::{Error, JobStore};
use tokio::time::{Instant, sleep};

use crate::alarms::Alarms;
use crate::announcer::Announcer;
use crate::inbound::Inbound;
use crate::jobs::Jobs;
use crate::lifecycle::Lifecycle;
use crate::objects::Objects;
use crate::pause_detector::{PauseDetector, slice};
use crate::random::Random;
use crate::rounds::Rounds;
use crate::supervisor::Supervisor;

/// Jobs woken in one transaction; also the bound of a purge.
const BATCH_MAX: usize = 1000;
/// The pause after a failure, before trying again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// No single sleep is longer; timers of years overflow.
const SLEEP_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Where nodes share the store, no single sleep is longer than this: a node that set an alarm may be gone before it is due.
const LOOK_SHARED: Duration = Duration::from_secs(1);
/// Longer than another node takes to serve an alarm.
const PEER_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Sweep {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) pause_detector: Arc<PauseDetector>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) inbound: Arc<Inbound>,
    /// Other nodes work on the same store.
    pub(crate) is_shared: bool,
}

impl Sweep {
    pub(crate) async fn run(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        self.pause_detector.begin(self.clock.now());
        let mut rounds = Rounds::default();
        while !*stopping.borrow() {
            match self.sweep_once(&mut rounds).await {
                Ok(next) => self.alarms().end_look(next),
                Err(Error::Stopped) => break,
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?RETRY_PAUSE, "alarms could not be served; trying again");
                    self.announcer.counters.loop_failures.add(1);
                    self.alarms().retry_look(self.clock.now().plus(RETRY_PAUSE));
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

    /// Sleeps until the next look. It watches the clock meanwhile: a sleep that ends late shows that the process stood still.
    async fn rest(&self) {
        let shared_end = self.is_shared.then(|| Instant::now() + self.random.jitter(LOOK_SHARED));
        loop {
            let mut left = self.alarms().next_look().since(self.clock.now()).min(SLEEP_MAX);
            if let Some(end) = shared_end {
                left = left.min(end.saturating_duration_since(Instant::now()));
            }
            if left.is_zero() {
                return;
            }
            let left = slice(left);
            self.pause_detector.expect(self.clock.now().plus(left));
            tokio::select! {
                biased;
                () = self.alarms().set_earlier() => {}
                () = sleep(left) => {}
            }
            self.pause_detector.tick(&*self.clock);
        }
    }

    /// Serves every alarm that is due; returns when the next one will be.
    async fn sweep_once(self: &Arc<Self>, rounds: &mut Rounds) -> Result<Timestamp, Error> {
        self.alarms().begin_look();
        self.pause_detector.tick(&*self.clock);
        loop {
            self.pause_detector.expect(self.clock.now());
            let due = self.store.due(BATCH_MAX).await?;
            let outage = self.outage().await?;
            if self.lifecycle.is_draining() && !self.is_shared {
                // No worker can reach this process to keep its lease. The next start serves these alarms and knows of the
                // downtime.
                return Ok(self.clock.now().plus(SLEEP_MAX));
            }
            let next_round = rounds.serve(self, &due.others);
            if due.jobs.is_empty() {
                let next = due.next.into_iter().chain(next_round).min();
                return Ok(next.unwrap_or_else(|| self.clock.now().plus(SLEEP_MAX)));
            }
            let count = due.jobs.len();
            let order = |id| JobCommand { id, reach: Reach::Everything, command: Command::Wake { outage } };
            let answers = self.jobs.apply(due.jobs.into_iter().map(order).collect()).await?;
            let counters = &self.announcer.counters;
            counters.woken.add(count);
            counters.stalled.add(answers.iter().flatten().filter(|applied| applied.stalled).count());
            let moved = answers.iter().flatten().any(|applied| applied.changed);
            if self.is_shared && !moved {
                // Another node serves these alarms, or this node's clock is ahead of the database's.
                sleep(self.random.jitter(PEER_PAUSE)).await;
            }
        }
    }

    /// The last downtime. Must be asked after the due alarms were read: it then includes a pause between the two, and an alarm
    /// that was due before a pause has had its time.
    async fn outage(&self) -> Result<Option<Outage>, Error> {
        if let Some(outage) = self.store.record_attendance().await? {
            self.pause_detector.learn(outage);
        }
        self.pause_detector.tick(&*self.clock);
        Ok(self.pause_detector.latest())
    }

    /// Serves the due alarms of a kind; says how long the kind rests after it.
    pub(crate) async fn serve(self: Arc<Self>, kind: AlarmKind) -> Result<Duration, Error> {
        match kind {
            AlarmKind::Object => self.objects.collect().await,
            AlarmKind::Event => self.inbound.prune_events().await,
            AlarmKind::Operation => self.jobs.carry_on_operations().await,
        }
    }

    fn alarms(&self) -> &Alarms {
        &self.announcer.alarms
    }
}
