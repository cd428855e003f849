//! A command breaks an invariant on a job: that job becomes a dead letter that says which rule, all others
//! go on. The violation is planted while the store is closed, in a row that is sound otherwise.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::EventKind;
use outlast_core::state::{FailReason, Phase, State};
use outlast_core::{Clock, Command, Evidence, Job, JobId, NamespaceId, Outcome, QueueSettings, Refusal, Spec, Status};
use outlast_store::JobStore;
use outlast_store::jobs::{Applied, ClaimRequest, Claimed, Declined, JobCommand, ListJobs, NewJob, Published, Reach};
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use outlast_store::queues::ExpectedVersion;
use tokio::join;

use crate::backend::{Backend, Ground, Postgres, Sqlite};

const QUEUE: &str = "mail";
const DELAY: Duration = Duration::from_secs(5);
const BROKEN: &str = "I-17: the first attempt is number 1";

/// Three jobs, the first of which breaks a rule with its next move.
struct Scene {
    ground: Ground,
    store: Arc<dyn JobStore>,
    namespace: NamespaceId,
    jobs: Vec<JobId>,
    /// Of jobs that were handed out before.
    handed_out: Vec<Job>,
    // Last: the place must outlive the store.
    backend: Box<dyn Backend>,
}

impl Scene {
    async fn new<B: Backend + 'static>(spec: Spec, claims: usize) -> Scene {
        let ground = Ground::new(3);
        let backend = B::on(&ground);
        let store = backend.open().await;
        let namespace = store.namespace("default").await.unwrap();
        store
            .save_queue(namespace, QUEUE, QueueSettings::default().into(), ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        let spec = Spec { payload: "\"secret\"".into(), key: Some("secret".into()), ..spec };
        let job = NewJob { namespace, queue: QUEUE.into(), spec: Arc::new(spec) };
        let published = store.publish(vec![job.clone(), job.clone(), job]).await.unwrap();
        let jobs = published.into_iter().map(id).collect();
        let mut scene = Scene { ground, store, namespace, jobs, handed_out: Vec::new(), backend: Box::new(backend) };
        if claims > 0 {
            scene.handed_out = scene.claim(claims).await.jobs;
            assert_eq!(scene.handed_out.len(), claims);
        }
        scene.store.close().await;
        scene.backend.plant_violation();
        scene.store = scene.backend.open().await;
        scene
    }

    async fn claim(&self, limit: usize) -> Claimed {
        let (namespace, queue) = (self.namespace, QUEUE.into());
        let want = ClaimRequest { namespace, queue, limit, phase: Phase::Leased, visibility: None, worker: None };
        self.store.claim(want).await.unwrap().unwrap()
    }

    fn order(&self, job: usize, command: Command) -> JobCommand {
        JobCommand { id: self.jobs[job], reach: Reach::Namespace(self.namespace), command }
    }

    async fn apply(&self, job: usize, command: Command) -> Result<Applied, Declined> {
        self.store.apply(vec![self.order(job, command)]).await.unwrap().remove(0)
    }

    async fn job(&self, job: usize) -> Job {
        self.store.job(&Reach::Everything, self.jobs[job]).await.unwrap().expect("the job exists").job
    }

    /// It can be read, is listed among the dead, says why, and an operator can replay it.
    async fn check_set_aside(&self) {
        let job = self.job(0).await;
        assert!(matches!(job.state, State::Failed { reason: FailReason::SetAside, .. }), "{:?}", job.state);
        assert_eq!(job.last_error.as_deref(), Some(BROKEN));
        let events = self.store.events(&Reach::Everything, job.id, 0, 100).await.unwrap().unwrap();
        let last = events.last().expect("an event");
        assert!(matches!(last.kind, EventKind::State { to: Status::Failed, .. }), "{last:?}");
        let dead = ListJobs {
            reach: Reach::Namespace(self.namespace),
            queue: Some(QUEUE.to_owned()),
            status: Some(Status::Failed),
            tags: Vec::new(),
            key: None,
            before: None,
            limit: 10,
        };
        let listed = self.store.jobs(dead).await.unwrap().jobs;
        assert_eq!(listed.iter().map(|found| found.job.id).collect::<Vec<_>>(), self.jobs[..1]);
        assert_eq!(self.store.damage().violations(), 1);
        assert!(self.backend.verify().await, "what is in memory differs from what is on disk");
        self.apply(0, Command::Replay { fresh: false, payload: None }).await.expect("it can be replayed");
        assert_eq!(self.job(0).await.attempt, 1);
        let again = self.claim(10).await.jobs;
        assert!(again.iter().any(|handed_out| handed_out.id == job.id), "it is handed out like any other");
        assert_eq!(self.store.damage().violations(), 1);
    }
}

fn id(published: Published) -> JobId {
    match published {
        Published::Created { job, .. } => job.id,
        other => panic!("expected a new job, got {other:?}"),
    }
}

