//! Keeps the background loops running: a loop that panics is logged, shown by `/readyz` while it is down, and started again
//! after a pause that grows with each failure.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::counters::Counters;
use crate::lifecycle::Lifecycle;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A loop that ran for this long had recovered: its next failure is a first one.
const RECOVERED_AFTER: Duration = Duration::from_secs(120);

pub(crate) struct Supervisor {
    /// Loops that are down.
    stopped: Mutex<BTreeSet<&'static str>>,
    counters: Arc<Counters>,
    lifecycle: Arc<Lifecycle>,
}

impl Supervisor {
    pub(crate) fn new(counters: Arc<Counters>, lifecycle: Arc<Lifecycle>) -> Supervisor {
        Supervisor { stopped: Mutex::default(), counters, lifecycle }
    }

    pub(crate) fn set_stopped(&self, name: &'static str, is_stopped: bool) {
        match is_stopped {
            true => self.lock().insert(name),
            false => self.lock().remove(name),
        };
    }

    /// Loops that have panicked and wait for their restart.
    pub(crate) fn stopped(&self) -> Vec<&'static str> {
        self.lock().iter().copied().collect()
    }

    /// Runs a loop of `part` until it ends by itself, which it does when the engine stops.
    pub(crate) fn supervise<P: Send + Sync + 'static, L: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        part: &Arc<P>,
        run: fn(Arc<P>) -> L,
    ) -> JoinHandle<()> {
        tokio::spawn(Arc::clone(self).keep_running(name, Arc::clone(part), run))
    }

    async fn keep_running<P: Send + Sync, L: Future<Output = ()> + Send>(
        self: Arc<Self>,
        name: &'static str,
        part: Arc<P>,
        run: fn(Arc<P>) -> L,
    ) {
        let (mut stopping, mut pause) = (self.lifecycle.stopping(), PAUSE_FIRST);
        loop {
            let started = Instant::now();
            if AssertUnwindSafe(run(Arc::clone(&part))).catch_unwind().await.is_ok() {
                return;
            }
            if started.elapsed() >= RECOVERED_AFTER {
                pause = PAUSE_FIRST;
            }
            // The process's panic hook logs the panic itself, with its place.
            tracing::error!(name, restart_in = ?pause, "a background loop panicked; it will be started again");
            self.counters.loop_failures.add(1);
            self.set_stopped(name, true);
            tokio::select! {
                biased;
                _ = stopping.changed() => return,
                () = sleep(pause) => {}
            }
            self.set_stopped(name, false);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
