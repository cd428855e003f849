//! A store with an unreadable row: that job fails, all others continue. Damage is done while the store
//! is closed, as a bad disk or a careless hand would.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::state::{CancelReason, Phase};
use outlast_core::{Clock, Command, Job, JobId, NamespaceId, QueueSettings, Spec, Status};
use outlast_store::inbound_events::NewInboundEvent;
use outlast_store::jobs::{ClaimRequest, JobCommand, NewJob, Published, Reach};
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind, OperationStatus};
use outlast_store::queues::ExpectedVersion;
use outlast_store::{Error, JobStore};
use tokio::join;

use crate::backend::{Backend, Ground, Postgres, Sqlite};

const QUEUE: &str = "mail";
const DELAY: Duration = Duration::from_secs(5);

/// Three jobs, the first of which cannot be read.
struct Scene {
    ground: Ground,
    store: Arc<dyn JobStore>,
    namespace: NamespaceId,
    jobs: Vec<JobId>,
    // Last: the place must outlive the store.
    _backend: Box<dyn Backend>,
}

impl Scene {
    async fn due_at_once<B: Backend + 'static>() -> Scene {
        Scene::new::<B>(Spec::default()).await
    }

    async fn delayed<B: Backend + 'static>() -> Scene {
        let not_before = Some(Ground::new(3).clock.now().plus(DELAY));
        Scene::new::<B>(Spec { not_before, ..Spec::default() }).await
    }

    async fn new<B: Backend + 'static>(spec: Spec) -> Scene {
        let ground = Ground::new(3);
        let backend = B::on(&ground);
        let store = backend.open().await;
        let namespace = store.namespace("default").await.unwrap();
        store
            .save_queue(namespace, QUEUE, QueueSettings::default().into(), ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        let job = NewJob { namespace, queue: QUEUE.into(), spec: Arc::new(Spec { payload: "1".into(), ..spec }) };
        let published = store.publish(vec![job.clone(), job.clone(), job]).await.unwrap();
        store.close().await;
        drop(store);
        assert_eq!(backend.damage_first_row(), 1);
        let store = backend.open().await;
        let jobs = published.into_iter().map(id).collect();
        Scene { ground, store, namespace, jobs, _backend: Box::new(backend) }
    }

    async fn claim(&self, limit: usize) -> Vec<JobId> {
        let (namespace, queue) = (self.namespace, QUEUE.into());
        let want = ClaimRequest { namespace, queue, limit, phase: Phase::Leased, visibility: None, worker: None };
        self.store.claim(want).await.unwrap().unwrap().jobs.iter().map(|job| job.id).collect()
    }

    fn cancel(&self, job: usize) -> Vec<JobCommand> {
        let command = Command::Cancel { reason: CancelReason::User };
        vec![JobCommand { id: self.jobs[job], reach: Reach::Namespace(self.namespace), command }]
    }

    async fn job(&self, job: usize) -> Result<Job, Error> {
        self.store.job(&Reach::Everything, self.jobs[job]).await.map(|found| found.expect("the job exists").job)
    }
}

fn id(published: Published) -> JobId {
    match published {
        Published::Created { job, .. } => job.id,
        other => panic!("expected a new job, got {other:?}"),
    }
}

