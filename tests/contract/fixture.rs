//! The fixture of a contract case: an open store, a clock, a queue named `mail`, and short words for long calls.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::state::Phase;
use outlast_core::{
    Clock, Command, Evidence, Job, JobId, Lease, NamespaceId, Outcome, Queue, QueueSettings, Spec, State, Timestamp,
};
use outlast_store::JobStore;
use outlast_store::jobs::{Applied, ClaimRequest, Claimed, Declined, JobCommand, ListJobs, NewJob, Published, Reach};
use outlast_store::queues::{ExpectedVersion, QueueCounts};
use tokio::runtime::Builder;

use crate::backend::{Backend, Ground};
use crate::dump::{all_jobs, dump, every_job};

pub const SECOND: Duration = Duration::from_secs(1);
pub const QUEUE: &str = "mail";

pub struct Fixture {
    pub store: Arc<dyn JobStore>,
    pub ground: Ground,
    /// The namespace of all calls that name none.
    pub ours: NamespaceId,
    pub theirs: NamespaceId,
    backend: Box<dyn Backend>,
}

/// Runs a case on a fresh store; afterwards whatever it left there must survive closing and opening.
pub fn run<B: Backend + 'static>(case: impl AsyncFnOnce(&mut Fixture)) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut fixture = Fixture::new::<B>().await;
        case(&mut fixture).await;
        fixture.check_that_all_survives().await;
    });
}

