//! Keeps the background loops running: a loop that panics is logged, shown by `/readyz` while it is down, and started again
//! after a pause that grows with each failure.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::engine::Engine;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A loop that ran for this long had recovered: its next failure is a first one.
const RECOVERED_AFTER: Duration = Duration::from_secs(120);

/// Which loops are down.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    stopped: Mutex<BTreeSet<&'static str>>,
}

impl Supervisor {
    pub(crate) fn set_stopped(&self, name: &'static str, is_stopped: bool) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        match is_stopped {
            true => stopped.insert(name),
            false => stopped.remove(name),
        };
    }
}

impl Engine {
    /// Loops that have panicked and wait for their restart.
    pub fn stopped_loops(&self) -> Vec<&'static str> {
        self.shared.supervisor.stopped.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Runs a loop until it ends by itself, which it does when the engine stops.
    pub(crate) fn supervise<L: Future<Output = ()> + Send + 'static>(
        &self,
        name: &'static str,
        run: fn(Engine) -> L,
    ) -> JoinHandle<()> {
        tokio::spawn(self.clone().keep_running(name, run))
    }

    async fn keep_running<L: Future<Output = ()> + Send>(self, name: &'static str, run: fn(Engine) -> L) {
        let (mut stopping, mut pause) = (self.stopping(), PAUSE_FIRST);
        loop {
            let started = Instant::now();
            if AssertUnwindSafe(run(self.clone())).catch_unwind().await.is_ok() {
                return;
            }
            if started.elapsed() >= RECOVERED_AFTER {
                pause = PAUSE_FIRST;
            }
            // The panic itself, with its place, is logged by the process's panic hook.
            tracing::error!(name, restart_in = ?pause, "a background loop panicked; it will be started again");
            self.shared.counters.loop_failures.add(1);
            self.shared.supervisor.set_stopped(name, true);
            tokio::select! {
                biased;
                _ = stopping.changed() => return,
                () = sleep(pause) => {}
            }
            self.shared.supervisor.set_stopped(name, false);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
