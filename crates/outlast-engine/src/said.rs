//! The latest progress of a job for those who watch it, hanging on the job's bell. Only the latest: who was slow has missed
//! nothing that still matters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::Progress;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Said {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Default)]
struct State {
    /// How often something was said.
    count: u64,
    latest: Option<Arc<Progress>>,
}

impl Said {
    pub(crate) fn say(&self, progress: &Arc<Progress>) {
        let mut state = self.lock();
        state.count += 1;
        state.latest = Some(Arc::clone(progress));
        drop(state);
        self.notify.notify_waiters();
    }

    /// What was said after one had heard `heard` times, and how often it is now.
    pub(crate) fn after(&self, heard: u64) -> Option<(u64, Arc<Progress>)> {
        let state = self.lock();
        if state.count == heard {
            return None;
        }
        state.latest.clone().map(|latest| (state.count, latest))
    }

    /// Ends when there is something after `heard`. Cancel-safe.
    pub(crate) async fn said_after(&self, heard: u64) {
        let mut said = std::pin::pin!(self.notify.notified());
        said.as_mut().enable();
        if self.lock().count == heard {
            said.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
