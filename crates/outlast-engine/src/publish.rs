//! Publishing: store, then wake those who wait for work.

use std::sync::Arc;

use outlast_core::{NamespaceId, Status};
use outlast_store::Error;
use outlast_store::jobs::{NewJob, Published};

use crate::engine::Engine;

impl Engine {
    /// Durable when it returns. Answers in order. A dropped call goes on and is announced.
    pub async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        self.commit(|engine| async move {
            let places: Vec<_> = jobs.iter().map(|job| (job.namespace, job.queue.clone())).collect();
            let published = engine.shared.store.publish(jobs).await;
            if matches!(published, Err(Error::Indeterminate)) {
                places.iter().for_each(|(namespace, queue)| engine.announce_unknown(*namespace, queue));
            }
            for (answer, (namespace, queue)) in published.iter().flatten().zip(&places) {
                engine.announce_published(*namespace, queue, answer);
            }
            published
        })
        .await
    }

    /// The store could not say whether a write to this queue was committed: its waiters and followers look.
    pub(crate) fn announce_unknown(&self, namespace: NamespaceId, queue: &str) {
        self.shared.sweep.look_now();
        self.shared.push.look_for(namespace, queue);
        self.shared.notifier.queue_changed(namespace, queue);
        self.shared.notifier.queue_feeds().jobs_changed(namespace, queue);
    }

    /// Those who wait for the queue hear of what was stored.
    pub(crate) fn announce_published(&self, namespace: NamespaceId, queue: &Arc<str>, answer: &Published) {
        match answer {
            Published::Created { job, wake_at } => {
                self.shared.counters.published.add(1);
                self.note_alarm(*wake_at);
                // Only here: elsewhere nobody can watch what is new, and the counts tell of it.
                self.shared.notifier.queue_feeds().job_changed(namespace, queue, job.id);
                if job.status() == Status::Queued {
                    self.shared.notifier.jobs_ready(namespace, queue, 1);
                }
            }
            Published::Existing { .. } => self.shared.counters.duplicates.add(1),
            Published::QueueNotFound | Published::QuotaReached { .. } => {}
        }
    }
}
