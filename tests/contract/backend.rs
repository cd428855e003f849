//! The engines under test. A backend is a place that a store is opened in again and again; what it remembers stays.

use std::sync::Arc;

use async_trait::async_trait;
use outlast_api::callback;
use outlast_core::Spec;
use outlast_store::JobStore;
use outlast_store::outbox::EndedJob;
use outlast_store::postgres::{self, PostgresStore};
use outlast_store::sqlite::{Durability, OpenError, Options, SqliteStore};
use outlast_tests::model::{ModelDisk, Rules};
use outlast_tests::ports::{SeededEntropy, VirtualClock};
use outlast_tests::postgres::Database;
use outlast_tests::violation;
use tempfile::TempDir;

/// Controlled by the test: time, randomness, and the one visible setting of a store.
#[derive(Clone)]
pub struct Ground {
    pub clock: VirtualClock,
    pub entropy: SeededEntropy,
    pub waiting_max: u64,
}

impl Ground {
    pub fn new(seed: u64) -> Ground {
        Ground { clock: VirtualClock::default(), entropy: SeededEntropy::new(seed), waiting_max: 1000 }
    }
}

/// The tag of a job whose callback has an idempotency key, which is the tag's value.
pub const TOLD_AS: &str = "told-as";

/// Composes notices as the service does, some of them with a key.
fn compose(ended: &EndedJob<'_>) -> Spec {
    let told_as = ended.job.spec.tags.iter().find(|(name, _)| **name == *TOLD_AS);
    Spec { idempotency_key: told_as.map(|(_, key)| key.clone()), ..callback::compose(ended) }
}

#[async_trait]
pub trait Backend: Send + Sync {
    /// How many random sequences DIFF runs on it in `make test`.
    fn sequences() -> usize
    where
        Self: Sized,
    {
        320
    }

    fn on(ground: &Ground) -> Self
    where
        Self: Sized;

    /// Opens the store. The one opened before must have been closed.
    async fn open(&self) -> Arc<dyn JobStore>;

    /// May several nodes have it open at once?
    fn is_shared(&self) -> bool {
        false
    }

    /// Is what the open store holds in memory what is on its disk? Engines that hold nothing have nothing to say.
    async fn verify(&self) -> bool {
        true
    }

    /// Runs statements on a place that no store has open, as an older program would have.
    fn run(&self, statements: &str);

    /// All rows as statements that insert them. The store must be closed.
    fn rows(&self) -> String {
        panic!("there are no rows here");
    }

    /// Makes the row of the oldest job unreadable and tells how many rows it changed. The store must be closed.
    fn damage_first_row(&self) -> usize {
        0
    }

    /// Gives the oldest job attempt number 0, which no job has, in a row that is sound otherwise. The store must be
    /// closed.
    fn plant_violation(&self) {
        panic!("nothing can be planted here");
    }

    /// How many jobs the newest transaction wrote, where the engine can tell.
    fn written_by_the_newest_transaction(&self) -> Option<usize> {
        None
    }
}

pub struct Model(ModelDisk);

impl Model {
    pub fn with_rules(rules: Rules, ground: &Ground) -> Model {
        let rules = Rules { compose, ..rules };
        let disk = ModelDisk::new(rules, Arc::new(ground.clock.clone()), Box::new(ground.entropy.clone()));
        disk.set_waiting_max(ground.waiting_max);
        Model(disk)
    }

    pub fn shared_if(self, is_shared: bool) -> Model {
        Model(if is_shared { self.0.shared() } else { self.0 })
    }
}

#[async_trait]
impl Backend for Model {
    fn on(ground: &Ground) -> Model {
        Model::with_rules(Rules::default(), ground)
    }

    async fn open(&self) -> Arc<dyn JobStore> {
        Arc::new(self.0.open())
    }

    fn run(&self, _: &str) {
        panic!("the model has no tables");
    }
}

pub struct Sqlite {
    ground: Ground,
    directory: TempDir,
    opened: tokio::sync::Mutex<Option<Arc<SqliteStore>>>,
}

impl Sqlite {
    /// Another thread may be starting a program at this very moment: until it runs, the child has our lock as well.
    async fn open_file(&self) -> SqliteStore {
        loop {
            match SqliteStore::open(self.options()) {
                Err(OpenError::Locked(_)) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                opened => return opened.expect("the store opens"),
            }
        }
    }

