//! The latest progress of a job for those who watch it, hanging on the job's bell. Only the latest: who was slow has missed
//! nothing that still matters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::Progress;
use outlast_store::live::HandOut;
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
    latest: Option<(HandOut, Arc<Progress>)>,
}

impl Said {
    /// What comes late, from a worker that speaks to several nodes or of a hand-out before, takes nothing back.
    pub(crate) fn say(&self, hand_out: HandOut, progress: &Arc<Progress>) {
        let mut state = self.lock();
        let furthest = match &state.latest {
            Some((same, latest)) if *same == hand_out => Arc::new(latest.joined(progress)),
            Some((_, latest)) if latest.at > progress.at => return,
            _ => Arc::clone(progress),
        };
        if state.latest.as_ref().is_some_and(|(_, latest)| *latest == furthest) {
            return;
        }
        state.count += 1;
        state.latest = Some((hand_out, furthest));
        drop(state);
        self.notify.notify_waiters();
    }

    /// What was said after one had heard `heard` times, and how often it is now.
    pub(crate) fn after(&self, heard: u64) -> Option<(u64, Arc<Progress>)> {
        let state = self.lock();
        if state.count == heard {
            return None;
        }
        state.latest.as_ref().map(|(_, latest)| (state.count, Arc::clone(latest)))
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
