//! Publishing inside the writer.

use std::sync::Arc;

use outlast_core::dedupe::blocks_replay;
use outlast_core::{Job, JobId, NamespaceId, Queue, Timestamp, system_queue};

use super::compressed_text::CompressedText;
use super::faults::Fault;
use super::writer::WriterState;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::JobRecord;
use crate::jobs::{NewJob, Published};
use crate::publish::{Publisher, Publishing, publish};

/// How a new job goes to disk.
#[derive(Clone, Copy)]
pub(super) struct SpecEncoding<'a> {
    pub(super) payload: &'a CompressedText,
    /// The event it comes of, if that is stored with it.
    pub(super) inbound_event: Option<i64>,
}

/// One publish.
struct Publication<'a, 'c> {
    state: &'a mut WriterState<'c>,
    form: SpecEncoding<'a>,
}

impl Publishing for Publication<'_, '_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.state.now
    }

    fn ids(&self) -> JobIdCodec {
        self.state.ids
    }

    fn find_queue(&self, namespace: NamespaceId, name: &Arc<str>) -> Option<Arc<Queue>> {
        self.state.registry.find(namespace, name).cloned()
    }

    fn find_by_key(&mut self, hash: i64, holds: impl Fn(&Job) -> bool) -> Result<Option<Job>, Fault> {
        self.state.find_by_key(hash, None, holds)
    }

    fn quota_reached(&mut self, namespace: NamespaceId) -> Option<u64> {
        let waiting_max = self.state.namespace_waiting_max;
        (self.state.index.waiting(namespace) >= waiting_max).then_some(waiting_max)
    }

    fn seq(&self) -> i64 {
        self.state.next_seq
    }

    fn insert(&mut self, record: JobRecord, queue: &Queue) -> Result<(), Fault> {
        self.state.insert(&record, &self.form, queue)?;
        self.state.next_seq += 1;
        self.state.keep(record);
        Ok(())
    }
}

impl WriterState<'_> {
    /// Each with its payload as it goes to disk.
    pub(super) fn publish(&mut self, jobs: &[(NewJob, CompressedText)]) -> Result<Vec<Published>, Fault> {
        jobs.iter().map(|(new, payload)| self.publish_one(new, SpecEncoding { payload, inbound_event: None })).collect()
    }

    pub(super) fn publish_one(&mut self, new: &NewJob, form: SpecEncoding<'_>) -> Result<Published, Fault> {
        publish(&mut Publication { state: self, form }, new, Publisher::User)
    }

    /// A job that a state change creates. A system queue is made when it is first needed.
    pub(super) fn publish_exempt(&mut self, new: &NewJob) -> Result<(), Fault> {
        if self.registry.find(new.namespace, &new.queue).is_none()
            && let Some(own) = system_queue(&new.queue)
        {
            self.create_queue(new.namespace, own.name, &(own.settings)().into())?;
        }
        let payload = CompressedText::new(&new.spec.payload);
        let form = SpecEncoding { payload: &payload, inbound_event: None };
        publish(&mut Publication { state: self, form }, new, Publisher::StateChange).map(|_| ())
    }

    /// The job that has the key of `record` and keeps it from being replayed. The record is in the caller's hands.
    pub(super) fn blocks_replay(&mut self, record: &JobRecord, queue: &Queue) -> Result<Option<JobId>, Fault> {
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
