//! Fills a store with something of everything and gives its rows as SQL: the fixture that the upgrade test opens with later
//! programs.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::gate::HoldCause;
use outlast_core::queue::{DeferScope, Mode};
use outlast_core::state::Phase;
use outlast_core::{
    Clock, Command, Evidence, Job, JobId, NamespaceId, Object, ObjectKey, Outcome, QueueSettings, Role, Spec, Timestamp,
};
use outlast_store::JobStore;
use outlast_store::inbound_events::NewInboundEvent;
use outlast_store::jobs::{ClaimRequest, JobCommand, NewJob, Reach};
use outlast_store::keys::NewKey;
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use outlast_store::queues::{ExpectedVersion, QueueDraft};
use outlast_tests::objects;

use crate::backend::{Backend, Ground};
use crate::fixture::{created, lease, payload};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The rows of a store of the newest schema that was stopped so long after it was made.
pub async fn rows<B: Backend + 'static>(schema: u32, stopped: Duration) -> String {
    let ground = Ground::new(3);
    let backend = B::on(&ground);
    let store = backend.open().await;
    let ours = store.namespace("default").await.unwrap();
    let fill = Fill { store, ours, ground };
    fill.make_queues().await;
    fill.end_jobs().await;
    fill.save_artifacts().await;
    fill.ground.clock.advance(stopped);
    fill.leave_jobs_waiting().await;
    fill.add_the_rest().await;
    fill.store.close().await;
    format!("-- Rows of a store as the program of schema {schema} left them. Never edited.\n{}", backend.rows())
}

struct Fill {
    store: Arc<dyn JobStore>,
    ours: NamespaceId,
    ground: Ground,
}

impl Fill {
    async fn make_queues(&self) {
        let hook = QueueSettings {
            mode: Mode::Ack,
            allow_pull: true,
            webhook_url: Some("https://example.com/hook".into()),
            ..QueueSettings::default()
        };
        let secrets: Option<Arc<[u8]>> = Some(Arc::from(&b"sealed"[..]));
        for (name, settings, secrets) in [
            ("mail", QueueSettings::default(), secrets),
            ("hook", hook, None),
            ("held", QueueSettings::default(), None),
        ] {
            let draft = QueueDraft { settings, secrets };
            self.store.save_queue(self.ours, name, draft, ExpectedVersion::Absent).await.unwrap().unwrap();
        }
    }

    async fn publish(&self, queue: &str, spec: Spec) -> Job {
        let new = NewJob { namespace: self.ours, queue: queue.into(), spec: Arc::new(spec) };
        created(self.store.publish(vec![new]).await.unwrap().pop().unwrap())
    }

    async fn claim(&self, queue: &str, phase: Phase) -> Job {
        let (namespace, queue) = (self.ours, queue.into());
        let want = ClaimRequest { namespace, queue, limit: 1, phase, visibility: None, worker: Some("w".into()) };
        self.store.claim(want).await.unwrap().unwrap().jobs.pop().expect("a job is handed out")
    }

    async fn running(&self, queue: &str, word: &str, phase: Phase) -> Job {
        self.publish(queue, payload(&quoted(word))).await;
        self.claim(queue, phase).await
    }

    async fn apply(&self, id: JobId, command: Command) {
        let order = JobCommand { id, reach: Reach::Namespace(self.ours), command };
        self.store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap();
    }

    async fn report(&self, job: &Job, outcome: Outcome) {
        let evidence = Evidence { error: Some("broken".into()), ..Evidence::default() };
        self.apply(job.id, Command::Report { lease: Some(lease(job)), outcome, evidence }).await;
    }

    /// A dead letter, and a success after a replay.
    async fn end_jobs(&self) {
        let dead = self.running("mail", "dead", Phase::Leased).await;
        self.report(&dead, Outcome::Nack { retryable: false, delay: None }).await;
        let done = self.running("mail", "done", Phase::Leased).await;
        self.report(&done, Outcome::Nack { retryable: false, delay: None }).await;
        self.apply(done.id, Command::Replay { fresh: false, payload: None }).await;
        let done = self.claim("mail", Phase::Leased).await;
        self.report(&done, Outcome::Ack { result: Some("{\"ok\":true}".into()) }).await;
    }

    /// Of a job that runs: a checkpoint, a section, and an object that is announced and not written.
    async fn save_artifacts(&self) {
        let running = self.running("mail", "running", Phase::Leased).await;
        let holder = Some(lease(&running));
        let data = CheckpointData::Inline("{\"page\":7}".into());
        let saved = Checkpoint { schema_version: 2, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 };
        let checkpoint = Command::Checkpoint { lease: holder, checkpoint: Arc::new(saved), progress: None };
        self.apply(running.id, checkpoint).await;
        let section = Section { name: "one".into(), body: "[1]".into(), at: Timestamp::EPOCH };
        self.apply(running.id, Command::Section { lease: holder, section: Arc::new(section) }).await;
        let key = ObjectKey { namespace: self.ours, job: running.id, epoch: 1, random: 5 };
        let object = Object { key, role: Role::Result, ..Object::clone(&objects::result(5, 15)) };
        self.apply(running.id, Command::Upload { lease: holder, object: Arc::new(object) }).await;
    }

    async fn leave_jobs_waiting(&self) {
        let waiting = Spec {
            idempotency_key: Some("once".into()),
            tags: vec![("kind".into(), "x".into())],
            callback_url: Some("https://example.com/told".into()),
            ..payload(&quoted("waiting"))
        };
        self.publish("mail", waiting).await;
        let later = self.ground.clock.now().plus(HOUR);
        self.publish("mail", Spec { not_before: Some(later), ..payload(&quoted("later")) }).await;
        let retried = self.running("hook", "retried", Phase::Leased).await;
        self.report(&retried, Outcome::Nack { retryable: true, delay: Some(HOUR) }).await;
        self.running("hook", "delivering", Phase::Delivering).await;
        let deferred = self.running("held", "deferred", Phase::Leased).await;
        let (retry_after, scope) = (Some(10 * SECOND), Some(DeferScope::Queue));
        self.report(&deferred, Outcome::Defer { retry_after, scope, cause: HoldCause::Backpressure }).await;
        self.publish("held", payload(&quoted("behind"))).await;
    }

    /// An event, a key, and an operation that has not begun its work.
    async fn add_the_rest(&self) {
        let event = NewInboundEvent {
            namespace: self.ours,
            source: "shop".into(),
            kind: "order.paid".into(),
            key: Some("evt_7".into()),
            headers: [("user-agent".into(), "shop".into())].into(),
            body: "{\"order\":7}".into(),
            jobs: Vec::new(),
        };
        self.store.ingest(vec![event]).await.unwrap();
        let key = NewKey {
            namespace: self.ours,
            name: "ci".to_owned(),
            prefix: "abc".to_owned(),
            hash: [7; 32],
            scopes: vec!["publish".to_owned()],
            expires_at: None,
        };
        self.store.add_key(key).await.unwrap();
        let replay = NewOperation {
            namespace: self.ours,
            queue: "mail".to_owned(),
            kind: OperationKind::Replay,
            filter: OperationFilter::default(),
            limit: None,
            rate_per_second: None,
        };
        self.store.start_operation(replay).await.unwrap().expect("the queue exists");
    }
}

fn quoted(word: &str) -> String {
    format!("[\"{word}\"]")
}
