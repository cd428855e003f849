//! Waiting for a job to change: long poll on its version, and `Prefer: wait`.

use std::time::Duration;

use outlast_core::JobId;
use outlast_store::Error;
use outlast_store::jobs::{FoundJob, Reach};
use tokio::time::{Instant, sleep_until};

use super::Jobs;

/// Until when to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The version has passed this one.
    VersionPasses(u64),
    /// Nothing more can happen by itself.
    Terminal,
}

impl Jobs {
    /// The job, as soon as the condition holds or `wait` is over. `None` when there is no such job. Cancel-safe.
    pub async fn watch(
        &self,
        reach: &Reach,
        id: JobId,
        until: Until,
        wait: Duration,
    ) -> Result<Option<FoundJob>, Error> {
        let end = Instant::now() + wait;
        let listener = self.announcer.notifier.listen_job(id, reach.namespace());
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
            if holds || Instant::now() >= end || self.lifecycle.is_draining() {
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
