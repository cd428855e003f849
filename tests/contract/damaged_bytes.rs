//! I-06: a stored byte that changes is noticed, whatever kind of row it is in: the read fails and says so, all other
//! jobs go on, and nothing of it is handed out. Damage is done while the store is closed.

use std::sync::Arc;

use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::inbound_event::InboundEventId;
use outlast_core::state::Phase;
use outlast_core::{Command, Evidence, JobId, NamespaceId, Outcome, QueueSettings, Spec, Timestamp};
use outlast_store::inbound_events::{Ingested, NewInboundEvent};
use outlast_store::jobs::{ClaimRequest, JobCommand, NewJob, Published, Reach};
use outlast_store::queues::ExpectedVersion;
use outlast_store::{Error, JobStore};

use crate::backend::{Backend, Ground, Postgres, Sqlite};
use crate::fixture::lease;

const QUEUE: &str = "mail";

/// The reads that must fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    Job,
    Result,
    Events,
    Kept,
    Section,
    Event,
}

/// The columns of users' bytes, each with the read that shows it.
const DAMAGE: [(&str, Read); 9] = [
    ("UPDATE spec SET payload = '{\"amount\":1001}' WHERE payload = '{\"amount\":1000}'", Read::Job),
    ("UPDATE spec SET idempotency_key = 'other' WHERE idempotency_key = 'k-1'", Read::Job),
    ("UPDATE job SET attempt = 2 WHERE result IS NOT NULL", Read::Job),
    ("UPDATE result SET body = '{\"paid\":false}'", Read::Result),
    ("UPDATE history SET events = replace(events, 'line', 'lane')", Read::Events),
    ("UPDATE checkpoint SET data = '{\"step\":8}'", Read::Kept),
    ("UPDATE section SET body = '\"part two\"'", Read::Section),
    ("UPDATE inbound_event SET body = '{\"type\":\"order.lost\"}'", Read::Event),
    ("UPDATE inbound_event SET headers = '{\"user-agent\":\"x\"}'", Read::Event),
];
const DAMAGE_ON_POSTGRES: [(&str, Read); 9] = [
    ("UPDATE job SET payload = '{\"amount\":1001}' WHERE payload = '{\"amount\":1000}'", Read::Job),
    ("UPDATE job SET spec = replace(spec, 'k-1', 'k-2') WHERE spec IS NOT NULL", Read::Job),
    (
        "UPDATE job SET state = set_byte(state, 8, get_byte(state, 8) # 1) WHERE payload = '{\"amount\":1000}'",
        Read::Job,
    ),
    ("UPDATE result SET body = '{\"paid\":false}'", Read::Result),
    ("UPDATE history SET events = set_byte(events, 9, get_byte(events, 9) # 1)", Read::Events),
    ("UPDATE checkpoint SET data = '{\"step\":8}'", Read::Kept),
    ("UPDATE section SET body = '\"part two\"'", Read::Section),
    ("UPDATE inbound_event SET body = '{\"type\":\"order.lost\"}'", Read::Event),
    ("UPDATE inbound_event SET headers = '{\"user-agent\":\"x\"}'", Read::Event),
];

/// One job that has everything, one that waits, and an event.
struct Scene {
    store: Arc<dyn JobStore>,
    namespace: NamespaceId,
    full: JobId,
    waiting: JobId,
    event: InboundEventId,
    // Last: the place must outlive the store.
    backend: Box<dyn Backend>,
}

