//! The store as the engine sees it in the simulator: slow, forgetful of its answers, sometimes gone. Whatever it does
//! take effect is done by the model in one step, and the judge looks at the result before anybody else can.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{
    Command, Event, Evidence, JobId, Lease, NamespaceId, ObjectKey, Outage, Outcome, Queue, QueueId, State, Timestamp,
};
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
use outlast_tests::chance::Chance;
use outlast_tests::model::{ModelDisk, ModelStore};
use tokio::time::sleep;

use crate::judge::Witness;
use crate::planted::Plant;

/// Faults of calls, drawn from the seed. Once it is calm, nothing does.
pub struct Faults {
    chance: Mutex<Chance>,
    /// How long every call takes, before and after its effect; drawn by lot where it is not fixed.
    latency: Option<(Duration, Duration)>,
    calm: AtomicBool,
    /// Steps of operations are done, and their answers are lost.
    loses_steps: AtomicBool,
    /// How many looks at the alarms panic.
    panics: AtomicU64,
    calls: AtomicU64,
    log_reads: AtomicU64,
    job_reads: AtomicU64,
}

/// The fate of one call.
struct Fate {
    before: Duration,
    after: Duration,
    ending: Ending,
}

#[derive(Clone, Copy, PartialEq)]
enum Ending {
    Answered,
    /// Done, but the answer is lost.
    ReplyLost,
    /// Not done, and the answer is lost.
    RequestLost,
    /// Refused for want of room; certainly not done.
    Refused,
}

impl Faults {
    pub fn new(chance: Chance) -> Faults {
        let (calm, loses_steps) = (AtomicBool::new(false), AtomicBool::new(false));
        let [panics, calls, log_reads, job_reads] = [0; 4].map(AtomicU64::new);
        Faults { chance: Mutex::new(chance), latency: None, calm, loses_steps, panics, calls, log_reads, job_reads }
    }

    /// No faults, and the same time for every call.
    pub fn none(before: Duration, after: Duration) -> Faults {
        let faults = Faults { latency: Some((before, after)), ..Faults::new(Chance::seeded(0)) };
        faults.calm_down();
        faults
    }

    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    pub fn stir_up(&self) {
        self.calm.store(false, Ordering::SeqCst);
    }

    /// From here on the answers of all steps of operations are lost.
    pub fn lose_steps(&self) {
        self.loses_steps.store(true, Ordering::SeqCst);
    }

    /// The next looks at the alarms panic.
    pub fn panic_at_alarms(&self, times: u64) {
        self.panics.store(times, Ordering::SeqCst);
    }

    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// How often a log was read.
    pub fn log_reads(&self) -> u64 {
        self.log_reads.load(Ordering::SeqCst)
    }

    /// How often a single job was read.
    pub fn job_reads(&self) -> u64 {
        self.job_reads.load(Ordering::SeqCst)
    }

    fn draw(&self) -> Fate {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = (Duration::from_millis(chance.below(8)), Duration::from_millis(chance.below(8)));
        let (before, after) = self.latency.unwrap_or(drawn);
        let ending = match chance.below(100) {
            _ if self.is_calm() => Ending::Answered,
            0..=2 => Ending::ReplyLost,
            3..=5 => Ending::RequestLost,
            6..=7 => Ending::Refused,
            _ => Ending::Answered,
        };
        Fate { before, after, ending }
    }
}

/// The store of one life of the process.
pub struct FaultyStore {
    inner: ModelStore,
    disk: ModelDisk,
    faults: Arc<Faults>,
    witness: Arc<Witness>,
    plant: Plant,
    /// False once the process is dead: from then on nothing reaches the disk, and nothing comes back from it.
    alive: Arc<AtomicBool>,
}

impl FaultyStore {
    pub fn new(disk: &ModelDisk, faults: Arc<Faults>, witness: Arc<Witness>, plant: Plant) -> FaultyStore {
        let alive = Arc::new(AtomicBool::new(true));
        FaultyStore { inner: disk.open(), disk: disk.clone(), faults, witness, plant, alive }
    }

