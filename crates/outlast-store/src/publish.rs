//! Publishing, once for all engines: find the job that has the key, or make a new one.

use std::borrow::Cow;
use std::sync::Arc;

use outlast_core::alarm::alarm;
use outlast_core::dedupe::holds_key;
use outlast_core::{Job, NamespaceId, Queue, Spec, Timestamp};

use crate::checked_decide::{creation_event, dedupe_key, same_json};
use crate::codec::events;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::JobRecord;
use crate::jobs::{NewJob, Published};

/// The origin of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publisher {
    User,
    /// No quota holds the job up, and only a key of its own makes it a duplicate: what follows from a change is not lost.
    StateChange,
}

impl Publisher {
    /// The key a publish is deduplicated by, if any.
    pub(crate) fn dedupe_key<'a>(self, spec: &'a Spec, queue: &Queue) -> Option<Cow<'a, str>> {
        match self {
            Publisher::User => dedupe_key(spec, &queue.settings),
            Publisher::StateChange => spec.idempotency_key.as_deref().map(Cow::Borrowed),
        }
    }
}

/// One publish in a transaction of an engine.
pub(crate) trait Publishing {
    type Fault;

    fn now(&self) -> Timestamp;
    fn ids(&self) -> JobIdCodec;
    fn find_queue(&self, namespace: NamespaceId, name: &Arc<str>) -> Option<Arc<Queue>>;
    /// Of the jobs whose key has this hash, the newest one that `holds` it.
    fn find_by_key(&mut self, hash: i64, holds: impl Fn(&Job) -> bool) -> Result<Option<Job>, Self::Fault>;
    /// How many waiting jobs a namespace may hold, if it holds that many.
    fn quota_reached(&mut self, namespace: NamespaceId) -> Option<u64>;
    /// The number of the job, if it becomes one.
    fn seq(&self) -> i64;
    fn insert(&mut self, record: JobRecord, queue: &Queue) -> Result<(), Self::Fault>;
}

pub(crate) fn publish<T: Publishing>(tx: &mut T, new: &NewJob, publisher: Publisher) -> Result<Published, T::Fault> {
    let Some(queue) = tx.find_queue(new.namespace, &new.queue) else {
        return Ok(Published::QueueNotFound);
    };
    let (now, ids, seq) = (tx.now(), tx.ids(), tx.seq());
    let dedupe_by = queue.settings.dedupe_by;
    let key = publisher.dedupe_key(&new.spec, &queue);
    let key_hash = key.as_deref().map(|key| ids.key_hash(queue.id, key));
    if let Some(hash) = key_hash {
        // A hash is only a hint; the stored key decides. An older job may hold the key again after a replay.
        let holds = |job: &Job| {
            job.queue == queue.id
                && job.spec.idempotency_key.as_deref() == key.as_deref()
                && holds_key(job, &queue, now)
        };
        if let Some(job) = tx.find_by_key(hash, holds)? {
            let payload_mismatch = !same_json(&job.spec.payload, &new.spec.payload);
            return Ok(Published::Existing { job, payload_mismatch, dedupe_by });
        }
    }
    if publisher == Publisher::User
        && let Some(waiting_max) = tx.quota_reached(new.namespace)
    {
        return Ok(Published::QuotaReached { waiting_max });
    }
    let spec = match &new.spec.idempotency_key {
        None if key.is_some() => {
            Arc::new(Spec { idempotency_key: key.as_deref().map(Into::into), ..Spec::clone(&new.spec) })
        }
        _ => Arc::clone(&new.spec),
    };
    let mut job = Job::admit(ids.id(seq, now), queue.id, spec, now);
    let event = creation_event(&mut job);
    let mut history = Vec::with_capacity(64);
    events::append(&mut history, job.created_at, &event);
    let wake_at = alarm(&job, &queue);
    tx.insert(JobRecord { seq, job: job.clone(), history, wake_at, key_hash, spec_digest: None }, &queue)?;
    Ok(Published::Created { job, wake_at, dedupe_by })
}