impl Scene {
    async fn new<B: Backend + 'static>() -> Scene {
        let ground = Ground::new(3);
        let backend = B::on(&ground);
        let store = backend.open().await;
        let namespace = store.namespace("default").await.unwrap();
        store
            .save_queue(namespace, QUEUE, QueueSettings::default().into(), ExpectedVersion::Absent)
            .await
            .unwrap()
            .unwrap();
        let mut scene = Scene {
            full: publish(&*store, namespace, "{\"amount\":1000}", Some("k-1")).await,
            waiting: JobId::from_u128(0x7 << 76 | 0b10 << 62).unwrap(),
            event: InboundEventId(JobId::from_u128(0x7 << 76 | 0b10 << 62).unwrap()),
            store,
            namespace,
            backend: Box::new(backend),
        };
        scene.fill().await;
        scene.waiting = publish(&*scene.store, namespace, "{\"amount\":7}", None).await;
        let event = NewInboundEvent {
            namespace,
            source: "shop".into(),
            kind: "order.paid".into(),
            key: Some("evt_1".into()),
            headers: [("user-agent".into(), "shop/1".into())].into(),
            body: "{\"type\":\"order.paid\"}".into(),
            jobs: vec![],
        };
        match scene.store.ingest(vec![event]).await.unwrap().pop() {
            Some(Ingested::Created { id, .. }) => scene.event = id,
            other => panic!("{other:?}"),
        }
        scene
    }

    async fn fill(&self) {
        let job = self.claim(1).await.pop().expect("a job waits");
        let lease = Some(lease(&job));
        let data = CheckpointData::Inline("{\"step\":7}".into());
        let checkpoint = Checkpoint { schema_version: 1, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 };
        let section = Section { name: "a".into(), body: "\"part one\"".into(), at: Timestamp::EPOCH };
        self.apply(Command::Checkpoint { lease, checkpoint: Arc::new(checkpoint), progress: None }).await;
        self.apply(Command::Section { lease, section: Arc::new(section) }).await;
        for _ in 0..3 {
            self.apply(Command::Output { lease, part: None, text: "line ".repeat(150).into() }).await;
        }
    }

    async fn finish(&self) {
        let outcome = Outcome::Ack { result: Some("{\"paid\":true}".into()) };
        self.apply(Command::Report { lease: None, outcome, evidence: Evidence::default() }).await;
    }

    async fn apply(&self, command: Command) {
        let order = JobCommand { id: self.full, reach: Reach::Everything, command };
        self.store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap();
    }

    async fn claim(&self, limit: usize) -> Vec<outlast_core::Job> {
        let (namespace, queue) = (self.namespace, QUEUE.into());
        let want = ClaimRequest { namespace, queue, limit, phase: Phase::Leased, visibility: None, worker: None };
        self.store.claim(want).await.unwrap().unwrap().jobs
    }

    async fn damage(&mut self, statement: &str) {
        self.store.close().await;
        self.backend.run(statement);
        self.store = self.backend.open().await;
    }

    async fn read(&self, read: Read) -> Result<(), Error> {
        let (reach, id) = (Reach::Everything, self.full);
        match read {
            Read::Job => self.store.job(&reach, id).await.map(|found| assert!(found.is_some())),
            Read::Result => self.store.result(&reach, id).await.map(|found| assert!(found.is_some())),
            Read::Events => self.store.events(&reach, id, 0, 100).await.map(|found| assert!(found.is_some())),
            Read::Kept => self.store.artifacts(&reach, id).await.map(|found| assert!(found.is_some())),
            Read::Section => self.store.section(&reach, id, "a").await.map(|found| assert!(found.is_some())),
            Read::Event => {
                self.store.inbound_event(self.namespace, self.event).await.map(|found| assert!(found.is_some()))
            }
        }
    }
}

async fn publish(store: &dyn JobStore, namespace: NamespaceId, payload: &str, key: Option<&str>) -> JobId {
    let spec = Spec { payload: payload.into(), idempotency_key: key.map(Into::into), ..Spec::default() };
    let job = NewJob { namespace, queue: QUEUE.into(), spec: Arc::new(spec) };
    match store.publish(vec![job]).await.unwrap().pop() {
        Some(Published::Created { job, .. }) => job.id,
        other => panic!("{other:?}"),
    }
}

async fn check<B: Backend + 'static>(damage: &[(&str, Read)]) {
    for (statement, read) in damage {
        let mut scene = Scene::new::<B>().await;
        // A checkpoint and its sections go when a job succeeds, and a result comes then.
        if !matches!(read, Read::Kept | Read::Section) {
            scene.finish().await;
        }
        scene.read(*read).await.unwrap_or_else(|error| panic!("{statement}: failed before the damage: {error}"));

        scene.damage(statement).await;

        let answer = scene.read(*read).await;
        assert!(matches!(answer, Err(Error::Corrupt(_))), "{statement}: {answer:?}");
        assert!(scene.store.damage().count() > 0, "{statement}: not listed");
        let handed_out: Vec<JobId> = scene.claim(10).await.iter().map(|job| job.id).collect();
        assert_eq!(handed_out, [scene.waiting], "{statement}");
        scene.store.job(&Reach::Everything, scene.waiting).await.unwrap().expect("the neighbour is served");
        scene.store.close().await;
    }
}

#[tokio::test]
async fn every_changed_byte_is_noticed_in_sqlite() {
    check::<Sqlite>(&DAMAGE).await;
}

#[tokio::test]
async fn every_changed_byte_is_noticed_in_postgres() {
    check::<Postgres>(&DAMAGE_ON_POSTGRES).await;
}