    /// A stranger on the file of the store.
    pub fn connect(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.directory.path().join("outlast.db")).expect("the file opens")
    }

    fn options(&self) -> Options {
        let (clock, entropy) = (Arc::new(self.ground.clock.clone()), Box::new(self.ground.entropy.clone()));
        let mut options = Options::new(self.directory.path(), clock, entropy, compose);
        options.namespace_waiting_max = self.ground.waiting_max;
        options.reserve_bytes = 4096;
        // The crash rigs prove durability; here each sync would only cost time.
        options.durability = Durability::Normal;
        options
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn on(ground: &Ground) -> Sqlite {
        let directory = TempDir::new().expect("a directory for the test");
        Sqlite { ground: ground.clone(), directory, opened: tokio::sync::Mutex::new(None) }
    }

    async fn open(&self) -> Arc<dyn JobStore> {
        let store = Arc::new(self.open_file().await);
        *self.opened.lock().await = Some(Arc::clone(&store));
        store
    }

    async fn verify(&self) -> bool {
        let store = self.opened.lock().await.clone().expect("a store is open");
        store.verify().await.expect("the index can be read")
    }

    fn run(&self, statements: &str) {
        self.connect().execute_batch(statements).expect("the statements are sound");
    }

    fn rows(&self) -> String {
        let connection = self.connect();
        let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        let texts = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).expect("the statement is sound");
            let rows = statement.query_map([], |row| row.get(0)).expect("the table can be read");
            rows.map(|row| row.expect("the row can be read")).collect()
        };
        let mut statements = String::new();
        for table in texts(names) {
            let columns = texts(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"));
            let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
            for row in texts(&format!("SELECT {} FROM {table}", quoted.join(" || ', ' || "))) {
                statements += &format!("INSERT INTO {table} ({}) VALUES ({row});\n", columns.join(", "));
            }
        }
        statements
    }

    /// With a reason that does not exist.
    fn damage_first_row(&self) -> usize {
        let damage = "UPDATE job SET lease = x'00', last_how = 99, detail = 77 WHERE seq = (SELECT min(seq) FROM job)";
        self.connect().execute(damage, []).expect("the row is written")
    }

    fn plant_violation(&self) {
        violation::plant_in_sqlite(self.directory.path(), 1);
    }
}

pub struct Postgres {
    ground: Ground,
    database: Database,
    opened: tokio::sync::Mutex<Option<Arc<PostgresStore>>>,
}

#[async_trait]
impl Backend for Postgres {
    /// Each needs a database of its own, which takes longer than the sequence.
    fn sequences() -> usize {
        120
    }

    fn on(ground: &Ground) -> Postgres {
        let database = outlast_tests::postgres::Postgres::shared().database();
        // The fault tests prove durability; here each sync would only cost time.
        database.psql(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name));
        Postgres { ground: ground.clone(), database, opened: tokio::sync::Mutex::new(None) }
    }

    async fn open(&self) -> Arc<dyn JobStore> {
        let mut options = postgres::Options::new(&self.database.url, Box::new(self.ground.entropy.clone()), compose);
        options.clock = Some(Arc::new(self.ground.clock.clone()));
        options.namespace_waiting_max = self.ground.waiting_max;
        options.allow_unsafe = true;
        let store = Arc::new(PostgresStore::open(options).await.expect("the store opens"));
        *self.opened.lock().await = Some(Arc::clone(&store));
        store
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn verify(&self) -> bool {
        let store = self.opened.lock().await.clone().expect("a store is open");
        store.verify().await.expect("the tables can be read")
    }

    fn run(&self, statements: &str) {
        self.database.psql(statements);
    }

    /// Without the list of migrations, and with the position of each row counter.
    fn rows(&self) -> String {
        let dump = self.database.dump();
        let is_row = |line: &&str| line.starts_with("INSERT INTO ") || line.starts_with("SELECT pg_catalog.setval(");
        let rows = dump.lines().filter(is_row).filter(|line| !line.contains("outlast_schema"));
        rows.fold(String::new(), |text, line| text + line + "\n")
    }

    /// With a state of no bytes.
    fn damage_first_row(&self) -> usize {
        let damaged = self.database.psql(
            "WITH damaged AS (UPDATE job SET state = '' WHERE seq = (SELECT min(seq) FROM job) RETURNING seq)
             SELECT count(*) FROM damaged",
        );
        damaged.trim().parse().expect("a count")
    }

    fn plant_violation(&self) {
        violation::plant_in_postgres(&self.database, 1);
    }

    fn written_by_the_newest_transaction(&self) -> Option<usize> {
        let written = self
            .database
            .psql("SELECT count(*) FROM job WHERE xmin::text::bigint = (SELECT max(xmin::text::bigint) FROM job)");
        Some(written.trim().parse().expect("a count"))
    }
}
