//! Two nodes on one store, in virtual time: what one does reaches the other at once while they are linked, and within
//! the floor while they are not. Every call on the store takes two milliseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::state::Phase;
use outlast_core::{Clock, Command, JobId, Lease, NamespaceId, Progress, QueueSettings, Spec, Status};
use outlast_engine::Engine;
use outlast_engine::engine::Loops;
use outlast_engine::engine::Ports;
use outlast_engine::jobs::long_poll::Until;
use outlast_engine::keys::KeyRequest;
use outlast_engine::keys::scope::{Principal, Scope, Word};
use outlast_engine::push::PushSettings;
use outlast_engine::seal::Seal;
use outlast_store::JobStore;
use outlast_store::jobs::{ClaimRequest, JobCommand, NewJob, Published, Reach};
use outlast_store::keys::KeyId;
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use outlast_store::peer_bus::mailbox::Mailbox;
use outlast_store::peer_bus::signals::ReportedProgress;
use outlast_store::peer_bus::{
    LeaseDigest, NoPeers, POLL_INTERVAL_LINKED, POLL_INTERVAL_UNLINKED, PeerBus, PeerLink, Signal, SignalSet,
};
use outlast_store::queues::ExpectedVersion;
use outlast_tests::model::{ModelDisk, Rules};
use outlast_tests::no_egress::NoEgress;
use outlast_tests::ports::{RuntimeClock, SeededEntropy};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::faults::{Faults, FaultyStore};
use crate::judge::Witness;
use crate::planted::Plant;

const HALF: Duration = Duration::from_millis(1);
/// The time a signal and some calls may take.
const AT_ONCE: Duration = Duration::from_millis(30);
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);
const QUEUE: &str = "mail";

/// A link that is as quick as thought, until it is cut.
struct Wire {
    inbox: Mailbox,
    other: Weak<Wire>,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    fn pair() -> (Arc<Wire>, Arc<Wire>, Arc<AtomicBool>) {
        let is_cut = Arc::new(AtomicBool::new(false));
        let end = |other: Weak<Wire>| Wire { inbox: Mailbox::default(), other, is_cut: Arc::clone(&is_cut) };
        let mut right = None;
        let left = Arc::new_cyclic(|left| {
            let made = Arc::new(end(left.clone()));
            let wire = end(Arc::downgrade(&made));
            right = Some(made);
            wire
        });
        (left, right.unwrap(), is_cut)
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl PeerBus for Wire {
    fn publish(&self, signal: Signal<'_>) {
        if let Some(other) = self.other.upgrade().filter(|_| !self.is_cut()) {
            other.inbox.add(signal);
        }
    }

    fn report(&self, id: JobId, lease: Lease, progress: &Arc<Progress>) {
        if let Some(other) = self.other.upgrade().filter(|_| !self.is_cut()) {
            let mut news = SignalSet::default();
            news.add_progress(
                id,
                ReportedProgress { hand_out: LeaseDigest::of(lease), progress: Arc::clone(progress) },
            );
            other.inbox.merge(news);
        }
    }

    async fn progress(&self, _: JobId) -> Option<(LeaseDigest, Progress)> {
        None
    }

    async fn recv(&self) -> SignalSet {
        self.inbox.wait().await;
        self.inbox.take()
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(if self.is_cut() { POLL_INTERVAL_UNLINKED } else { POLL_INTERVAL_LINKED })
    }

    fn link(&self) -> Option<PeerLink> {
        None
    }

    async fn close(&self) {}
}

struct Node {
    engine: Engine,
    loops: Loops,
    faults: Arc<Faults>,
}

struct Rig {
    disk: ModelDisk,
    clock: RuntimeClock,
    a: Node,
    b: Node,
    is_cut: Arc<AtomicBool>,
    namespace: NamespaceId,
}

fn case(is_cut: bool, case: impl AsyncFnOnce(&Rig)) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let rig = Rig::new().await;
        // At first the nodes are well.
        sleep(SECOND).await;
        rig.is_cut.store(is_cut, Ordering::SeqCst);
        sleep(10 * SECOND).await;
        case(&rig).await;
        for node in [rig.a, rig.b] {
            node.engine.stop();
            node.loops.finish().await;
        }
    });
}

/// Where the case is the same with and without the link, only slower.
fn both(check: impl AsyncFn(&Rig, Duration)) {
    case(false, async |rig| check(rig, AT_ONCE).await);
    case(true, async |rig| check(rig, POLL_INTERVAL_UNLINKED + AT_ONCE).await);
}

