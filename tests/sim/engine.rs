//! The engine in virtual time, case by case: who is woken when, what happens to calls whose caller has gone, how the
//! loops keep time. Every call on the store takes eight milliseconds, four before its effect and four after.

mod inbound_events;
mod followers;
mod hang_ups;
mod panics;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::queue::DeferScope;
use outlast_core::state::{CancelReason, Phase};
use outlast_core::{
    Clock, Command, Evidence, Job, JobId, Lease, NamespaceId, Outcome, QueueSettings, Spec, State, Status,
};
use outlast_engine::Engine;
use outlast_engine::jobs::long_poll::Until;
use outlast_engine::queues::QueueChange;
use outlast_store::jobs::{ClaimRequest, JobCommand, NewJob, Published, Reach};
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind, OperationStatus};
use outlast_store::queues::ExpectedVersion;
use outlast_tests::model::{ModelDisk, Rules};
use outlast_tests::ports::{RuntimeClock, SeededEntropy};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::faults::Faults;
use crate::planted::Plant;
use crate::server::Server;

const MILLISECOND: Duration = Duration::from_millis(1);
/// Half a call.
const HALF: Duration = Duration::from_millis(4);
/// A caller with this timeout hangs up after its call has taken effect and before the answer.
const IMPATIENT: Duration = Duration::from_millis(6);
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);
/// The time a wake-up and a call may take.
const AT_ONCE: Duration = Duration::from_millis(80);
const QUEUE: &str = "mail";

struct Rig {
    server: Arc<Server>,
    engine: Engine,
    clock: RuntimeClock,
    namespace: NamespaceId,
}

fn case(settings: QueueSettings, case: impl AsyncFnOnce(&Rig)) {
    run_case(settings, Faults::none(HALF, HALF), case);
}

fn run_case(settings: QueueSettings, faults: Faults, case: impl AsyncFnOnce(&Rig)) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let rig = Rig::new(settings, faults).await;
        case(&rig).await;
        rig.server.finish().await;
        assert_eq!(rig.server.witness.verdict(), None);
    });
}

