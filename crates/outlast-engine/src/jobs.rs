//! The room of jobs: publish, hand out, commands, long poll, operations, and reads. Every state change of a job goes through
//! [`Jobs::publish`], [`Jobs::claim`], [`Jobs::apply`] or an operation.

pub mod publish;
pub mod claim;
pub mod multi_claim;
pub mod handover;
pub mod outcome;
pub mod long_poll;
pub mod multi_poll;
pub mod operations;

use std::sync::Arc;

use outlast_core::{Clock, Event, Job, JobId};
use outlast_store::artifacts::Artifacts;
use outlast_store::dead_letters::{DeadLetterPage, ListDeadLetters};
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::{FoundJob, JobPage, ListJobs, Reach};
use outlast_store::{Error, JobStore};

use crate::announcer::Announcer;
use crate::detached::DetachedCalls;
use crate::engine::Parts;
use crate::lifecycle::Lifecycle;
use crate::pause_detector::PauseDetector;
use crate::random::Random;
use crate::single_flight::SingleFlight;

pub struct Jobs {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) pause_detector: Arc<PauseDetector>,
    /// Calls whose caller has disconnected.
    pub(crate) detached: Arc<DetachedCalls>,
    /// Single jobs that are being read.
    pub(crate) reads: SingleFlight<JobId, Result<Option<FoundJob>, Error>>,
}

impl Jobs {
    pub(crate) fn new(parts: &Parts) -> Jobs {
        let Parts { store, clock, random, announcer, lifecycle, pause_detector, detached, .. } = parts.clone();
        let reads = SingleFlight::default();
        Jobs { store, clock, random, announcer, lifecycle, pause_detector, detached, reads }
    }

    /// The job as it is. `None` when there is no such job within reach. Concurrent callers share a read. Cancel-safe.
    pub async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
        // Read for all callers, whatever their reach; which of them may see the job is decided afterwards.
        let read = || {
            self.announcer.counters.job_reads.add(1);
            self.store.job(&Reach::Everything, id)
        };
        let found = self.reads.share(id, read).await?;
        Ok(found.filter(|found| reach.covers(&found.queue)))
    }

    /// A job with all that its page shows, in one snapshot.
    pub async fn detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        self.announcer.counters.job_reads.add(1);
        self.store.job_detail(reach, id).await
    }

    pub async fn list(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.store.jobs(list).await
    }

    /// Dead letters of one queue, the latest failure first.
    pub async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.store.dead_letters(list).await
    }

    pub async fn events(
        &self,
        reach: &Reach,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Event>>, Error> {
        self.store.events(reach, id, after, limit).await
    }

    /// The checkpoint and the names of the sections that earlier attempts have saved for this one. Reads nothing where the job
    /// says that there are none.
    pub async fn saved_work(&self, job: &Job) -> Result<Option<Artifacts>, Error> {
        if !job.work_summary.has_checkpoint && !job.work_summary.has_sections {
            return Ok(None);
        }
        self.store.artifacts(&Reach::Everything, job.id).await
    }
}
