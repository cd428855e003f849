//! Publishing inside the writer: find the key's job or make a new one.

use std::sync::Arc;

use outlast_core::alarm::alarm;
use outlast_core::dedupe::{blocks_replay, holds_key};
use outlast_core::{Job, JobId, Queue, Spec, system_queue};

use super::faults::Fault;
use super::long_text::Packed;
use super::rows::Record;
use super::writer::Core;
use crate::history;
use crate::jobs::{NewJob, Published};
use crate::outbox::Publisher;
use crate::step::{birth, same_json};

/// How a new job goes to disk.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) payload: &'a Packed,
    /// The event it comes of, if that is stored with it.
    pub(super) arrival: Option<i64>,
}

impl Core<'_> {
    /// Each with its payload as it goes to disk.
    pub(super) fn publish(&mut self, jobs: &[(NewJob, Packed)]) -> Result<Vec<Published>, Fault> {
        let publish =
            |(new, payload): &(NewJob, Packed)| self.publish_one(new, Form { payload, arrival: None }, Publisher::User);
        jobs.iter().map(publish).collect()
    }

    pub(super) fn publish_one(
        &mut self,
        new: &NewJob,
        form: Form<'_>,
        publisher: Publisher,
    ) -> Result<Published, Fault> {
        let Some(queue) = self.registry.find(new.namespace, &new.queue).cloned() else {
            return Ok(Published::QueueNotFound);
        };
        let key = publisher.dedupe_key(&new.spec, &queue);
        let key_hash = key.as_deref().map(|key| self.ids.key_hash(queue.id, key));
        if let (Some(key), Some(hash)) = (&key, key_hash)
            && let Some(existing) = self.holder_of_key(&queue, key, hash)?
        {
            let payload_mismatch = !same_json(&existing.spec.payload, &new.spec.payload);
            return Ok(Published::Existing { job: existing, payload_mismatch });
        }
        if publisher == Publisher::User && self.index.waiting(new.namespace) >= self.namespace_waiting_max {
            return Ok(Published::QuotaReached { waiting_max: self.namespace_waiting_max });
        }
        let spec = match &new.spec.idempotency_key {
            None if key.is_some() => {
                Arc::new(Spec { idempotency_key: key.as_deref().map(Into::into), ..Spec::clone(&new.spec) })
            }
            _ => Arc::clone(&new.spec),
        };
        self.create(&queue, spec, form, key_hash)
    }

    /// A job that a state change creates. A system queue is made when it is first needed.
    pub(super) fn publish_outgoing(&mut self, new: &NewJob) -> Result<(), Fault> {
        if self.registry.find(new.namespace, &new.queue).is_none()
            && let Some(own) = system_queue(&new.queue)
        {
            self.create_queue(new.namespace, own.name, &(own.settings)().into())?;
        }
        let payload = Packed::new(&new.spec.payload);
        self.publish_one(new, Form { payload: &payload, arrival: None }, Publisher::StateChange).map(|_| ())
    }

    fn create(
        &mut self,
        queue: &Queue,
        spec: Arc<Spec>,
        form: Form<'_>,
        key_hash: Option<i64>,
    ) -> Result<Published, Fault> {
        let seq = self.next_seq;
        let mut job = Job::admit(self.ids.id(seq, self.now), queue.id, spec, self.now);
        let event = birth(&mut job);
        let mut history = Vec::with_capacity(64);
        history::append(&mut history, job.created_at, &event);
        let wake_at = alarm(&job, queue);
        let record = Record { seq, job, history, wake_at, key_hash };
        self.insert(&record, &form, queue)?;
        self.next_seq += 1;
        let job = record.job.clone();
        self.keep(record);
        Ok(Published::Created { job, wake_at })
    }

    /// The job that has the key of `record` and keeps it from being replayed. The record is in the caller's hands.
    pub(super) fn blocks_replay(&mut self, record: &Record, queue: &Queue) -> Result<Option<JobId>, Fault> {
        let Some(hash) = record.key_hash else {
            return Ok(None);
        };
        for seq in self.index.keyed(hash).into_iter().filter(|seq| *seq != record.seq) {
            let Some(other) = self.take(seq)? else {
                continue;
            };
            let holder = blocks_replay(&other.job, &record.job, queue, self.now).then_some(other.job.id);
            self.keep(other);
            if holder.is_some() {
                return Ok(holder);
            }
        }
        Ok(None)
    }

    /// The job that holds the key now, if any. A hash is only a hint; the stored key decides.
    fn holder_of_key(&mut self, queue: &Queue, key: &str, hash: i64) -> Result<Option<Job>, Fault> {
        // An older job may hold the key again after a replay.
        for seq in self.index.keyed(hash) {
            let Some(record) = self.take(seq)? else {
                continue;
            };
            let is_holder = record.job.queue == queue.id
                && record.job.spec.idempotency_key.as_deref() == Some(key)
                && holds_key(&record.job, queue, self.now);
            let job = is_holder.then(|| record.job.clone());
            self.keep(record);
            if job.is_some() {
                return Ok(job);
            }
        }
        Ok(None)
    }
}