    pub fn alive(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.alive)
    }

    /// Carries out one call of the model with whatever fate is drawn for it.
    async fn call<T>(&self, work: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        // A dead process draws no lots: in which order its tasks end is not part of the run.
        self.check_alive(Error::Stopped)?;
        let fate = self.faults.draw();
        sleep(fate.before).await;
        self.check_alive(Error::Stopped)?;
        match fate.ending {
            Ending::Refused => return Err(Error::Overloaded),
            Ending::RequestLost => return Err(Error::Indeterminate),
            Ending::Answered | Ending::ReplyLost => {}
        }
        let answer = work.await;
        self.witness.look(&self.disk.world());
        sleep(fate.after).await;
        self.check_alive(Error::Indeterminate)?;
        if fate.ending == Ending::ReplyLost {
            return Err(Error::Indeterminate);
        }
        answer
    }

    fn check_alive(&self, error: Error) -> Result<(), Error> {
        if self.alive.load(Ordering::SeqCst) { Ok(()) } else { Err(error) }
    }

    /// I-15: a report that names another lease than the present one leaves the job as it is.
    async fn apply_watched(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let stale = match orders.as_slice() {
            [JobCommand { id, command: Command::Report { lease: Some(lease), .. }, .. }] => {
                self.version_if_stale(*id, *lease)
            }
            _ => None,
        };
        let replays: Vec<bool> = orders.iter().map(|order| matches!(order.command, Command::Replay { .. })).collect();
        let answers = self.inner.apply(orders).await;
        for (answer, replays) in answers.iter().flatten().zip(replays) {
            if replays && answer.as_ref().is_ok_and(|applied| applied.changed) {
                self.witness.replayed_one();
            }
        }
        if let Some((id, version)) = stale
            && self.disk.world().row(id).is_some_and(|row| row.job.version != version)
        {
            self.witness.fail(format!("I-15: a report with an old lease changed job {id}"));
        }
        answers
    }

    fn version_if_stale(&self, id: JobId, lease: Lease) -> Option<(JobId, u64)> {
        let world = self.disk.world();
        let job = &world.row(id)?.job;
        let is_present = matches!(&job.state, State::Running(running) if running.lease == lease);
        (!is_present).then_some((id, job.version))
    }
}

/// A hand-out on its way to its receiver. If that one goes away, the jobs go back, unless the process is dead.
struct OnItsWay<'a> {
    store: &'a FaultyStore,
    jobs: Vec<(JobId, Lease)>,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if !self.store.alive.load(Ordering::SeqCst) {
            return;
        }
        for (id, lease) in self.jobs.drain(..) {
            let command =
                Command::Report { lease: Some(lease), outcome: Outcome::Release, evidence: Evidence::default() };
            let orders = vec![JobCommand { id, reach: Reach::Everything, command }];
            now(self.store.inner.apply(orders)).expect("the model is open");
            self.store.witness.look(&self.store.disk.world());
        }
    }
}

/// The model never waits, so its futures are ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the model never waits"),
    }
}

