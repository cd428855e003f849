//! Each engine makes its own ids and numbers. Here they become the order in which they appeared, which must be the same
//! everywhere.

use std::sync::Arc;

use outlast_core::gate::Hold;
use outlast_core::inbound_event::{EventOrigin, InboundEventId};
use outlast_core::system_queue::JOB_TAG;
use outlast_core::{Job, JobId, NamespaceId, Queue, QueueId, Spec, Timestamp};
use outlast_store::keys::{KeyId, KeyRecord};
use outlast_store::operations::{Operation, OperationFilter, OperationId};

#[derive(Default)]
pub struct Names {
    pub jobs: Vec<JobId>,
    pub queues: Vec<QueueId>,
    pub namespaces: Vec<NamespaceId>,
    pub keys: Vec<KeyId>,
    pub operations: Vec<OperationId>,
    pub inbound_events: Vec<InboundEventId>,
}

impl Names {
    /// A job that was just made.
    pub fn add_job(&mut self, job: &Job) {
        assert!(!self.jobs.contains(&job.id), "an id was given twice");
        let born = job.id.as_u128() >> 80;
        assert_eq!(born, job.created_at.as_millis() as u128, "an id tells the time of its job");
        self.jobs.push(job.id);
    }

    pub fn job_id(&self, id: JobId) -> JobId {
        let order = self.jobs.iter().position(|known| *known == id).map_or(u128::MAX, |order| order as u128);
        JobId::new(Timestamp::EPOCH, order)
    }

    pub fn job(&mut self, job: Job) -> Job {
        let job = self.origin(self.callback(job));
        Job { id: self.job_id(job.id), queue: QueueId(order(&mut self.queues, job.queue)), ..job }
    }

    /// An event that was just stored, or was before.
    pub fn arrival_id(&mut self, id: InboundEventId) -> InboundEventId {
        let place = order(&mut self.inbound_events, id);
        InboundEventId(JobId::new(Timestamp::EPOCH, u128::from(place)))
    }

    fn origin(&mut self, job: Job) -> Job {
        let Some(origin) = job.spec.origin.clone() else {
            return job;
        };
        let origin = EventOrigin { event: self.arrival_id(origin.event), ..*origin };
        Job { spec: Arc::new(Spec { origin: Some(Box::new(origin)), ..Spec::clone(&job.spec) }), ..job }
    }

    /// The job that tells how another one ended has the other's id in its tag and its payload.
    fn callback(&self, job: Job) -> Job {
        let Some((_, told)) = job.spec.tags.iter().find(|(name, _)| **name == *JOB_TAG) else {
            return job;
        };
        let named = self.job_id(told.parse().expect("the tag names a job")).to_string();
        let payload = job.spec.payload.replace(&**told, &named).into();
        let tags = vec![(JOB_TAG.into(), named.into())];
        Job { spec: Arc::new(Spec { payload, tags, ..Spec::clone(&job.spec) }), ..job }
    }

    pub fn queue(&mut self, queue: &Queue) -> Queue {
        let hold = queue.hold.map(|hold| Hold { probe: hold.probe.map(|id| self.job_id(id)), ..hold });
        Queue {
            id: QueueId(order(&mut self.queues, queue.id)),
            namespace: NamespaceId(order(&mut self.namespaces, queue.namespace)),
            hold,
            ..queue.clone()
        }
    }

    pub fn key(&mut self, key: KeyRecord) -> KeyRecord {
        KeyRecord {
            id: KeyId(order(&mut self.keys, key.id)),
            namespace: NamespaceId(order(&mut self.namespaces, key.namespace)),
            ..key
        }
    }

    /// Positions are an engine's own; what they mean shows in what the operation does next.
    pub fn operation(&mut self, operation: Operation) -> Operation {
        let as_order = |text: &String| self.job_id(text.parse().expect("a filter names ids")).to_string();
        let ids = operation.filter.ids.as_ref().map(|ids| ids.iter().map(as_order).collect());
        Operation {
            id: OperationId(order(&mut self.operations, operation.id)),
            namespace: NamespaceId(order(&mut self.namespaces, operation.namespace)),
            queue: QueueId(order(&mut self.queues, operation.queue)),
            filter: OperationFilter { ids, ..operation.filter },
            position: 0,
            ..operation
        }
    }
}

fn order<T: PartialEq>(known: &mut Vec<T>, value: T) -> u32 {
    let place = known.iter().position(|known| *known == value).unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    });
    place as u32
}
