//! Stores that older programs have left behind: opened by this one they are brought up to date, and everything in them
//! goes on. The rows in `upgrade/0001…` were written by the program that knew the first migration only, those in
//! `upgrade/0005…` by one that knew objects and events, and neither checksums nor skipped jobs.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::{Cause, Hold};
use outlast_core::pace::Pace;
use outlast_core::state::Phase;
use outlast_core::system_queue::CALLBACKS;
use outlast_core::{Clock, Command, Evidence, Job, NamespaceId, Outcome, Queue, Status};
use outlast_store::arrivals::ListArrivals;
use outlast_store::jobs::{Claim, Order, Reach};
use outlast_store::operations::OperationStatus;
use outlast_store::queues::{Expect, QueueDraft};
use outlast_store::{JobStore, postgres, sqlite};

use crate::backend::{Backend, Ground, Postgres, Sqlite};
use crate::dump::{all_jobs, every_job};

const SECOND: Duration = Duration::from_secs(1);
/// When the older program was stopped, by the clock that it and this one start with.
const STOPPED: Duration = SECOND;

fn sqlite_at_one() -> String {
    let (_, _, foundation) = sqlite::MIGRATIONS[0];
    format!("{foundation}; PRAGMA user_version = 1; {}", include_str!("upgrade/0001_sqlite.sql"))
}

/// The list of migrations is not made by one of them.
fn postgres_at_one() -> String {
    let (_, _, foundation) = postgres::MIGRATIONS[0];
    let list = "
        CREATE TABLE outlast_schema (
            number     integer PRIMARY KEY,
            name       text NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );
        INSERT INTO outlast_schema (number, name) VALUES (1, 'foundation')";
    format!("{foundation}; {list}; {}", include_str!("upgrade/0001_postgres.sql"))
}

/// The rows of both older programs in a store that this many migrations have brought up to date.
fn sqlite_at(number: u32) -> String {
    let mut script = sqlite_at_one();
    for (number, _, text) in sqlite::MIGRATIONS.iter().filter(|(other, ..)| (2..=number).contains(other)) {
        script += &format!("; {text}; PRAGMA user_version = {number}");
    }
    script + ";" + include_str!("upgrade/0005_sqlite.sql")
}

fn postgres_at(number: u32) -> String {
    let mut script = postgres_at_one();
    for (number, name, text) in postgres::MIGRATIONS.iter().filter(|(other, ..)| (2..=number).contains(other)) {
        script += &format!("; {text}; INSERT INTO outlast_schema (number, name) VALUES ({number}, '{name}')");
    }
    script + ";" + include_str!("upgrade/0005_postgres.sql")
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
        let order = Order { id: job.id, reach: Reach::Namespace(self.ours), command };
        self.store.apply(vec![order]).await.unwrap().pop().unwrap().unwrap().status
    }

    async fn ack(&self, job: &Job) -> Status {
        let outcome = Outcome::Ack { result: None };
        self.apply(job, Command::Report { lease: None, outcome, evidence: Evidence::default() }).await
    }

    async fn claim(&self, queue: &str) -> Vec<Job> {
        let (namespace, queue) = (self.ours, queue.into());
        let want = Claim { namespace, queue, limit: 9, phase: Phase::Leased, visibility: None, worker: None };
        self.store.claim(want).await.unwrap().unwrap().jobs
    }
}

async fn check<B: Backend + 'static>(script: &str) {
    let mut upgraded = Upgraded::from::<B>(script).await;
    check_what_was_there(&upgraded).await;
    check_that_it_goes_on(&upgraded).await;

    assert!(upgraded.backend.verify().await, "what the store knows is not what its tables say");
    upgraded.store.close().await;
    upgraded.store = upgraded.backend.open().await;
    assert_eq!(upgraded.queue("mail").await.secrets.as_deref(), Some(&b"sealed"[..]));
    assert!(upgraded.backend.verify().await);
    upgraded.store.close().await;
}

