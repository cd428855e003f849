//! Publishing: store, then wake those who wait for work.

use std::sync::Arc;

use outlast_core::{NamespaceId, Status};
use outlast_store::Error;
use outlast_store::jobs::{NewJob, Published};

use crate::engine::Engine;

impl Engine {
    /// Durable when it returns. Answers in order. Not cancel-safe in effect: a dropped call may still store.
    pub async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        let places: Vec<_> = jobs.iter().map(|job| (job.namespace, job.queue.clone())).collect();
        let unheard = self.unheard(places.iter().map(|(namespace, _)| Some(*namespace)).collect());
        let published = unheard.heard(self.shared.store.publish(jobs).await)?;
        for (answer, (namespace, queue)) in published.iter().zip(&places) {
            self.announce_published(*namespace, queue, answer);
        }
        Ok(published)
    }

    /// Those who wait for the queue hear of what was stored.
    pub(crate) fn announce_published(&self, namespace: NamespaceId, queue: &Arc<str>, answer: &Published) {
        match answer {
            Published::Created { job, wake_at } => {
                self.shared.meters.published.add(1);
                self.note_alarm(*wake_at);
                // Only here: elsewhere nobody can watch what is new, and the counts tell of it.
                self.shared.wakes.boards().job_changed(namespace, queue, job.id);
                if job.status() == Status::Queued {
                    self.shared.wakes.queue_has(namespace, queue, 1);
                }
            }
            Published::Existing { .. } => self.shared.meters.duplicates.add(1),
            Published::QueueNotFound | Published::QuotaReached { .. } => {}
        }
    }
}