#[tokio::test]
async fn a_damaged_row_does_not_stop_the_alarms_of_others() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::delayed::<B>().await;
        assert!(scene.job(0).await.is_err(), "the damage does not show");
        scene.ground.clock.advance(DELAY);

        let due = scene.store.due(10).await.unwrap();
        let wake = |id: &JobId| JobCommand { id: *id, reach: Reach::Everything, command: Command::WAKE };
        scene.store.apply(due.jobs.iter().map(wake).collect()).await.unwrap();

        assert!(due.jobs.ends_with(&scene.jobs[1..]), "{due:?}");
        let again = scene.store.due(10).await.unwrap();
        assert_eq!((again.jobs, again.next), (vec![], None));
        for job in [1, 2] {
            assert_eq!(scene.job(job).await.unwrap().status(), Status::Queued);
        }
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn a_damaged_row_at_the_head_does_not_stop_its_queue() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::due_at_once::<B>().await;
        assert!(scene.job(0).await.is_err(), "the damage does not show");

        assert_eq!(scene.claim(1).await, scene.jobs[1..2]);
        assert_eq!(scene.claim(10).await, scene.jobs[2..]);
        assert_eq!(scene.claim(10).await, []);
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn a_command_on_a_damaged_row_fails_alone() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::due_at_once::<B>().await;

        let (damaged, sound, claimed) =
            join!(scene.store.apply(scene.cancel(0)), scene.store.apply(scene.cancel(1)), scene.claim(1));

        assert!(matches!(damaged, Err(Error::Corrupt(_))), "{damaged:?}");
        // The claim may come before the cancel, and then takes the same job; a running one is asked to stop.
        let is_claimed_first = claimed == scene.jobs[1..2];
        let expected = if is_claimed_first { Status::Running } else { Status::Cancelled };
        assert_eq!(sound.unwrap().pop().unwrap().unwrap().status, expected);
        assert!(is_claimed_first || claimed == scene.jobs[2..], "{claimed:?}");
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn an_event_that_meets_a_damaged_row_leaves_no_job_without_its_origin() {
    async fn check<B: Backend + 'static>() {
        let ground = Ground::new(3);
        let backend = B::on(&ground);
        let store = backend.open().await;
        let namespace = store.namespace("default").await.unwrap();
        for queue in [QUEUE, "other"] {
            store
                .save_queue(namespace, queue, QueueSettings::default().into(), ExpectedVersion::Absent)
                .await
                .unwrap()
                .unwrap();
        }
        let body: Arc<str> = "{}".into();
        let job = |queue: &str, key: Option<&str>| {
            let spec = Spec { payload: Arc::clone(&body), idempotency_key: key.map(Into::into), ..Spec::default() };
            NewJob { namespace, queue: queue.into(), spec: Arc::new(spec) }
        };
        store.publish(vec![job(QUEUE, Some("k"))]).await.unwrap();
        store.close().await;
        drop(store);
        assert_eq!(backend.damage_first_row(), 1);
        let store = backend.open().await;

        // The second of its jobs has the key of the job that cannot be read.
        let event = NewInboundEvent {
            namespace,
            source: "stripe".into(),
            kind: "invoice.paid".into(),
            key: Some("evt_1".into()),
            headers: [("user-agent".into(), "Stripe/1.0".into())].into(),
            body: Arc::clone(&body),
            jobs: vec![job("other", None), job(QUEUE, Some("k"))],
        };
        let answer = store.ingest(vec![event]).await;

        assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}");
        store.close().await;
        drop(store);
        let store = backend.open().await;
        let want = ClaimRequest {
            namespace,
            queue: "other".into(),
            limit: 10,
            phase: Phase::Leased,
            visibility: None,
            worker: None,
        };
        let jobs = store.claim(want).await.unwrap().unwrap().jobs;
        assert_eq!(jobs, [], "a job of an event that was not stored");
        store.close().await;
    }
    // The changes of a call before it met the damage are rolled back.
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn a_deletion_that_cannot_read_a_job_takes_the_others_and_ends() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::due_at_once::<B>().await;
        let (namespace, kind, filter) = (scene.namespace, OperationKind::Delete, OperationFilter::default());
        let new = NewOperation { namespace, queue: QUEUE.into(), kind, filter, limit: None, rate_per_second: None };
        let started = scene.store.start_operation(new).await.unwrap().unwrap();

        let mut steps = 0;
        let ended = loop {
            let operation = scene.store.advance_operation(started.id, 1).await.unwrap().unwrap();
            steps += 1;
            assert!(steps < 10, "it goes round for ever: {operation:?}");
            if operation.status != OperationStatus::Running {
                break operation;
            }
        };

        assert_eq!((ended.status, ended.processed), (OperationStatus::Stuck, 2));
        assert_eq!(ended.finished_at, Some(scene.ground.clock.now()));
        assert_eq!(scene.store.operation(namespace, started.id).await.unwrap(), Some(ended));
        let (_, counts) = scene.store.queue(namespace, QUEUE).await.unwrap().expect("what is left needs its queue");
        assert_eq!(counts.total(), 1);
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}