async fn check_what_was_there(upgraded: &Upgraded) {
    let until = upgraded.ground.clock.now().plus(10 * SECOND);
    assert_eq!(upgraded.queue("held").await.hold, Some(Hold::new(until, Cause::Backpressure)));
    for name in ["mail", "hook", "held"] {
        let queue = upgraded.queue(name).await;
        assert_eq!((queue.pace, queue.secrets.clone(), queue.version), (Pace::default(), None, 1));
    }
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
    let done = upgraded.job("done").await.id;
    assert_eq!(
        upgraded.store.result(&Reach::Everything, done).await.unwrap().map(|inline| inline.body),
        Some("{\"ok\":true}".into())
    );
    assert_eq!(upgraded.store.keys().await.unwrap().len(), 1);
    let delivering = upgraded.job("delivering").await.id;
    let expected = if upgraded.backend.is_shared() { vec![] } else { vec![delivering] };
    assert_eq!(upgraded.store.interrupted().await.unwrap(), expected);
}

/// The fields of the older version, and the new ones.
async fn check_that_it_goes_on(upgraded: &Upgraded) {
    let operation = upgraded.store.open_operations().await.unwrap().pop().expect("a replay was under way");
    let done = upgraded.store.advance_operation(operation.id, 9).await.unwrap().unwrap();
    assert_eq!((done.status, done.processed), (OperationStatus::Done, 1));
    assert_eq!(upgraded.job("dead").await.replays, 1);

    assert_eq!(upgraded.ack(&upgraded.job("running").await).await, Status::Succeeded);
    assert!(upgraded.claim("held").await.is_empty());
    upgraded.ground.clock.advance(10 * SECOND);
    assert_eq!(upgraded.claim("held").await.len(), 1, "the probe");

    // This one has a callback URL from a version without callbacks.
    let claimed = upgraded.claim("mail").await;
    let waiting = claimed.iter().find(|job| *job.spec.payload == *"[\"waiting\"]").expect("it is handed out");
    assert_eq!(upgraded.ack(waiting).await, Status::Succeeded);
    let (_, counts) = upgraded.store.queue(upgraded.ours, CALLBACKS).await.unwrap().expect("it was made");
    assert_eq!(counts.get(Status::Queued), 1);

    let settings = upgraded.queue("mail").await.settings.clone();
    let draft = QueueDraft { settings, secrets: Some(Arc::from(&b"sealed"[..])) };
    let saved = upgraded.store.save_queue(upgraded.ours, "mail", draft, Expect::Version(1)).await.unwrap().unwrap();
    assert_eq!(saved.queue.version, 2);
}

/// An event, an object and a checkpoint, none of which has a checksum.
async fn check_what_has_no_checksum<B: Backend + 'static>(script: &str) {
    let upgraded = Upgraded::from::<B>(script).await;
    let list = ListArrivals { namespace: upgraded.ours, source: None, kind: None, before: None, limit: 9 };
    let page = upgraded.store.arrivals(list).await.unwrap();
    let event = page.arrivals.first().expect("the event is listed");
    let event = upgraded.store.arrival(upgraded.ours, event.id).await.unwrap().expect("the event is there");
    assert_eq!((&*event.source, &*event.kind, &*event.body), ("shop", "order.paid", "{\"order\":7}"));

    let running = upgraded.job("running").await;
    let kept = upgraded.store.kept(&Reach::Everything, running.id).await.unwrap().expect("the job is there");
    let checkpoint = kept.checkpoint.expect("the checkpoint is there");
    assert_eq!(checkpoint.schema_version, 2);

    upgraded.ground.clock.advance(Duration::from_secs(3600));
    assert_eq!(upgraded.store.damage().list(), Vec::<String>::new());
    assert!(upgraded.backend.verify().await);
    upgraded.store.close().await;
}

#[tokio::test]
async fn a_store_of_any_later_migration_goes_on_in_sqlite() {
    for number in 5..8 {
        check::<Sqlite>(&sqlite_at(number)).await;
        check_what_has_no_checksum::<Sqlite>(&sqlite_at(number)).await;
    }
}

#[tokio::test]
async fn a_store_of_any_later_migration_goes_on_in_postgres() {
    for number in 5..8 {
        check::<Postgres>(&postgres_at(number)).await;
        check_what_has_no_checksum::<Postgres>(&postgres_at(number)).await;
    }
}

#[tokio::test]
async fn a_store_of_the_first_migration_goes_on_in_sqlite() {
    check::<Sqlite>(&sqlite_at_one()).await;
}

#[tokio::test]
async fn a_store_of_the_first_migration_goes_on_in_postgres() {
    check::<Postgres>(&postgres_at_one()).await;
}
