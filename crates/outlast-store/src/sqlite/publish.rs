//! Publishing inside the writer.

use std::sync::Arc;

use outlast_core::dedupe::blocks_replay;
use outlast_core::{Job, JobId, NamespaceId, Queue, Timestamp, system_queue};

use super::faults::Fault;
use super::long_text::Packed;
use super::writer::Core;
use crate::ids::Ids;
use crate::jobs::{NewJob, Published};
use crate::publish::{Publisher, Publishing, publish};
use crate::rows::Record;

/// How a new job goes to disk.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) payload: &'a Packed,
    /// The event it comes of, if that is stored with it.
    pub(super) arrival: Option<i64>,
}

/// One publish.
struct Desk<'a, 'c> {
    core: &'a mut Core<'c>,
    form: Form<'a>,
}

impl Publishing for Desk<'_, '_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.core.now
    }

    fn ids(&self) -> Ids {
        self.core.ids
    }

    fn find_queue(&self, namespace: NamespaceId, name: &Arc<str>) -> Option<Arc<Queue>> {
        self.core.registry.find(namespace, name).cloned()
    }

    fn find_by_key(&mut self, hash: i64, holds: impl Fn(&Job) -> bool) -> Result<Option<Job>, Fault> {
        self.core.find_by_key(hash, None, holds)
    }

    fn quota_reached(&mut self, namespace: NamespaceId) -> Option<u64> {
        let waiting_max = self.core.namespace_waiting_max;
        (self.core.index.waiting(namespace) >= waiting_max).then_some(waiting_max)
    }

    fn seq(&self) -> i64 {
        self.core.next_seq
    }

    fn insert(&mut self, record: Record, queue: &Queue) -> Result<(), Fault> {
        self.core.insert(&record, &self.form, queue)?;
        self.core.next_seq += 1;
        self.core.keep(record);
        Ok(())
    }
}

impl Core<'_> {
    /// Each with its payload as it goes to disk.
    pub(super) fn publish(&mut self, jobs: &[(NewJob, Packed)]) -> Result<Vec<Published>, Fault> {
        jobs.iter().map(|(new, payload)| self.publish_one(new, Form { payload, arrival: None })).collect()
    }

    pub(super) fn publish_one(&mut self, new: &NewJob, form: Form<'_>) -> Result<Published, Fault> {
        publish(&mut Desk { core: self, form }, new, Publisher::User)
    }

    /// A job that a state change creates. A system queue is made when it is first needed.
    pub(super) fn publish_exempt(&mut self, new: &NewJob) -> Result<(), Fault> {
        if self.registry.find(new.namespace, &new.queue).is_none()
            && let Some(own) = system_queue(&new.queue)
        {
            self.create_queue(new.namespace, own.name, &(own.settings)().into())?;
        }
        let payload = Packed::new(&new.spec.payload);
        let form = Form { payload: &payload, arrival: None };
        publish(&mut Desk { core: self, form }, new, Publisher::StateChange).map(|_| ())
    }

    /// The job that has the key of `record` and keeps it from being replayed. The record is in the caller's hands.
    pub(super) fn blocks_replay(&mut self, record: &Record, queue: &Queue) -> Result<Option<JobId>, Fault> {
        let (Some(hash), now) = (record.key_hash, self.now) else {
            return Ok(None);
        };
        let blocks = |other: &Job| blocks_replay(other, &record.job, queue, now);
        Ok(self.find_by_key(hash, Some(record.seq), blocks)?.map(|job| job.id))
    }

    /// Of the jobs whose key has this hash, but for one, the newest that `holds` it.
    fn find_by_key(
        &mut self,
        hash: i64,
        except: Option<i64>,
        holds: impl Fn(&Job) -> bool,
    ) -> Result<Option<Job>, Fault> {
        for seq in self.index.keyed(hash).into_iter().filter(|seq| Some(*seq) != except) {
            let Some(record) = self.take(seq)? else {
                continue;
            };
            let job = holds(&record.job).then(|| record.job.clone());
            self.keep(record);
            if job.is_some() {
                return Ok(job);
            }
        }
        Ok(None)
    }
}