impl Rig {
    async fn new(settings: QueueSettings, faults: Faults) -> Rig {
        let clock = RuntimeClock::start();
        let disk = ModelDisk::new(Rules::default(), Arc::new(clock), Box::new(SeededEntropy::new(5)));
        let server = Arc::new(Server::new(disk, Arc::new(faults), Arc::new(clock), Plant::Nothing));
        server.start();
        let engine = server.engine().unwrap();
        let namespace = engine.keys.namespace("default").await.unwrap();
        engine
            .queues
            .save(namespace, QUEUE, QueueChange { settings, secret: None }, ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        Rig { server, engine, clock, namespace }
    }

    fn new_job(&self, delay: Duration) -> NewJob {
        let not_before = (!delay.is_zero()).then(|| self.clock.now().plus(delay));
        let spec = Spec { payload: "{}".into(), not_before, ..Spec::default() };
        NewJob { namespace: self.namespace, queue: QUEUE.into(), spec: Arc::new(spec) }
    }

    async fn publish(&self, delay: Duration) -> JobId {
        match self.engine.jobs.publish(vec![self.new_job(delay)]).await.unwrap().pop().unwrap() {
            Published::Created { job, .. } => job.id,
            other => panic!("{other:?}"),
        }
    }

    fn want(&self) -> ClaimRequest {
        let queue = QUEUE.into();
        ClaimRequest {
            namespace: self.namespace,
            queue,
            limit: 1,
            phase: Phase::Leased,
            visibility: None,
            worker: None,
        }
    }

    async fn claim(&self) -> Job {
        self.engine.jobs.claim(self.want(), Duration::ZERO).await.unwrap().unwrap().jobs.pop().expect("a job is there")
    }

    /// Somebody who waits for work, and when he gets it.
    fn waiter(&self) -> JoinHandle<(Job, Instant)> {
        let (engine, want) = (self.engine.clone(), self.want());
        tokio::spawn(async move {
            let mut claimed = engine.jobs.claim(want, LONG).await.unwrap().unwrap();
            (claimed.jobs.pop().expect("the wait found a job"), Instant::now())
        })
    }

    fn order(&self, id: JobId, command: Command) -> JobCommand {
        JobCommand { id, reach: Reach::Namespace(self.namespace), command }
    }

    async fn report(&self, job: &Job, outcome: Outcome) {
        self.engine.jobs.apply_one(self.order(job.id, report(job, outcome))).await.unwrap().unwrap();
    }

    fn operation(&self, kind: OperationKind, rate_per_second: Option<u32>) -> NewOperation {
        let (namespace, queue) = (self.namespace, QUEUE.to_owned());
        NewOperation { namespace, queue, kind, filter: OperationFilter::default(), limit: None, rate_per_second }
    }

    fn status(&self, id: JobId) -> Option<Status> {
        self.server.disk.world().row(id).map(|row| row.job.status())
    }

    async fn dead_letters(&self, count: usize) {
        for _ in 0..count {
            self.publish(Duration::ZERO).await;
            let job = self.claim().await;
            self.report(&job, Outcome::Nack { retryable: false, delay: None }).await;
        }
    }
}

fn lease(job: &Job) -> Lease {
    match &job.state {
        State::Running(running) => running.lease,
        other => panic!("{other:?}"),
    }
}

fn report(job: &Job, outcome: Outcome) -> Command {
    Command::Report { lease: Some(lease(job)), outcome, evidence: Evidence::default() }
}

fn nack(delay: Duration) -> Outcome {
    Outcome::Nack { retryable: true, delay: Some(delay) }
}

/// The source of work, and how soon a waiter must have it.
fn check_that_a_waiter_gets_work(
    settings: QueueSettings,
    after: Duration,
    prepare: impl AsyncFnOnce(&Rig) -> Option<Job>,
    make: impl AsyncFnOnce(&Rig, Option<Job>),
) {
    case(settings, async |rig| {
        let job = prepare(rig).await;
        let waiter = rig.waiter();
        sleep(SECOND).await;
        let start = Instant::now();
        make(rig, job).await;
        let (_, got_at) = waiter.await.unwrap();

        let waited = got_at - start;
        assert!((after..after + AT_ONCE).contains(&waited), "after {waited:?} instead of {after:?}");
    });
}

async fn nothing(_: &Rig) -> Option<Job> {
    None
}

async fn running(rig: &Rig) -> Option<Job> {
    rig.publish(Duration::ZERO).await;
    Some(rig.claim().await)
}

#[test]
fn a_waiting_receive_is_woken_by_a_publish() {
    let publish = async |rig: &Rig, _| {
        rig.publish(Duration::ZERO).await;
    };
    check_that_a_waiter_gets_work(QueueSettings::default(), Duration::ZERO, nothing, publish);
}

#[test]
fn a_waiting_receive_is_woken_when_a_delay_ends() {
    let publish = async |rig: &Rig, _| {
        rig.publish(90 * SECOND).await;
    };
    check_that_a_waiter_gets_work(QueueSettings::default(), 90 * SECOND, nothing, publish);
}

#[test]
fn a_waiting_receive_is_woken_by_what_others_give_back() {
    let release = async |rig: &Rig, job: Option<Job>| rig.report(&job.unwrap(), Outcome::Release).await;
    let fail = async |rig: &Rig, job: Option<Job>| rig.report(&job.unwrap(), nack(5 * SECOND)).await;
    check_that_a_waiter_gets_work(QueueSettings::default(), Duration::ZERO, running, release);
    check_that_a_waiter_gets_work(QueueSettings::default(), 5 * SECOND, running, fail);
}

#[test]
fn a_waiting_receive_is_woken_when_a_lease_runs_out() {
    let settings = QueueSettings { visibility_timeout: 10 * SECOND, ..QueueSettings::default() };
    // The lease began a good second before.
    let nobody = async |_: &Rig, _| ();
    check_that_a_waiter_gets_work(settings, 9 * SECOND - 2 * HALF, running, nobody);
}

#[test]
fn a_waiting_receive_is_woken_by_room_under_the_limit() {
    let settings = QueueSettings { concurrency: Some(1), ..QueueSettings::default() };
    let one_more = async |rig: &Rig| {
        let job = running(rig).await;
        rig.publish(Duration::ZERO).await;
        job
    };
    let done = async |rig: &Rig, job: Option<Job>| rig.report(&job.unwrap(), Outcome::Ack { result: None }).await;
    check_that_a_waiter_gets_work(settings, Duration::ZERO, one_more, done);
}

#[test]
fn a_waiting_receive_is_woken_when_the_queue_goes_on() {
    let paused = async |rig: &Rig| {
        rig.engine.queues.set_paused(rig.namespace, QUEUE, true).await.unwrap();
        rig.publish(Duration::ZERO).await;
        None
    };
    let resume = async |rig: &Rig, _| drop(rig.engine.queues.set_paused(rig.namespace, QUEUE, false).await.unwrap());
    check_that_a_waiter_gets_work(QueueSettings::default(), Duration::ZERO, paused, resume);
}

#[test]
fn a_waiting_receive_is_woken_by_a_bulk_replay() {
    let dead = async |rig: &Rig| {
        rig.dead_letters(1).await;
        None
    };
    let replay = async |rig: &Rig, _| {
        let replay = rig.operation(OperationKind::Replay, None);
        rig.engine.jobs.start_operation(replay).await.unwrap().unwrap();
    };
    check_that_a_waiter_gets_work(QueueSettings::default(), Duration::ZERO, dead, replay);
}

#[test]
fn everyone_who_waits_gets_work_when_a_probe_opens_the_queue() {
    case(QueueSettings::default(), async |rig| {
        for _ in 0..4 {
            rig.publish(Duration::ZERO).await;
        }
        let first = rig.claim().await;
        rig.report(
            &first,
            Outcome::Defer {
                retry_after: Some(SECOND),
                scope: Some(DeferScope::Queue),
                cause: HoldCause::Backpressure,
            },
        )
        .await;
        sleep(SECOND + AT_ONCE).await;
        let probe = rig.claim().await;
        let waiters = [rig.waiter(), rig.waiter(), rig.waiter()];
        sleep(SECOND).await;
        let start = Instant::now();
        rig.report(&probe, Outcome::Ack { result: None }).await;

        for waiter in waiters {
            let (_, got_at) = waiter.await.unwrap();
            assert!(got_at - start < AT_ONCE, "somebody was left asleep");
        }
    });
}

#[test]
fn a_receive_that_hangs_up_leases_nothing_and_the_next_one_gets_the_job() {
    case(QueueSettings::default(), async |rig| {
        let (engine, want) = (rig.engine.clone(), rig.want());
        // Hangs up when the publish has rung and its claim has taken effect, before the answer.
        let hasty =
            tokio::spawn(async move { timeout(SECOND + 2 * HALF + IMPATIENT, engine.jobs.claim(want, LONG)).await });
        sleep(MILLISECOND).await;
        let patient = rig.waiter();
        sleep(SECOND - MILLISECOND).await;
        let start = Instant::now();
        let id = rig.publish(Duration::ZERO).await;

        assert!(hasty.await.unwrap().is_err(), "it should have hung up");
        let (job, got_at) = patient.await.unwrap();
        assert_eq!((job.id, job.attempt, job.epoch), (id, 1, 2));
        assert!(got_at - start < AT_ONCE);
    });
}

#[test]
fn a_delayed_job_is_served_in_time_although_its_publisher_hung_up() {
    case(QueueSettings::default(), async |rig| {
        let waiter = rig.waiter();
        sleep(SECOND).await;
        let start = Instant::now();
        let call = rig.engine.jobs.publish(vec![rig.new_job(5 * SECOND)]);
        assert!(timeout(IMPATIENT, call).await.is_err(), "it should have hung up");

        let (_, got_at) = waiter.await.unwrap();
        assert!(got_at - start < 5 * SECOND + AT_ONCE);
    });
}

#[test]
fn a_job_is_handed_on_although_the_worker_that_gave_it_back_hung_up() {
    for (delay, within) in [(Duration::ZERO, AT_ONCE), (3 * SECOND, 3 * SECOND + AT_ONCE)] {
        case(QueueSettings::default(), async |rig| {
            let job = running(rig).await.unwrap();
            let waiter = rig.waiter();
            sleep(SECOND).await;
            let start = Instant::now();
            let call = rig.engine.jobs.apply_one(rig.order(job.id, report(&job, nack(delay))));
            assert!(timeout(IMPATIENT, call).await.is_err(), "it should have hung up");

            let (again, got_at) = waiter.await.unwrap();
            assert_eq!((again.id, again.attempt), (job.id, 2));
            assert!(got_at - start < within);
        });
    }
}

#[test]
fn an_operation_is_carried_out_although_its_caller_hung_up() {
    case(QueueSettings::default(), async |rig| {
        let id = rig.publish(Duration::ZERO).await;
        sleep(SECOND).await;
        let call = rig.engine.jobs.start_operation(rig.operation(OperationKind::Purge, None));
        assert!(timeout(IMPATIENT, call).await.is_err(), "it should have hung up");
        sleep(SECOND).await;

        assert_eq!(rig.status(id), Some(Status::Cancelled));
    });
}

#[test]
fn the_last_step_of_an_operation_is_announced_although_its_answer_is_lost() {
    case(QueueSettings::default(), async |rig| {
        rig.dead_letters(1).await;
        let waiter = rig.waiter();
        sleep(SECOND).await;
        rig.server.faults.lose_steps();
        let start = Instant::now();
        rig.engine.jobs.start_operation(rig.operation(OperationKind::Replay, None)).await.unwrap();

        let (_, got_at) = waiter.await.unwrap();
        assert!(got_at - start < AT_ONCE, "after {:?}", got_at - start);
    });
}

#[test]
fn a_waiting_receive_gets_work_although_the_one_who_resumed_the_queue_hung_up() {
    case(QueueSettings::default(), async |rig| {
        rig.engine.queues.set_paused(rig.namespace, QUEUE, true).await.unwrap();
        rig.publish(Duration::ZERO).await;
        let waiter = rig.waiter();
        sleep(SECOND).await;
        let start = Instant::now();
        let call = rig.engine.queues.set_paused(rig.namespace, QUEUE, false);
        assert!(timeout(IMPATIENT, call).await.is_err(), "it should have hung up");

        assert!(waiter.await.unwrap().1 - start < AT_ONCE);
    });
}

#[test]
fn jobs_that_an_operation_cancels_are_purged_in_time() {
    let settings = QueueSettings { retention: 10 * SECOND, ..QueueSettings::default() };
    case(settings, async |rig| {
        let id = rig.publish(Duration::ZERO).await;
        // An alarm far away, for which the sweep sleeps.
        rig.publish(LONG).await;
        rig.engine.jobs.start_operation(rig.operation(OperationKind::Purge, None)).await.unwrap();
        sleep(SECOND).await;
        assert_eq!(rig.status(id), Some(Status::Cancelled));
        sleep(10 * SECOND).await;

        assert_eq!(rig.status(id), None);
    });
}

#[test]
fn an_operation_keeps_its_rate_also_beside_others() {
    case(QueueSettings::default(), async |rig| {
        rig.dead_letters(30).await;
        for _ in 0..2 {
            rig.publish(LONG).await;
        }
        let slow =
            rig.engine.jobs.start_operation(rig.operation(OperationKind::Replay, Some(2))).await.unwrap().unwrap();
        let start = Instant::now();
        let mut fast =
            rig.engine.jobs.start_operation(rig.operation(OperationKind::Purge, None)).await.unwrap().unwrap();
        sleep(5 * SECOND).await;

        let elapsed = start.elapsed().as_millis() as u64;
        let slow = rig.engine.jobs.operation(rig.namespace, slow.id).await.unwrap().unwrap();
        fast = rig.engine.jobs.operation(rig.namespace, fast.id).await.unwrap().unwrap();
        assert_eq!(fast.status, OperationStatus::Done);
        let due = elapsed * 2 / 1000;
        assert!((due - 1..=due + 1).contains(&slow.processed), "{} of {due}", slow.processed);
        sleep(15 * SECOND).await;
        let done = rig.engine.jobs.operation(rig.namespace, slow.id).await.unwrap().unwrap();
        assert_eq!((done.status, done.processed), (OperationStatus::Done, 30));
    });
}

#[test]
fn an_idle_engine_does_not_tick() {
    case(QueueSettings::default(), async |rig| {
        rig.publish(LONG).await;
        let waiter = rig.waiter();
        sleep(SECOND).await;
        let calls = rig.server.faults.calls();
        sleep(LONG - 2 * SECOND).await;

        assert_eq!(rig.server.faults.calls(), calls, "somebody asks the store although nothing happens");
        waiter.abort();
    });
}

#[test]
fn draining_answers_those_who_wait_and_hands_out_nothing() {
    case(QueueSettings::default(), async |rig| {
        let (engine, want) = (rig.engine.clone(), rig.want());
        let waiting = tokio::spawn(async move { engine.jobs.claim(want, LONG).await.unwrap().unwrap() });
        sleep(SECOND).await;
        let start = Instant::now();
        rig.engine.drain();

        assert!(waiting.await.unwrap().jobs.is_empty());
        assert!(start.elapsed() < AT_ONCE);
        rig.publish(Duration::ZERO).await;
        assert!(rig.engine.jobs.claim(rig.want(), LONG).await.unwrap().unwrap().jobs.is_empty());
    });
}

#[test]
fn a_watcher_of_a_job_learns_of_its_change_at_once() {
    case(QueueSettings::default(), async |rig| {
        let id = rig.publish(Duration::ZERO).await;
        let watch = |until| {
            let (engine, reach) = (rig.engine.clone(), Reach::Namespace(rig.namespace));
            tokio::spawn(
                async move { (engine.jobs.watch(&reach, id, until, LONG).await.unwrap().unwrap(), Instant::now()) },
            )
        };
        let (version, end) = (watch(Until::VersionPasses(1)), watch(Until::Terminal));
        sleep(SECOND).await;
        let claimed_at = Instant::now();
        rig.claim().await;
        let (found, seen_at) = version.await.unwrap();
        assert_eq!((found.job.version, seen_at - claimed_at < AT_ONCE), (2, true));

        sleep(SECOND).await;
        let cancelled_at = Instant::now();
        let cancel = Command::Cancel { reason: CancelReason::User };
        rig.engine.jobs.apply_one(rig.order(id, cancel)).await.unwrap().unwrap();
        let (found, seen_at) = end.await.unwrap();
        let drained_at = cancelled_at + QueueSettings::default().drain_timeout;
        assert_eq!(found.job.status(), Status::Cancelled);
        assert!(seen_at < drained_at + AT_ONCE);
    });
}

/// I-13, I-20: alarms are served when they ring, not before, however many there are.
#[test]
fn alarms_are_served_on_time_and_never_early() {
    case(QueueSettings::default(), async |rig| {
        let mut jobs = Vec::new();
        for number in 0..50u32 {
            let delay = Duration::from_millis(u64::from(number) * 137 % 5000 + 1);
            let due = rig.clock.now().plus(delay);
            jobs.push((rig.publish(delay).await, due));
        }
        for _ in 0..600 {
            sleep(10 * MILLISECOND).await;
            let now = rig.clock.now();
            for (id, due) in &jobs {
                let status = rig.status(*id).unwrap();
                assert!(status != Status::Queued || *due <= now, "too early");
                assert!(status != Status::Pending || now < due.plus(AT_ONCE), "too late");
            }
        }
    });
}

// I-20: the process is paused for a minute, and time jumps. A worker that reports afterwards keeps the lease; one that
// does not loses it when the minute has been granted on top.
#[test]
fn a_pause_of_the_process_is_granted_to_those_who_hold_leases() {
    case(QueueSettings::default(), async |rig| {
        for _ in 0..2 {
            rig.publish(Duration::ZERO).await;
        }
        let (alive, gone) = (rig.claim().await, rig.claim().await);
        let deadline = rig.clock.now().plus(30 * SECOND);
        sleep(5 * SECOND).await;

        advance(60 * SECOND).await;
        sleep(SECOND).await;
        rig.engine
            .jobs
            .apply_one(rig.order(alive.id, Command::beat(Some(lease(&alive)), None)))
            .await
            .unwrap()
            .unwrap();

        while rig.status(gone.id) == Some(Status::Running) {
            sleep(100 * MILLISECOND).await;
        }
        let granted = deadline.plus(60 * SECOND);
        let late = rig.clock.now().since(granted);
        assert!(rig.clock.now().plus(SECOND) >= granted && late <= 2 * SECOND, "lost {late:?} after its grace");
        assert_eq!(rig.status(alive.id), Some(Status::Running));
        rig.report(&alive, Outcome::Ack { result: None }).await;
    });
}

// I-20, control: a server with nothing to do is not paused, and a busy one neither.
#[test]
fn idle_time_extends_no_lease() {
    case(QueueSettings::default(), async |rig| {
        rig.publish(Duration::ZERO).await;
        sleep(600 * SECOND).await;
        let job = rig.claim().await;
        let deadline = rig.clock.now().plus(30 * SECOND);

        while rig.status(job.id) == Some(Status::Running) {
            sleep(100 * MILLISECOND).await;
        }

        let late = rig.clock.now().since(deadline);
        assert!(late <= SECOND, "lost {late:?} after its deadline");
    });
}
