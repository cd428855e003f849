//! Long poll on several jobs: a request that waits until one of them changes.

use std::time::Duration;

use outlast_core::JobId;
use outlast_store::jobs::Reach;
use tokio::time::{Instant, sleep_until};

use super::Jobs;
use crate::notifier::job_listeners::JobListeners;

/// Listens to some jobs until its time is over.
pub struct JobsWatch {
    listeners: JobListeners,
    end: Instant,
}

impl Jobs {
    /// Begins to listen. To be called before the jobs are read: a change after that read is then not missed.
    pub fn watch_all(&self, jobs: impl Iterator<Item = JobId>, reach: &Reach, wait: Duration) -> JobsWatch {
        let listeners = JobListeners::new(&self.announcer.notifier, jobs, reach.namespace());
        JobsWatch { listeners, end: Instant::now() + wait }
    }

    /// The places of the jobs that may have changed; `None` when the wait is over or the server stops. Cancel-safe.
    pub async fn any_changed(&self, watch: &mut JobsWatch) -> Option<Vec<usize>> {
        let places = tokio::select! {
            biased;
            () = sleep_until(watch.end) => return None,
            places = watch.listeners.changed() => places,
        };
        (!self.lifecycle.is_draining()).then_some(places)
    }
}
