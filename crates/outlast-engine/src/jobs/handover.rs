//! Jobs between their hand-out and the response that carries them. If the response is never sent they go back at once, free of
//! charge.

use std::sync::Arc;

use outlast_core::{Command, Evidence, Job, Outcome, State};
use outlast_store::jobs::{JobCommand, Reach};

use super::Jobs;

/// Dropped before [`Handover::complete`], it hands the jobs back.
pub struct Handover {
    jobs: Arc<Jobs>,
    pending: Vec<Job>,
}

impl Handover {
    /// The receiver has the jobs.
    pub fn complete(mut self) {
        self.pending.clear();
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let (jobs, pending) = (Arc::clone(&self.jobs), std::mem::take(&mut self.pending));
        if pending.is_empty() {
            return;
        }
        // Outside of a runtime this does not run; then the leases run out.
        let detached = Arc::clone(&jobs.detached);
        detached.spawn(async move { jobs.hand_back(&pending).await });
    }
}

impl Jobs {
    /// These were handed out. They go back unless the caller completes the handover.
    pub fn handover(self: &Arc<Self>, jobs: &[Job]) -> Handover {
        Handover { jobs: Arc::clone(self), pending: jobs.to_vec() }
    }

    /// Gives up the leases of these jobs, free of charge.
    pub(crate) async fn hand_back(self: &Arc<Self>, jobs: &[Job]) {
        let release = |job: &Job| {
            let State::Running(running) = &job.state else {
                return None;
            };
            let (lease, outcome, evidence) = (Some(running.lease), Outcome::Release, Evidence::default());
            let command = Command::Report { lease, outcome, evidence };
            Some(JobCommand { id: job.id, reach: Reach::Everything, command })
        };
        if let Err(error) = self.apply(jobs.iter().filter_map(release).collect()).await {
            tracing::warn!(%error, count = jobs.len(), "jobs could not be handed back; their leases will run out");
        }
    }
}
