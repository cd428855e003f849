//! Alarms of things other than jobs: a kind with something due gets a task, at most one at a time, and rests for as long as
//! that task says. So neither a slow object store nor a long operation holds up the alarms of jobs or of each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_store::Error;
use outlast_store::alarms::AlarmKind;
use tokio::task::{Id, JoinError, JoinSet};

use crate::sweep::{RETRY_PAUSE, Sweep};

/// How long a kind rests whose task panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Rounds {
    tasks: JoinSet<Result<Duration, Error>>,
    running: HashMap<Id, AlarmKind>,
    /// Until when a kind is left alone.
    resting: HashMap<AlarmKind, Timestamp>,
}

impl Rounds {
    /// Starts a round for every kind with something due. Gives the time at which the next kind will be due.
    pub(crate) fn serve(&mut self, sweep: &Arc<Sweep>, alarms: &[(AlarmKind, Timestamp)]) -> Option<Timestamp> {
        let now = sweep.clock.now();
        let mut next: Option<Timestamp> = None;
        for (kind, at) in alarms {
            if self.running.values().any(|running| running == kind) {
                continue;
            }
            let at = self.resting.get(kind).map_or(*at, |rested| *at.max(rested));
            if at <= now {
                self.start(sweep, *kind);
            } else {
                next = next.into_iter().chain([at]).min();
            }
        }
        next
    }

    fn start(&mut self, sweep: &Arc<Sweep>, kind: AlarmKind) {
        sweep.supervisor.set_stopped(kind.as_str(), false);
        let task = self.tasks.spawn(Arc::clone(sweep).serve(kind));
        self.running.insert(task.id(), kind);
    }

    /// Waits until a round has ended; for ever while there is none. Cancel-safe.
    pub(crate) async fn ended(&mut self, sweep: &Arc<Sweep>) {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (id, rest) = match ended {
            Ok((id, Ok(rest))) => (id, rest),
            Ok((id, Err(error))) => {
                self.failed(sweep, id, &error);
                (id, RETRY_PAUSE)
            }
            Err(panicked) => (panicked.id(), self.panicked(sweep, &panicked)),
        };
        if let Some(kind) = self.running.remove(&id) {
            self.resting.insert(kind, sweep.clock.now().plus(rest));
        }
    }

    fn failed(&self, sweep: &Arc<Sweep>, id: Id, error: &Error) {
        if !matches!(error, Error::Stopped) {
            let kind = self.running.get(&id).map(|kind| kind.as_str());
            tracing::warn!(%error, kind, "alarms of a kind could not be served; trying again");
            sweep.announcer.counters.loop_failures.add(1);
        }
    }

    fn panicked(&self, sweep: &Arc<Sweep>, panicked: &JoinError) -> Duration {
        if let Some(kind) = self.running.get(&panicked.id()).filter(|_| panicked.is_panic()) {
            tracing::error!(name = kind.as_str(), restart_in = ?PANIC_PAUSE, "a background loop panicked; it will be started again");
            sweep.supervisor.set_stopped(kind.as_str(), true);
            sweep.announcer.counters.loop_failures.add(1);
        }
        PANIC_PAUSE
    }

    /// Waits for all rounds: each of them ends after its present step once the engine stops.
    pub(crate) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
