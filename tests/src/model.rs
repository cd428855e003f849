//! The model store: plain maps and core's rules, small enough to be believed by reading. It is the measure for the real
//! engines (contract, DIFF) and the disk of the simulator. Nothing is fast here, and nothing is clever.

mod rules;
mod world;
mod publish;
mod inbound_events;
mod claim;
mod apply;
mod read;
mod queues;
mod keys;
mod operations;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{Clock, Entropy, Event, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Timestamp};
use outlast_store::alarms::Due;
use outlast_store::artifacts::{Artifacts, DueDeletions, InlineResult, ObjectInspection, StoredObject};
use outlast_store::dead_letters::{DeadLetterPage, ListDeadLetters};
use outlast_store::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent};
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::{
    Applied, ClaimRequest, Claimed, Declined, FoundJob, JobCommand, JobPage, ListJobs, NewJob, Published, Reach,
};
use outlast_store::keys::{KeyId, KeyRecord, NewKey, Revocation};
use outlast_store::operations::{NewOperation, Operation, OperationId};
use outlast_store::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};
use outlast_store::{Error, JobStore};

pub use rules::Rules;
pub use world::{Row, World};

/// The data that survives when the store is closed or its process dies.
#[derive(Clone)]
pub struct ModelDisk {
    world: Arc<Mutex<World>>,
    is_shared: bool,
}

impl ModelDisk {
    pub fn new(rules: Rules, clock: Arc<dyn Clock>, entropy: Box<dyn Entropy + Send>) -> ModelDisk {
        ModelDisk { world: Arc::new(Mutex::new(World::new(rules, clock, entropy))), is_shared: false }
    }

    /// The same disk for several nodes at once: who opens it cannot tell whose deliveries are under way.
    pub fn shared(self) -> ModelDisk {
        ModelDisk { is_shared: true, ..self }
    }

    pub fn open(&self) -> ModelStore {
        let interrupted = if self.is_shared { Vec::new() } else { self.world().delivering() };
        ModelStore { disk: self.clone(), interrupted, closed: AtomicBool::new(false) }
    }

    /// Waiting jobs one namespace may hold.
    pub fn set_waiting_max(&self, waiting_max: u64) {
        self.world().waiting_max = waiting_max;
    }

    /// For checkers, which look at everything after each step.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct ModelStore {
    disk: ModelDisk,
    /// Deliveries that were under way when it was opened.
    interrupted: Vec<JobId>,
    closed: AtomicBool,
}

impl ModelStore {
    /// The world at the present time. Each verb takes it once, so each is one transaction.
    fn transaction(&self) -> Result<MutexGuard<'_, World>, Error> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Stopped);
        }
        let mut world = self.disk.world();
        world.tick();
        Ok(world)
    }
}

#[async_trait]
impl JobStore for ModelStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        let mut world = self.transaction()?;
        Ok(jobs.iter().map(|new| world.publish(new)).collect())
    }

    async fn ingest(&self, inbound_events: Vec<NewInboundEvent>) -> Result<Vec<Ingested>, Error> {
        self.transaction()?.ingest(&inbound_events)
    }

    async fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error> {
        Ok(self.transaction()?.inbound_event(namespace, id))
    }

    async fn inbound_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error> {
        Ok(self.transaction()?.inbound_events(&list))
    }

    async fn prune_inbound_events(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        Ok(self.transaction()?.prune_inbound_events(before, limit))
    }

    async fn claim(&self, want: ClaimRequest) -> Result<Option<Claimed>, Error> {
        Ok(self.transaction()?.claim(&want))
    }

    async fn apply(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let mut world = self.transaction()?;
        Ok(orders.iter().map(|order| world.apply(order)).collect())
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        Ok(self.transaction()?.due(limit))
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
        Ok(self.transaction()?.job(reach, id))
    }

    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        Ok(self.transaction()?.job_detail(reach, id))
    }

    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        Ok(self.transaction()?.jobs(&list))
    }

    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        Ok(self.transaction()?.dead_letters(&list))
    }

    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error> {
        Ok(self.transaction()?.events(reach, id, after, limit))
    }

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        Ok(self.transaction()?.result(reach, id))
    }

    async fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        Ok(self.transaction()?.artifacts(reach, id))
    }

    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        Ok(self.transaction()?.sections(reach, id, after, limit))
    }

    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        Ok(self.transaction()?.section(reach, id, name))
    }

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
        Ok(self.transaction()?.objects(reach, id))
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        self.transaction()?.count_download(id);
        Ok(())
    }

    async fn record_inspection(&self, key: &ObjectKey, found: ObjectInspection) -> Result<(), Error> {
        self.transaction()?.record_inspection(key, found);
        Ok(())
    }

    async fn due_deletions(&self, limit: usize) -> Result<DueDeletions, Error> {
        Ok(self.transaction()?.due_deletions(limit))
    }

    async fn postpone_deletions(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        self.transaction()?.postpone_deletions(keys, until);
        Ok(())
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        self.transaction()?.forget_objects(keys);
        Ok(())
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error> {
        Ok(self.transaction()?.save_queue(namespace, name, &draft, expect))
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        Ok(self.transaction()?.set_paused(namespace, name, paused))
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        Ok(self.transaction()?.delete_queue(namespace, name))
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
        Ok(self.transaction()?.queue(namespace, name))
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        Ok(self.transaction()?.queues(namespace, after, limit))
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        Ok(self.transaction()?.oldest_waiting())
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        Ok(self.transaction()?.census())
    }

    async fn record_attendance(&self) -> Result<Option<Outage>, Error> {
        Ok(None)
    }

    async fn interrupted(&self) -> Result<Vec<JobId>, Error> {
        Ok(self.interrupted.clone())
    }

    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error> {
        let mut world = self.transaction()?;
        let present = world.sealing_key.filter(|present| !replaces.contains(present)).unwrap_or(key);
        world.sealing_key = Some(present);
        Ok(present)
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        Ok(self.transaction()?.namespace(name))
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error> {
        Ok(self.transaction()?.add_key(key))
    }

    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error> {
        let mut world = self.transaction()?;
        let is_first = world.keys().is_empty();
        Ok(is_first.then(|| world.add_key(key)))
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        Ok(self.transaction()?.keys())
    }

    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error> {
        Ok(self.transaction()?.revoke_key(namespace, id, force))
    }

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        Ok(self.transaction()?.start_operation(operation))
    }

    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        Ok(self.transaction()?.operation(namespace, id))
    }

    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        Ok(self.transaction()?.operations(namespace, limit))
    }

    async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        Ok(self.transaction()?.open_operations())
    }

    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        Ok(self.transaction()?.stop_operation(namespace, id))
    }

    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error> {
        Ok(self.transaction()?.advance_operation(id, limit))
    }

    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        Ok(self.transaction()?.count_operation(operation, limit))
    }

    async fn ping(&self) -> Result<(), Error> {
        self.transaction().map(drop)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}