impl Fixture {
    async fn new<B: Backend + 'static>() -> Fixture {
        let ground = Ground { waiting_max: 25, ..Ground::new(7) };
        let backend = B::on(&ground);
        let store = backend.open().await;
        let ours = store.namespace("default").await.unwrap();
        let theirs = store.namespace("theirs").await.unwrap();
        let fixture = Fixture { store, ground, ours, theirs, backend: Box::new(backend) };
        fixture.save_queue(QueueSettings::default()).await;
        fixture
    }

    /// May several nodes have the store open at once?
    pub fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    pub async fn reopen(&mut self) {
        self.store.close().await;
        self.store = self.backend.open().await;
    }

    async fn check_that_all_survives(mut self) {
        let namespaces = [self.ours, self.theirs];
        let before = dump(&*self.store, &namespaces).await;
        assert!(self.backend.verify().await, "the memory of the store differs from its disk");
        self.reopen().await;

        assert_eq!(dump(&*self.store, &namespaces).await, before, "not all of it survived");
        assert!(self.backend.verify().await);
        self.store.close().await;
    }

    /// Were so many jobs written by the newest transaction? Without this a case of calls that share one might pass
    /// because they did not.
    pub fn check_that_one_transaction_wrote(&self, jobs: usize) {
        if let Some(written) = self.backend.written_by_the_newest_transaction() {
            assert_eq!(written, jobs, "jobs that the newest transaction wrote");
        }
    }

    pub fn pass(&self, time: Duration) {
        self.ground.clock.advance(time);
    }

    pub fn now(&self) -> Timestamp {
        self.ground.clock.now()
    }

    /// Gives the queue `mail` these settings.
    pub async fn save_queue(&self, settings: QueueSettings) -> Arc<Queue> {
        self.save(QUEUE, settings).await
    }

    pub async fn save(&self, name: &str, settings: QueueSettings) -> Arc<Queue> {
        self.store.save_queue(self.ours, name, settings.into(), ExpectedVersion::Anything).await.unwrap().unwrap().queue
    }

    pub async fn try_publish(&self, spec: Spec) -> Published {
        self.publish_to(self.ours, QUEUE, spec).await
    }

    pub async fn publish_to(&self, namespace: NamespaceId, queue: &str, spec: Spec) -> Published {
        let new = NewJob { namespace, queue: queue.into(), spec: Arc::new(spec) };
        self.store.publish(vec![new]).await.unwrap().pop().unwrap()
    }

    /// Publishes to `mail`; it must be a new job.
    pub async fn publish(&self, spec: Spec) -> Job {
        created(self.try_publish(spec).await)
    }

    /// `count` jobs that differ only in age.
    pub async fn publish_many(&self, count: usize) -> Vec<JobId> {
        let mut ids = Vec::new();
        for number in 0..count {
            ids.push(self.publish(payload(&number.to_string())).await.id);
            self.pass(Duration::from_millis(1));
        }
        ids
    }

    pub async fn claim_with(&self, want: ClaimRequest) -> Claimed {
        self.store.claim(want).await.unwrap().expect("the queue exists")
    }

    pub fn want(&self, limit: usize) -> ClaimRequest {
        ClaimRequest {
            namespace: self.ours,
            queue: QUEUE.into(),
            limit,
            phase: Phase::Leased,
            visibility: None,
            worker: None,
        }
    }

    pub async fn claim(&self, limit: usize) -> Vec<Job> {
        self.claim_with(self.want(limit)).await.jobs
    }

    /// Publishes and hands out one job.
    pub async fn running(&self, spec: Spec) -> Job {
        let id = self.publish(spec).await.id;
        let claimed = self.claim(1).await.pop().expect("a job is handed out");
        assert_eq!(claimed.id, id, "the fixture expects an otherwise empty queue");
        claimed
    }

    pub async fn apply(&self, id: JobId, command: Command) -> Result<Applied, Declined> {
        self.apply_as(Reach::Namespace(self.ours), id, command).await
    }

    pub async fn apply_as(&self, reach: Reach, id: JobId, command: Command) -> Result<Applied, Declined> {
        self.store.apply(vec![JobCommand { id, reach, command }]).await.unwrap().pop().unwrap()
    }

    /// Reports with the lease the job was handed out with.
    pub async fn report(&self, job: &Job, outcome: Outcome) -> Result<Applied, Declined> {
        self.apply(job.id, report(Some(lease(job)), outcome)).await
    }

    pub async fn fail(&self, job: &Job) {
        self.report(job, Outcome::Nack { retryable: false, delay: None }).await.unwrap();
    }

    /// Serves all alarms that have rung.
    pub async fn sweep(&self) {
        loop {
            let due = self.store.due(10).await.unwrap();
            if due.jobs.is_empty() {
                return;
            }
            let order = |id| JobCommand { id, reach: Reach::Everything, command: Command::WAKE };
            self.store.apply(due.jobs.into_iter().map(order).collect()).await.unwrap();
        }
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.find(id).await.expect("the job exists")
    }

    pub async fn find(&self, id: JobId) -> Option<Job> {
        self.store.job(&Reach::Namespace(self.ours), id).await.unwrap().map(|found| found.job)
    }

    pub async fn list(&self, list: ListJobs) -> Vec<JobId> {
        all_jobs(&*self.store, list).await.into_iter().map(|found| found.job.id).collect()
    }

    pub fn ours(&self) -> ListJobs {
        ListJobs { reach: Reach::Namespace(self.ours), ..every_job() }
    }

    pub async fn counts(&self) -> QueueCounts {
        self.store.queue(self.ours, QUEUE).await.unwrap().expect("the queue exists").1
    }

    pub async fn queue(&self) -> Arc<Queue> {
        self.store.queue(self.ours, QUEUE).await.unwrap().expect("the queue exists").0
    }
}

pub fn payload(text: &str) -> Spec {
    Spec { payload: text.into(), ..Spec::default() }
}

pub fn keyed(key: &str) -> Spec {
    Spec { idempotency_key: Some(key.into()), ..payload("{}") }
}

pub fn tagged(name: &str, value: &str) -> Spec {
    Spec { tags: vec![(name.into(), value.into())], ..payload("{}") }
}

pub fn created(published: Published) -> Job {
    match published {
        Published::Created { job, .. } => job,
        other => panic!("expected a new job, got {other:?}"),
    }
}

pub fn existing(published: Published) -> (JobId, bool) {
    match published {
        Published::Existing { job, payload_mismatch, .. } => (job.id, payload_mismatch),
        other => panic!("expected an existing job, got {other:?}"),
    }
}

pub fn lease(job: &Job) -> Lease {
    match &job.state {
        State::Running(running) => running.lease,
        other => panic!("the job is not running: {other:?}"),
    }
}

pub fn report(lease: Option<Lease>, outcome: Outcome) -> Command {
    Command::Report { lease, outcome, evidence: Evidence::default() }
}

pub fn ack() -> Outcome {
    Outcome::Ack { result: None }
}

pub fn nack() -> Outcome {
    Outcome::Nack { retryable: true, delay: Some(Duration::ZERO) }
}

pub fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}
