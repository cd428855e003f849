//! Callers of one tenant that hang up cost another tenant nothing: no read of its watched jobs, no doubt about the
//! progress that its workers report. Their calls are completed and announced all the same.

use std::time::Duration;

use outlast_core::{JobId, NamespaceId, ProgressReport, QueueSettings};
use outlast_engine::jobs::long_poll::Until;
use outlast_engine::queues::QueueChange;
use outlast_engine::work::Worker;
use outlast_store::jobs::{ClaimRequest, FoundJob, NewJob, Reach};
use outlast_store::operations::{NewOperation, OperationKind};
use outlast_store::queues::ExpectedVersion;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{AT_ONCE, IMPATIENT, LONG, QUEUE, Rig, SECOND, case, lease};

/// Callers that hang up in each test.
const CALLERS: usize = 50;

/// A tenant that is watched while it works, beside one whose callers hang up.
struct Pair<'r> {
    rig: &'r Rig,
    other: NamespaceId,
    worker: Worker,
    watcher: JoinHandle<Option<FoundJob>>,
}

impl<'r> Pair<'r> {
    async fn begin(rig: &'r Rig) -> Pair<'r> {
        let other = rig.engine.keys.namespace("other").await.unwrap();
        let change = QueueChange { settings: QueueSettings::default(), secret: None };
        rig.engine.queues.save(other, QUEUE, change, ExpectedVersion::Absent).await.unwrap().unwrap();
        let id = rig.publish(Duration::ZERO).await;
        let job = rig.claim().await;
        let worker = Worker { reach: Reach::Namespace(rig.namespace), id, lease: Some(lease(&job)) };
        let (engine, reach) = (rig.engine.clone(), worker.reach.clone());
        let watcher =
            tokio::spawn(
                async move { engine.jobs.watch(&reach, id, Until::VersionPasses(1_000), LONG).await.unwrap() },
            );
        let pair = Pair { rig, other, worker, watcher };
        // The first report is written down; those after it are held in memory.
        pair.report(1.0).await;
        sleep(SECOND).await;
        pair.report(2.0).await;
        pair
    }

    async fn report(&self, pct: f64) {
        let report = ProgressReport { pct: Some(pct), ..ProgressReport::default() };
        self.rig.engine.work.report(&self.worker, report).await.unwrap().unwrap();
    }

    fn want(&self) -> ClaimRequest {
        ClaimRequest { namespace: self.other, ..self.rig.want() }
    }

    fn new_job(&self) -> NewJob {
        NewJob { namespace: self.other, ..self.rig.new_job(Duration::ZERO) }
    }

    /// Lets callers of the other tenant do something, and compares the reads of single jobs.
    async fn check(self, hang_up: impl AsyncFnOnce(&Pair<'r>)) {
        let before = self.rig.server.faults.job_reads();
        hang_up(&self).await;
        sleep(SECOND).await;
        self.report(3.0).await;

        assert_eq!(self.rig.server.faults.job_reads() - before, 0, "jobs of a tenant were read for another one");
        assert!(!self.watcher.is_finished());
        self.watcher.abort();
    }
}

async fn impatient<T>(call: impl Future<Output = T>) {
    assert!(timeout(IMPATIENT, call).await.is_err(), "it should have hung up");
}

#[test]
fn publishers_that_hang_up_cause_no_reads_of_another_tenants_jobs() {
    case(QueueSettings::default(), async |rig| {
        let pair = Pair::begin(rig).await;
        let other = pair.other;
        pair.check(async |pair| {
            for _ in 0..CALLERS {
                impatient(rig.engine.jobs.publish(vec![pair.new_job()])).await;
            }
        })
        .await;

        let world = rig.server.disk.world();
        let stored = world.rows.values().filter(|row| world.queue_of(&row.job).namespace == other).count();
        assert_eq!(stored, CALLERS);
    });
}

#[test]
fn receivers_that_hang_up_cause_no_reads_of_another_tenants_jobs() {
    case(QueueSettings::default(), async |rig| {
        let pair = Pair::begin(rig).await;
        let want = pair.want();
        pair.check(async |pair| {
            rig.engine.jobs.publish(vec![pair.new_job()]).await.unwrap();
            for _ in 0..CALLERS {
                impatient(rig.engine.jobs.claim(pair.want(), Duration::ZERO)).await;
                // Its jobs are released.
                sleep(AT_ONCE).await;
            }
        })
        .await;

        let claimed = rig.engine.jobs.claim(want, Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(claimed.jobs.len(), 1);
    });
}

#[test]
fn operations_of_a_tenant_cause_no_reads_of_another_tenants_jobs() {
    case(QueueSettings::default(), async |rig| {
        let pair = Pair::begin(rig).await;
        pair.check(async |pair| {
            for _ in 0..CALLERS {
                rig.engine.jobs.publish(vec![pair.new_job()]).await.unwrap();
                let purge = rig.operation(OperationKind::Purge, None);
                impatient(rig.engine.jobs.start_operation(NewOperation { namespace: pair.other, ..purge })).await;
                sleep(AT_ONCE).await;
            }
        })
        .await;
    });
}

/// A watcher learns at once of a change whose caller hung up.
#[test]
fn a_watcher_learns_at_once_what_a_caller_did_who_hung_up() {
    case(QueueSettings::default(), async |rig| {
        let id: JobId = rig.publish(LONG).await;
        let (engine, reach) = (rig.engine.clone(), Reach::Namespace(rig.namespace));
        let watcher = tokio::spawn(async move { engine.jobs.watch(&reach, id, Until::Terminal, LONG).await.unwrap() });
        sleep(SECOND).await;
        let cancel = outlast_core::Command::Cancel { reason: outlast_core::state::CancelReason::User };
        impatient(rig.engine.jobs.apply_one(rig.order(id, cancel))).await;

        let found = timeout(SECOND, watcher).await.expect("it is woken at once").unwrap().unwrap();
        assert!(found.job.status().is_terminal());
    });
}
