//! Publishing: find the key's job or make a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::queue::CALLBACKS;
use outlast_core::{Job, JobId, NamespaceId, Queue, QueueSettings, Spec};
use outlast_store::callback;
use outlast_store::jobs::{NewJob, Published};
use outlast_store::step::{birth, dedupe_key};
use serde_json::Value;

use super::world::{Row, World};

impl World {
    pub(super) fn publish(&mut self, new: &NewJob) -> Published {
        let Some(queue) = self.find_queue(new.namespace, &new.queue) else {
            return Published::QueueNotFound;
        };
        let key = dedupe_key(&new.spec, &queue.settings).map(String::from);
        // The newest job that holds the key; an older one may hold it again after a replay.
        let same_key =
            |row: &&Row| row.job.queue == queue.id && row.job.spec.idempotency_key.as_deref() == key.as_deref();
        let holds = |row: &&Row| key.is_some() && same_key(row) && (self.rules.holds_key)(&row.job, &queue, self.now);
        if let Some(row) = self.rows.values().rev().find(holds) {
            let payload_mismatch = !same_json(&row.job.spec.payload, &new.spec.payload);
            return Published::Existing { job: row.job.clone(), payload_mismatch };
        }
        if self.waiting(new.namespace) >= self.waiting_max {
            return Published::QuotaReached { waiting_max: self.waiting_max };
        }
        self.create(&queue, Spec { idempotency_key: key.map(Into::into), ..Spec::clone(&new.spec) })
    }

    /// Tells how a job ended, through a job of its own in the namespace's queue for that.
    pub(super) fn publish_callback(&mut self, ended: &Row, of: &Queue) {
        let draft = QueueSettings::of_callbacks().into();
        let queue = match self.find_queue(of.namespace, CALLBACKS) {
            Some(queue) => queue,
            None => self.create_queue(of.namespace, CALLBACKS, &draft),
        };
        self.create(&queue, callback::spec(&ended.job, of, ended.result.as_deref()));
    }

    fn create(&mut self, queue: &Queue, spec: Spec) -> Published {
        let id = JobId::new(self.now, u128::from(self.jobs_made + 1));
        let mut job = Job::admit(id, queue.id, Arc::new(spec), self.now);
        let events = vec![birth(&mut job)];
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
        Published::Created { job, wake_at }
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
