//! Publishing: find the key's job or make a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::change::OutboxContent;
use outlast_core::{Job, JobId, NamespaceId, Queue, Spec, system_queue};
use outlast_store::checked_decide::{creation_event, dedupe_key};
use outlast_store::jobs::{NewJob, Published};
use outlast_store::outbox::EndedJob;
use serde_json::Value;

use super::world::{Row, World};

impl World {
    pub(super) fn publish(&mut self, new: &NewJob) -> Published {
        self.find_or_create(new, false)
    }

    /// One that comes of a change knows neither a quota nor another key than its own.
    fn find_or_create(&mut self, new: &NewJob, is_outgoing: bool) -> Published {
        let Some(queue) = self.find_queue(new.namespace, &new.queue) else {
            return Published::QueueNotFound;
        };
        let key = match is_outgoing {
            true => new.spec.idempotency_key.as_deref().map(str::to_owned),
            false => dedupe_key(&new.spec, &queue.settings).map(String::from),
        };
        // The newest job that holds the key; an older one may hold it again after a replay.
        let same_key =
            |row: &&Row| row.job.queue == queue.id && row.job.spec.idempotency_key.as_deref() == key.as_deref();
        let holds = |row: &&Row| key.is_some() && same_key(row) && (self.rules.holds_key)(&row.job, &queue, self.now);
        if let Some(row) = self.rows.values().rev().find(holds) {
            let payload_mismatch = !same_json(&row.job.spec.payload, &new.spec.payload);
            return Published::Existing { job: row.job.clone(), payload_mismatch, dedupe_by: queue.settings.dedupe_by };
        }
        if !is_outgoing && self.waiting(new.namespace) >= self.waiting_max {
            return Published::QuotaReached { waiting_max: self.waiting_max };
        }
        self.create(&queue, Spec { idempotency_key: key.map(Into::into), ..Spec::clone(&new.spec) })
    }

    /// Creates the job that a change of this one asks for, whatever the quota. A queue of our own is made for it.
    pub(super) fn publish_outgoing(&mut self, changed: &Row, of: &Queue, name: &Arc<str>, content: &OutboxContent) {
        if self.find_queue(of.namespace, name).is_none()
            && let Some(own) = system_queue(name)
        {
            self.create_queue(of.namespace, name, &(own.settings)().into());
        }
        let spec = match content {
            OutboxContent::Spec(spec) => Arc::clone(spec),
            OutboxContent::Notice => {
                let result = changed.result.as_deref();
                Arc::new((self.rules.compose)(&EndedJob { outbox: name, job: &changed.job, queue: of, result }))
            }
        };
        self.find_or_create(&NewJob { namespace: of.namespace, queue: Arc::clone(name), spec }, true);
    }

    fn create(&mut self, queue: &Queue, spec: Spec) -> Published {
        let id = JobId::new(self.now, u128::from(self.jobs_made + 1));
        let mut job = Job::admit(id, queue.id, Arc::new(spec), self.now);
        let events = vec![creation_event(&mut job)];
        let wake_at = (self.rules.alarm)(&job, queue);
        self.insert(Row {
            job: job.clone(),
            events,
            wake_at,
            result: None,
            downloads: 0,
            checkpoint: None,
            sections: BTreeMap::new(),
        });
        Published::Created { job, wake_at, dedupe_by: queue.settings.dedupe_by }
    }

    pub(super) fn waiting(&self, namespace: NamespaceId) -> u64 {
        let waits = |row: &&Row| {
            self.queue_of(&row.job).namespace == namespace
                && matches!(row.job.status(), outlast_core::Status::Pending | outlast_core::Status::Queued)
        };
        self.rows.values().filter(waits).count() as u64
    }
}

/// The same value, however it is written.
fn same_json(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || value(one).is_some_and(|found| Some(found) == value(other))
}
