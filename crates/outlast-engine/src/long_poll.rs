//! Looking at a job, and waiting for it to change: long poll on its version, and `Prefer: wait`. Those who look at the
//! same job at the same time share a read.

use std::time::Duration;

use outlast_core::JobId;
use outlast_store::Error;
use outlast_store::jobs::{Found, Reach};
use tokio::time::{Instant, sleep_until};

use crate::engine::Engine;

/// Until when to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The version has passed this one.
    VersionPasses(u64),
    /// Nothing more can happen by itself.
    Terminal,
}

impl Engine {
    /// The job as it is. `None` when there is no such job within reach. Cancel-safe.
    pub async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<Found>, Error> {
        let shared = &self.shared;
        // Read for all who ask, whatever their reach; what each of them may see is decided afterwards.
        let read = || {
            shared.counters.job_reads.add(1);
            shared.store.job(&Reach::Everything, id)
        };
        let found = shared.job_reads.share(id, read).await?;
        Ok(found.filter(|found| reach.covers(&found.queue)))
    }

    /// The job, as soon as the condition holds or `wait` is over. `None` when there is no such job. Cancel-safe.
    pub async fn watch(&self, reach: &Reach, id: JobId, until: Until, wait: Duration) -> Result<Option<Found>, Error> {
        let end = Instant::now() + wait;
        let listener = self.shared.notifier.listen_job(id, reach.namespace());
        loop {
            let mut notified = std::pin::pin!(listener.notify().notified());
            notified.as_mut().enable();
            let Some(found) = self.job(reach, id).await? else {
                return Ok(None);
            };
            let holds = match until {
                Until::VersionPasses(version) => found.job.version > version,
                Until::Terminal => found.job.status().is_terminal(),
            };
            if holds || Instant::now() >= end || self.is_draining() {
                return Ok(Some(found));
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = sleep_until(end) => {}
            }
        }
    }
}
