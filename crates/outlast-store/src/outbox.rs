//! The outbox: jobs that a state change creates in its own transaction.

use std::sync::Arc;

use outlast_core::change::OutboxContent;
use outlast_core::{Effect, Job, Queue, Spec, Update};

use crate::jobs::NewJob;

/// Composes the notice of how a job ended. A store is opened with it, since a store knows neither our URLs nor our words.
pub type Compose = fn(&EndedJob<'_>) -> Spec;

/// A job that has just ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedJob<'a> {
    /// The queue that gets the notice.
    pub outbox: &'a str,
    pub job: &'a Job,
    pub queue: &'a Queue,
    /// The inline result, if it has one.
    pub result: Option<&'a str>,
}

/// The jobs that an update of a job of this queue creates.
pub(crate) fn outgoing(update: &Update, queue: &Queue, compose: Compose) -> Vec<NewJob> {
    let result = update.effects.iter().find_map(|effect| match effect {
        Effect::KeepResult(text) => Some(&**text),
        _ => None,
    });
    let job = |effect: &Effect| {
        let Effect::Publish { queue: outbox, content } = effect else {
            return None;
        };
        let spec = match content {
            OutboxContent::Spec(spec) => Arc::clone(spec),
            OutboxContent::Notice => Arc::new(compose(&EndedJob { outbox, job: &update.job, queue, result })),
        };
        Some(NewJob { namespace: queue.namespace, queue: Arc::clone(outbox), spec })
    };
    update.effects.iter().filter_map(job).collect()
}

/// The queues that got them.
pub(crate) fn queues_of(jobs: &[NewJob]) -> Vec<Arc<str>> {
    jobs.iter().map(|job| Arc::clone(&job.queue)).collect()
}
