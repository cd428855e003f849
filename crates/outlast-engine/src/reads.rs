//! Reads for those who ask from outside: what the store holds, as it is. Nothing here changes anything or waits for a change.

use std::sync::Arc;

use outlast_core::arrival::{Arrival, ArrivalId};
use outlast_core::checkpoint::Section;
use outlast_core::{Event, JobId, NamespaceId, Queue};
use outlast_store::Error;
use outlast_store::arrivals::{ArrivalPage, ListArrivals};
use outlast_store::damage::Damage;
use outlast_store::dead_letters::{DeadLetterPage, ListDeadLetters};
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::{Found, JobPage, ListJobs, Reach};
use outlast_store::kept::{Inline, Kept, Stored};
use outlast_store::operations::{NewOperation, Operation, OperationId};
use outlast_store::queues::Counts;

use crate::engine::Engine;

impl Engine {
    /// A job with all that its page shows, as of one moment.
    pub async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        self.shared.counters.job_reads.add(1);
        self.shared.store.job_detail(reach, id).await
    }

    pub async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.shared.store.jobs(list).await
    }

    pub async fn events(
        &self,
        reach: &Reach,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<Event>>, Error> {
        self.shared.store.events(reach, id, after, limit).await
    }

    /// What attempts have saved. `None` when there is no such job.
    pub async fn saved(&self, reach: &Reach, id: JobId) -> Result<Option<Kept>, Error> {
        self.shared.store.kept(reach, id).await
    }

    pub async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        self.shared.store.sections(reach, id, after, limit).await
    }

    pub async fn one_section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        self.shared.store.section(reach, id, name).await
    }

    pub async fn inline_result(&self, reach: &Reach, id: JobId) -> Result<Option<Inline>, Error> {
        self.shared.store.result(reach, id).await
    }

    /// The uploaded result: of a job that succeeded, or as far as a cancelled or failed one had come.
    pub async fn uploaded_result(&self, found: &Found) -> Result<Option<Stored>, Error> {
        if !found.job.has_uploaded_result() {
            return Ok(None);
        }
        let objects = self.shared.store.objects(&Reach::Everything, found.job.id).await?.unwrap_or_default();
        Ok(objects.into_iter().find(Stored::is_result))
    }

    /// The result was asked for once more. Nobody waits until that is written down.
    pub fn count_download(&self, id: JobId) {
        let engine = self.clone();
        self.shared.detached.spawn(async move {
            if let Err(error) = engine.shared.store.count_download(id).await {
                tracing::warn!(%error, "a download was not counted");
            }
        });
    }

    /// Dead letters of one queue, the latest failure first.
    pub async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.shared.store.dead_letters(list).await
    }

    pub async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, Counts)>, Error> {
        self.shared.store.queue(namespace, name).await
    }

    pub async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        self.shared.store.queues(namespace, after, limit).await
    }

    /// All queues of all namespaces, for the metrics.
    pub async fn census(&self) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        self.shared.store.census().await
    }

    pub async fn event(&self, namespace: NamespaceId, id: ArrivalId) -> Result<Option<Arrival>, Error> {
        self.shared.store.arrival(namespace, id).await
    }

    pub async fn list_events(&self, list: ListArrivals) -> Result<ArrivalPage, Error> {
        self.shared.store.arrivals(list).await
    }

    pub async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.shared.store.operation(namespace, id).await
    }

    pub async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.shared.store.operations(namespace, limit).await
    }

    pub async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        self.shared.store.count_operation(operation, limit).await
    }

    /// What this process has found damaged.
    pub fn damage(&self) -> Damage {
        self.shared.store.damage()
    }

    /// Does a write come back?
    pub async fn ping(&self) -> Result<(), Error> {
        self.shared.store.ping().await
    }
}