fn node(disk: &ModelDisk, peer_bus: Arc<dyn PeerBus>, clock: RuntimeClock, seed: u64) -> Node {
    let faults = Arc::new(Faults::none(HALF, HALF));
    let store = FaultyStore::new(disk, Arc::clone(&faults), Arc::new(Witness::default()), Plant::Nothing);
    let engine = Engine::new(
        Ports {
            store: Arc::new(store),
            peer_bus,
            clock: Arc::new(clock),
            entropy: Box::new(SeededEntropy::new(seed)),
            egress: Arc::new(NoEgress),
            blobs: outlast_tests::objects::no_blobs(),
            seal: Seal::new(&[1; 32], &[]),
        },
        PushSettings::default(),
    );
    let loops = engine.start();
    Node { engine, loops, faults }
}

impl Rig {
    async fn new() -> Rig {
        let clock = RuntimeClock::start();
        let disk = ModelDisk::new(Rules::default(), Arc::new(clock), Box::new(SeededEntropy::new(5))).shared();
        let namespace = disk.open().namespace("default").await.unwrap();
        disk.open()
            .save_queue(namespace, QUEUE, QueueSettings::default().into(), ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        let (left, right, is_cut) = Wire::pair();
        let (a, b) = (node(&disk, left, clock, 1), node(&disk, right, clock, 2));
        Rig { disk, clock, a, b, is_cut, namespace }
    }

    async fn publish(&self, node: &Node, delay: Duration) -> JobId {
        let not_before = (!delay.is_zero()).then(|| self.clock.now().plus(delay));
        let spec = Arc::new(Spec { payload: "{}".into(), not_before, ..Spec::default() });
        let new = NewJob { namespace: self.namespace, queue: QUEUE.into(), spec };
        match node.engine.jobs.publish(vec![new]).await.unwrap().pop().unwrap() {
            Published::Created { job, .. } => job.id,
            other => panic!("{other:?}"),
        }
    }

    /// Somebody who waits for work at B, and when he gets it.
    fn waiter(&self) -> JoinHandle<Instant> {
        let engine = self.b.engine.clone();
        let (namespace, queue) = (self.namespace, QUEUE.into());
        let want =
            ClaimRequest { namespace, queue, limit: 1, phase: Phase::Leased, visibility: Some(LONG), worker: None };
        tokio::spawn(async move {
            let claimed = engine.jobs.claim(want, LONG).await.unwrap().unwrap();
            assert_eq!(claimed.jobs.len(), 1, "the wait found a job");
            Instant::now()
        })
    }

    fn status(&self, id: JobId) -> Option<Status> {
        self.disk.world().row(id).map(|row| row.job.status())
    }

    fn operator(&self) -> Principal {
        let scopes = vec![Scope { word: Word::Admin, queue: None }];
        Principal { key: KeyId(0), namespace: self.namespace, namespace_name: "default".into(), scopes: scopes.into() }
    }
}

fn key_request() -> KeyRequest {
    let scopes = vec![Scope { word: Word::Read, queue: None }];
    KeyRequest { name: "test".to_owned(), namespace: "default".to_owned(), scopes, expires_at: None }
}

#[test]
fn a_waiting_receive_is_woken_by_a_publish_on_another_node() {
    both(async |rig, most| {
        for round in 1..=40 {
            let waiter = rig.waiter();
            sleep(37 * HALF * round).await;
            rig.publish(&rig.a, Duration::ZERO).await;
            let published = Instant::now();

            let late = waiter.await.unwrap() - published;

            assert!(late <= most, "{late:?}");
        }
    });
}

/// The control of the one above: what is missed without a link is really missed until somebody looks.
#[test]
fn without_a_link_a_waiting_receive_is_woken_by_looking_only() {
    case(true, async |rig| {
        let mut latest = Duration::ZERO;
        for round in 1..=40 {
            let waiter = rig.waiter();
            sleep(37 * HALF * round).await;
            rig.publish(&rig.a, Duration::ZERO).await;
            let published = Instant::now();
            latest = latest.max(waiter.await.unwrap() - published);
        }
        assert!(latest > 10 * AT_ONCE, "{latest:?}");
    });
}

#[test]
fn a_watcher_sees_what_another_node_did() {
    both(async |rig, most| {
        let id = rig.publish(&rig.a, LONG).await;
        let engine = rig.b.engine.clone();
        let reach = Reach::Namespace(rig.namespace);
        let watcher = {
            let reach = reach.clone();
            tokio::spawn(async move {
                let found = engine.jobs.watch(&reach, id, Until::Terminal, LONG).await.unwrap().unwrap();
                (found.job.status(), Instant::now())
            })
        };
        sleep(100 * HALF).await;
        let cancel = Command::Cancel { reason: outlast_core::state::CancelReason::User };
        rig.a.engine.jobs.apply_one(JobCommand { id, reach, command: cancel }).await.unwrap().unwrap();
        let cancelled = Instant::now();

        let (status, seen) = watcher.await.unwrap();

        assert_eq!(status, Status::Cancelled);
        assert!(seen - cancelled <= most, "{:?}", seen - cancelled);
    });
}

#[test]
fn many_waiters_share_one_look_and_still_all_get_their_jobs() {
    case(true, async |rig| {
        let waiters: Vec<_> = (0..300).map(|_| rig.waiter()).collect();
        sleep(SECOND).await;
        let before = rig.b.faults.calls();
        sleep(10 * SECOND).await;
        let idle_calls = rig.b.faults.calls() - before;

        let published = Instant::now();
        for _ in 0..300 {
            rig.publish(&rig.a, Duration::ZERO).await;
        }
        let all_published = Instant::now() - published;
        let mut latest = Duration::ZERO;
        for waiter in waiters {
            latest = latest.max(waiter.await.unwrap() - published);
        }

        // The queue, the alarms, the operations and the keys: each about once a second, whatever the number of waiters.
        assert!(idle_calls <= 50, "{idle_calls} calls in ten seconds");
        assert!(latest <= all_published + POLL_INTERVAL_UNLINKED + 3 * AT_ONCE, "{latest:?} after {all_published:?}");
    });
}

#[test]
fn an_alarm_of_a_node_that_died_is_served_by_another() {
    both(async |rig, _| {
        let id = rig.publish(&rig.a, 5 * SECOND).await;
        rig.a.engine.stop();

        sleep(5 * SECOND - AT_ONCE).await;
        assert_eq!(rig.status(id), Some(Status::Pending));
        sleep(SECOND + 2 * AT_ONCE).await;
        assert_eq!(rig.status(id), Some(Status::Queued));
    });
}

#[test]
fn an_operation_of_a_node_that_died_is_carried_on_by_another() {
    case(true, async |rig| {
        let id = rig.publish(&rig.a, LONG).await;
        rig.a.engine.stop();
        sleep(SECOND).await;
        let (namespace, queue) = (rig.namespace, QUEUE.to_owned());
        let (kind, filter) = (OperationKind::Purge, OperationFilter::default());
        let new = NewOperation { namespace, queue, kind, filter, limit: None, rate_per_second: None };
        rig.a.engine.jobs.start_operation(new).await.unwrap().unwrap();

        sleep(POLL_INTERVAL_UNLINKED + AT_ONCE).await;

        assert_eq!(rig.status(id), Some(Status::Cancelled));
    });
}

/// T09, F33.
#[test]
fn a_key_works_everywhere_once_it_is_made_and_nowhere_once_it_is_revoked() {
    for (is_cut, most) in [(false, AT_ONCE), (true, 3 * SECOND)] {
        case(is_cut, async |rig| {
            let (text, record) = rig.a.engine.keys.create(key_request()).await.unwrap();
            let made = Instant::now();
            assert!(rig.b.engine.keys.authenticate(&text).await.unwrap().is_some());
            assert!(made.elapsed() <= 250 * HALF * 2, "{:?}", made.elapsed());

            rig.a.engine.keys.revoke(&rig.operator(), record.id, true).await.unwrap();
            assert!(rig.a.engine.keys.authenticate(&text).await.unwrap().is_none());
            sleep(most).await;
            assert!(rig.b.engine.keys.authenticate(&text).await.unwrap().is_none());
        });
    }
}

#[test]
fn unknown_keys_make_the_store_read_a_few_times_a_second_at_most() {
    case(true, async |rig| {
        let before = rig.b.faults.calls();
        let began = Instant::now();
        let mut tries = Vec::new();
        for _ in 0..1000 {
            let (engine, text) = (rig.b.engine.clone(), rig.a.engine.keys.key_text());
            tries.push(tokio::spawn(async move { engine.keys.authenticate(&text).await.unwrap().is_some() }));
            sleep(2 * HALF).await;
        }
        for known in tries {
            assert!(!known.await.unwrap());
        }

        let (seconds, calls) = (began.elapsed().as_secs_f64(), rig.b.faults.calls() - before);
        // Five for the keys, and what the loops do anyway.
        assert!((5.0..12.0).contains(&(calls as f64 / seconds)), "{calls} calls in {seconds} s");
        assert!(rig.b.engine.keys.authenticate("ol_short").await.unwrap().is_none());
    });
}

#[test]
fn an_idle_node_on_an_embedded_store_never_looks() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = RuntimeClock::start();
        let disk = ModelDisk::new(Rules::default(), Arc::new(clock), Box::new(SeededEntropy::new(5)));
        let node = node(&disk, Arc::new(NoPeers::embedded()), clock, 1);
        sleep(SECOND).await;
        let before = node.faults.calls();

        sleep(LONG).await;

        assert_eq!(node.faults.calls(), before);
        assert!(node.engine.keys.authenticate(&node.engine.keys.key_text()).await.unwrap().is_none());
        assert_eq!(node.faults.calls(), before, "an unknown key is not looked for");
        node.engine.stop();
        node.loops.finish().await;
    });
}