#[tokio::test]
async fn a_hand_out_that_breaks_a_rule_sets_only_that_job_aside() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::new::<B>(Spec::default(), 0).await;

        let claimed = scene.claim(2).await;

        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), scene.jobs[1..]);
        assert_eq!(claimed.ended, scene.jobs[..1], "those who watch it must look");
        scene.check_set_aside().await;
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn an_alarm_that_breaks_a_rule_sets_only_that_job_aside() {
    async fn check<B: Backend + 'static>() {
        let not_before = Some(Ground::new(3).clock.now().plus(DELAY));
        let scene = Scene::new::<B>(Spec { not_before, ..Spec::default() }, 0).await;
        scene.ground.clock.advance(DELAY);
        let due = scene.store.due(10).await.unwrap();
        assert_eq!(due.jobs, scene.jobs);

        let wake = |id: &JobId| JobCommand { id: *id, reach: Reach::Everything, command: Command::WAKE };
        let answers = scene.store.apply(due.jobs.iter().map(wake).collect()).await.unwrap();

        let done: Vec<(Status, bool)> = answers
            .into_iter()
            .map(|answer| answer.map(|applied| (applied.status, applied.set_aside)).unwrap())
            .collect();
        assert_eq!(done, [(Status::Failed, true), (Status::Queued, false), (Status::Queued, false)]);
        assert_eq!(scene.store.due(10).await.unwrap().jobs, []);
        scene.check_set_aside().await;
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn a_report_that_breaks_a_rule_sets_only_that_job_aside() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::new::<B>(Spec::default(), 2).await;
        let ack = |job: usize| {
            let State::Running(running) = &scene.handed_out[job].state else {
                panic!("it was handed out");
            };
            let (lease, outcome) = (Some(running.lease), Outcome::Ack { result: None });
            Command::Report { lease, outcome, evidence: Evidence::default() }
        };

        let (poisoned, sound, claimed) = join!(scene.apply(0, ack(0)), scene.apply(1, ack(1)), scene.claim(1));

        assert!(poisoned.is_ok_and(|applied| applied.set_aside && applied.frees && applied.status == Status::Failed));
        assert!(sound.is_ok_and(|applied| !applied.set_aside && applied.status == Status::Succeeded));
        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), scene.jobs[2..]);
        scene.check_set_aside().await;
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

#[tokio::test]
async fn a_purge_that_breaks_a_rule_goes_on_with_the_other_jobs() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::new::<B>(Spec::default(), 0).await;
        let (namespace, kind, filter) = (scene.namespace, OperationKind::Purge, OperationFilter::default());
        let new = NewOperation { namespace, queue: QUEUE.into(), kind, filter, limit: None, rate_per_second: None };
        let started = scene.store.start_operation(new).await.unwrap().unwrap();

        let ended = scene.store.advance_operation(started.id, 10).await.unwrap().unwrap();

        assert_eq!(ended.processed, 3);
        for job in [1, 2] {
            assert_eq!(scene.job(job).await.status(), Status::Cancelled);
        }
        scene.check_set_aside().await;
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

/// A finished job does not change.
#[tokio::test]
async fn a_finished_job_that_breaks_a_rule_stays_and_its_alarm_is_silenced() {
    async fn check<B: Backend + 'static>() {
        let scene = Scene::finished::<B>().await;
        let before = scene.job(0).await;
        scene.ground.clock.advance(Duration::from_secs(400 * 86_400));

        let due = scene.store.due(10).await.unwrap();
        let wake = |id: &JobId| JobCommand { id: *id, reach: Reach::Everything, command: Command::WAKE };
        let answers = scene.store.apply(due.jobs.iter().map(wake).collect()).await.unwrap();

        assert_eq!(answers, [Err(Declined::Refused(Refusal::SetAside))]);
        let again = scene.store.due(10).await.unwrap();
        assert_eq!((again.jobs, again.next), (vec![], None));
        assert_eq!(scene.job(0).await, before);
        assert_eq!(scene.store.damage().violations(), 1);
        assert!(scene.backend.verify().await, "what is in memory differs from what is on disk");
        scene.store.close().await;
    }
    check::<Sqlite>().await;
    check::<Postgres>().await;
}

impl Scene {
    /// One job that has succeeded with a result, whose time will come.
    async fn finished<B: Backend + 'static>() -> Scene {
        let ground = Ground::new(3);
        let backend = B::on(&ground);
        let store = backend.open().await;
        let namespace = store.namespace("default").await.unwrap();
        store
            .save_queue(namespace, QUEUE, QueueSettings::default().into(), ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        let job =
            NewJob { namespace, queue: QUEUE.into(), spec: Arc::new(Spec { payload: "1".into(), ..Spec::default() }) };
        let jobs = store.publish(vec![job]).await.unwrap().into_iter().map(id).collect();
        let mut scene = Scene { ground, store, namespace, jobs, handed_out: Vec::new(), backend: Box::new(backend) };
        let claimed = scene.claim(1).await.jobs.remove(0);
        let State::Running(running) = &claimed.state else {
            panic!("it was handed out");
        };
        let (lease, outcome) = (Some(running.lease), Outcome::Ack { result: Some("1".into()) });
        scene.apply(0, Command::Report { lease, outcome, evidence: Evidence::default() }).await.unwrap();
        scene.store.close().await;
        scene.backend.plant_violation();
        scene.store = scene.backend.open().await;
        scene
    }
}
