//! Publishing: store, then wake the consumers of the queues.

use std::sync::Arc;

use outlast_store::Error;
use outlast_store::jobs::{NewJob, Published};
use tokio::time::Instant;

use super::Jobs;

impl Jobs {
    /// Durable when it returns. Answers in order. A dropped call goes on and is announced.
    pub async fn publish(self: &Arc<Self>, new: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        let jobs = Arc::clone(self);
        let call = async move {
            let places: Vec<_> = new.iter().map(|job| (job.namespace, job.queue.clone())).collect();
            let began = Instant::now();
            let published = jobs.store.publish(new).await;
            let commit = began.elapsed();
            if matches!(published, Err(Error::Indeterminate)) {
                places.iter().for_each(|(namespace, queue)| jobs.announcer.maybe_written(*namespace, queue));
            }
            for (answer, (namespace, queue)) in published.iter().flatten().zip(&places) {
                if let Published::Created { job, .. } = answer {
                    jobs.announcer.counters.queues.of(*namespace, job.queue).commit.record(commit);
                }
                jobs.announcer.published(*namespace, queue, answer);
            }
            published
        };
        self.detached.commit(call).await
    }
}
