//! Stores that older programs have left behind: this one brings them up to date, and everything in them goes on. Each schema has
//! a fixture per engine in `upgrade/`: the rows of a store that the program of that schema filled (`upgrade/fill.rs`).

#[path = "upgrade/fill.rs"]
mod fill;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::{Hold, HoldCause};
use outlast_core::state::Phase;
use outlast_core::system_queue::CALLBACKS;
use outlast_core::{Clock, Command, Evidence, Job, NamespaceId, Outcome, Queue, Status};
use outlast_store::inbound_events::ListInboundEvents;
use outlast_store::jobs::{ClaimRequest, JobCommand, Reach};
use outlast_store::operations::OperationStatus;
use outlast_store::queues::{ExpectedVersion, QueueDraft};
use outlast_store::{JobStore, postgres, sqlite};

use crate::backend::{Backend, Ground, Postgres, Sqlite};
use crate::dump::{all_jobs, every_job};

const SECOND: Duration = Duration::from_secs(1);
/// When the older program was stopped, by the clock that it and this one start with.
const STOPPED: Duration = SECOND;

type Migrations = &'static [(u32, &'static str, &'static str)];

fn fixture_path(number: u32, engine: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("contract/upgrade/{number:04}_{engine}.sql"))
}

/// The fixture of a schema. With `OUTLAST_GEN=1` a missing fixture of the newest schema is written; one that exists never is.
async fn fixture<B: Backend + 'static>(number: u32, newest: u32, engine: &str) -> String {
    let path = fixture_path(number, engine);
    let generates = std::env::var("OUTLAST_GEN").is_ok_and(|value| value == "1");
    if generates && number == newest && !path.exists() {
        fs::write(&path, fill::rows::<B>(number, STOPPED).await).expect("the fixture can be written");
    }
    fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; write the fixture with OUTLAST_GEN=1", path.display()))
}

/// SQLite keeps the number of its schema in `user_version`.
async fn sqlite_at(number: u32) -> String {
    let script = migrations(sqlite::MIGRATIONS, number, |number, _| format!("PRAGMA user_version = {number}"));
    let newest = u32::try_from(sqlite::MIGRATIONS.len()).unwrap();
    script + &fixture::<Sqlite>(number, newest, "sqlite").await
}

/// PostgreSQL has a list of migrations, which none of them makes.
async fn postgres_at(number: u32) -> String {
    let list = "
        CREATE TABLE outlast_schema (
            number     integer PRIMARY KEY,
            name       text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );";
    let note = |number, name: &str| format!("INSERT INTO outlast_schema (number, name) VALUES ({number}, '{name}')");
    let newest = u32::try_from(postgres::MIGRATIONS.len()).unwrap();
    let rows = fixture::<Postgres>(number, newest, "postgres").await;
    list.to_owned() + &migrations(postgres::MIGRATIONS, number, note) + &rows
}

fn migrations(all: Migrations, up_to: u32, note: impl Fn(u32, &str) -> String) -> String {
    let wanted = all.iter().filter(|(number, ..)| *number <= up_to);
    wanted.map(|(number, name, text)| format!("{text};\n{};\n", note(*number, name))).collect()
}

struct Upgraded {
    store: Arc<dyn JobStore>,
    ours: NamespaceId,
    ground: Ground,
    // Last: the place must outlive the store.
    backend: Box<dyn Backend>,
}

impl Upgraded {
    async fn from<B: Backend + 'static>(script: &str) -> Upgraded {
        let ground = Ground::new(3);
        ground.clock.advance(STOPPED);
        let backend = B::on(&ground);
        backend.run(script);
        let store = backend.open().await;
        let ours = store.namespace("default").await.unwrap();
        Upgraded { store, ours, ground, backend: Box::new(backend) }
    }

    async fn queue(&self, name: &str) -> Arc<Queue> {
        self.store.queue(self.ours, name).await.unwrap().expect("it was there before").0
    }

    /// The job with this payload.
    async fn job(&self, word: &str) -> Job {
        let payload = format!("[\"{word}\"]");
        let jobs = all_jobs(&*self.store, every_job()).await;
        let found = jobs.into_iter().find(|found| *found.job.spec.payload == payload);
        found.unwrap_or_else(|| panic!("the job {word} is lost")).job
    }

    async fn apply(&self, job: &Job, command: Command) -> Status {
        let order = JobCommand { id: job.id, reach: Reach::Namespace(self.ours), command };
        self.store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap().status
    }

    async fn ack(&self, job: &Job) -> Status {
        let outcome = Outcome::Ack { result: None };
        self.apply(job, Command::Report { lease: None, outcome, evidence: Evidence::default() }).await
    }

    async fn claim(&self, queue: &str) -> Vec<Job> {
        let (namespace, queue) = (self.ours, queue.into());
        let want = ClaimRequest { namespace, queue, limit: 9, phase: Phase::Leased, visibility: None, worker: None };
        self.store.claim(want).await.unwrap().unwrap().jobs
    }
}