#[async_trait]
impl JobStore for FaultyStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        self.call(async {
            let published = self.inner.publish(jobs).await;
            self.plant.after_publish(&self.disk, published.as_deref().unwrap_or_default());
            published
        })
        .await
    }

    async fn ingest(&self, inbound_events: Vec<NewInboundEvent>) -> Result<Vec<Ingested>, Error> {
        self.call(self.inner.ingest(inbound_events)).await
    }

    async fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error> {
        self.call(self.inner.inbound_event(namespace, id)).await
    }

    async fn inbound_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error> {
        self.call(self.inner.inbound_events(list)).await
    }

    async fn prune_inbound_events(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        self.call(self.inner.prune_inbound_events(before, limit)).await
    }

    async fn claim(&self, want: ClaimRequest) -> Result<Option<Claimed>, Error> {
        let mut on_its_way = OnItsWay { store: self, jobs: Vec::new() };
        let claimed = self
            .call(async {
                let before = self.plant.copy(&self.disk);
                let claimed = self.inner.claim(want).await;
                self.plant.after_claim(&self.disk, &before);
                let jobs = claimed.iter().flatten().flat_map(|claimed| &claimed.jobs);
                on_its_way.jobs.extend(jobs.filter_map(|job| match &job.state {
                    State::Running(running) => Some((job.id, running.lease)),
                    _ => None,
                }));
                claimed
            })
            .await;
        // Delivered, or lost for good: either way the jobs are not released.
        on_its_way.jobs.clear();
        claimed
    }

    async fn apply(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let before = self.plant.before_apply(&self.disk, &orders);
        self.call(async {
            let answers = self.apply_watched(orders).await;
            self.plant.after_apply(&self.disk, before);
            answers
        })
        .await
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        let panics = &self.faults.panics;
        let left = panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "a planted panic");
        self.call(self.inner.due(limit)).await.map(|due| self.plant.on_due(due))
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
        self.faults.job_reads.fetch_add(1, Ordering::SeqCst);
        self.call(self.inner.job(reach, id)).await
    }

    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        self.faults.job_reads.fetch_add(1, Ordering::SeqCst);
        self.call(self.inner.job_detail(reach, id)).await
    }

    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.call(self.inner.jobs(list)).await
    }

    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.call(self.inner.dead_letters(list)).await
    }

    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error> {
        self.faults.log_reads.fetch_add(1, Ordering::SeqCst);
        self.call(self.inner.events(reach, id, after, limit)).await
    }

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        self.call(self.inner.result(reach, id)).await
    }

    async fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        self.call(self.inner.artifacts(reach, id)).await
    }

    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        self.call(self.inner.sections(reach, id, after, limit)).await
    }

    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        self.call(self.inner.section(reach, id, name)).await
    }

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
        self.call(self.inner.objects(reach, id)).await
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        self.call(self.inner.count_download(id)).await
    }

    async fn record_inspection(&self, key: &ObjectKey, found: ObjectInspection) -> Result<(), Error> {
        self.call(self.inner.record_inspection(key, found)).await
    }

    async fn due_deletions(&self, limit: usize) -> Result<DueDeletions, Error> {
        self.call(self.inner.due_deletions(limit)).await
    }

    async fn postpone_deletions(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        self.call(self.inner.postpone_deletions(keys, until)).await
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        self.call(self.inner.forget_objects(keys)).await
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error> {
        self.call(self.inner.save_queue(namespace, name, draft, expect)).await
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        self.call(self.inner.set_paused(namespace, name, paused)).await
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        self.call(self.inner.delete_queue(namespace, name)).await
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
        self.call(self.inner.queue(namespace, name)).await
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        self.call(self.inner.queues(namespace, after, limit)).await
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        self.call(self.inner.oldest_waiting()).await
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        self.call(self.inner.census()).await
    }

    async fn record_attendance(&self) -> Result<Option<Outage>, Error> {
        self.inner.record_attendance().await
    }

    async fn interrupted(&self) -> Result<Vec<JobId>, Error> {
        self.call(self.inner.interrupted()).await
    }

    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error> {
        self.call(self.inner.sealing_key(key, replaces)).await
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        self.call(self.inner.namespace(name)).await
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error> {
        self.call(self.inner.add_key(key)).await
    }

    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error> {
        self.call(self.inner.add_first_key(key)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        self.call(self.inner.keys()).await
    }

    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error> {
        self.call(self.inner.revoke_key(namespace, id, force)).await
    }

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        self.call(self.inner.start_operation(operation)).await
    }

    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(self.inner.operation(namespace, id)).await
    }

    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.call(self.inner.operations(namespace, limit)).await
    }

    async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        self.call(self.inner.open_operations()).await
    }

    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(self.inner.stop_operation(namespace, id)).await
    }

    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error> {
        self.call(async {
            let advanced = self.inner.advance_operation(id, limit).await;
            self.plant.after_advance(&self.disk, id);
            advanced
        })
        .await
        .and_then(|advanced| match self.faults.loses_steps.load(Ordering::SeqCst) {
            true => Err(Error::Indeterminate),
            false => Ok(advanced),
        })
    }

    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        self.call(self.inner.count_operation(operation, limit)).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.call(self.inner.ping()).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