async fn check<B: Backend + 'static>(script: &str) {
    let mut upgraded = Upgraded::from::<B>(script).await;
    check_jobs_and_queues(&upgraded).await;
    check_events_and_artifacts(&upgraded).await;
    check_that_it_goes_on(&upgraded).await;

    assert!(upgraded.backend.verify().await, "what the store knows is not what its tables say");
    assert_eq!(upgraded.store.damage().list(), Vec::<String>::new());
    upgraded.store.close().await;
    upgraded.store = upgraded.backend.open().await;
    assert_eq!(upgraded.queue("mail").await.secrets.as_deref(), Some(&b"sealed again"[..]));
    assert!(upgraded.backend.verify().await);
    upgraded.store.close().await;
}

async fn check_jobs_and_queues(upgraded: &Upgraded) {
    let until = upgraded.ground.clock.now().plus(10 * SECOND);
    assert_eq!(upgraded.queue("held").await.hold, Some(Hold::new(until, HoldCause::Backpressure)));
    assert_eq!(upgraded.queue("mail").await.secrets.as_deref(), Some(&b"sealed"[..]));
    for (word, status) in [
        ("dead", Status::Failed),
        ("done", Status::Succeeded),
        ("running", Status::Running),
        ("waiting", Status::Queued),
        ("later", Status::Pending),
        ("retried", Status::Pending),
        ("delivering", Status::Running),
        ("deferred", Status::Pending),
        ("behind", Status::Queued),
    ] {
        let job = upgraded.job(word).await;
        assert_eq!(job.status(), status, "{word}");
        let events = upgraded.store.events(&Reach::Everything, job.id, 0, 99).await.unwrap().unwrap();
        assert_eq!(events.len() as u64, job.events, "the log of {word}");
    }
    let done = upgraded.job("done").await;
    assert_eq!((done.replays, done.attempt), (1, 1));
    assert_eq!(
        upgraded.store.result(&Reach::Everything, done.id).await.unwrap().map(|inline| inline.body),
        Some("{\"ok\":true}".into())
    );
    assert_eq!(upgraded.store.keys().await.unwrap().len(), 1);
    let delivering = upgraded.job("delivering").await.id;
    let expected = if upgraded.backend.is_shared() { vec![] } else { vec![delivering] };
    assert_eq!(upgraded.store.interrupted().await.unwrap(), expected);
}

async fn check_events_and_artifacts(upgraded: &Upgraded) {
    let list = ListInboundEvents { namespace: upgraded.ours, source: None, kind: None, before: None, limit: 9 };
    let page = upgraded.store.inbound_events(list).await.unwrap();
    let event = page.inbound_events.first().expect("the event is listed");
    let event = upgraded.store.inbound_event(upgraded.ours, event.id).await.unwrap().expect("the event is there");
    assert_eq!((&*event.source, &*event.kind, &*event.body), ("shop", "order.paid", "{\"order\":7}"));

    let running = upgraded.job("running").await;
    let artifacts = upgraded.store.artifacts(&Reach::Everything, running.id).await.unwrap().expect("the job is there");
    let checkpoint = artifacts.checkpoint.expect("the checkpoint is there");
    assert_eq!((checkpoint.schema_version, checkpoint.replays, checkpoint.attempt), (2, 0, 1));
    assert_eq!(artifacts.sections, [Box::<str>::from("one")]);
    let objects = upgraded.store.objects(&Reach::Everything, running.id).await.unwrap().expect("the job is there");
    assert_eq!(objects.len(), 1, "an upload was announced");
    assert!(!objects[0].attached);
}

async fn check_that_it_goes_on(upgraded: &Upgraded) {
    let operation = upgraded.store.open_operations().await.unwrap().pop().expect("a replay was under way");
    let done = upgraded.store.advance_operation(operation.id, 9).await.unwrap().unwrap();
    assert_eq!((done.status, done.processed), (OperationStatus::Done, 1));
    assert_eq!(upgraded.job("dead").await.replays, 1);

    assert_eq!(upgraded.ack(&upgraded.job("running").await).await, Status::Succeeded);
    assert!(upgraded.claim("held").await.is_empty());
    upgraded.ground.clock.advance(10 * SECOND);
    assert_eq!(upgraded.claim("held").await.len(), 1, "the probe");

    let claimed = upgraded.claim("mail").await;
    let waiting = claimed.iter().find(|job| *job.spec.payload == *"[\"waiting\"]").expect("it is handed out");
    assert_eq!(upgraded.ack(waiting).await, Status::Succeeded);
    let (_, counts) = upgraded.store.queue(upgraded.ours, CALLBACKS).await.unwrap().expect("it was made");
    assert_eq!(counts.get(Status::Queued), 1);

    let queue = upgraded.queue("mail").await;
    let draft = QueueDraft { settings: queue.settings.clone(), secrets: Some(Arc::from(&b"sealed again"[..])) };
    let expect = ExpectedVersion::Version(queue.version);
    let saved = upgraded.store.save_queue(upgraded.ours, "mail", draft, expect).await.unwrap().unwrap();
    assert_eq!(saved.queue.version, queue.version + 1);
}

#[tokio::test]
async fn a_store_of_every_schema_goes_on_in_sqlite() {
    for (number, ..) in sqlite::MIGRATIONS {
        check::<Sqlite>(&sqlite_at(*number).await).await;
    }
}

#[tokio::test]
async fn a_store_of_every_schema_goes_on_in_postgres() {
    for (number, ..) in postgres::MIGRATIONS {
        check::<Postgres>(&postgres_at(*number).await).await;
    }
}
