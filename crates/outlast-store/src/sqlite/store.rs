//! The store as others see it: opens the file, starts the writer, and turns each verb into a call for the writer or a
//! reader.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::arrival::{Arrival, ArrivalId};
use outlast_core::checkpoint::Section;
use outlast_core::{Clock, Command, Entropy, Event, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{oneshot, watch};

use super::arrivals::Ready;
use super::clock::StoreClock;
use super::directory::{database_path, last_written, lock};
use super::faults::Fault;
use super::file_watch::FileWatch;
use super::inspect::{check_at_start, check_wholly};
use super::long_text::Packed;
use super::migrate::migrate;
use super::opening::{Inspected, begin_anew, inspect, settle};
use super::options::{Durability, OpenError, Options};
use super::queues::at_once;
use super::read::Readers;
use super::registry::Shared;
use super::reserve::Reserve;
use super::salvage::salvage;
use super::sealed;
use super::state_file::StateFile;
use super::wal_index::WalIndex;
use super::wal_tracker::WalTracker;
use super::writer::{Call, Core, Kind, Outside, Setup, Task, Writer};
use crate::alarms::Due;
use crate::arrivals::{ArrivalPage, Ingested, ListArrivals, NewArrival};
use crate::checksum::Table;
use crate::damage::Damage;
use crate::dead_letters::{DeadLetterPage, ListDeadLetters};
use crate::error::Error;
use crate::histogram::{COMMIT_BOUNDS, Histogram};
use crate::ids::Ids;
use crate::job_detail::JobDetail;
use crate::jobs::{
    Applied, Claim, Claimed, Declined, Found, JobPage, JobStore, ListJobs, NewJob, Order, Published, Reach,
};
use crate::kept::{Doomed, Inline, Inspection, Kept, Stored};
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation};
use crate::operations::{self, NewOperation, Operation, OperationId};
use crate::queues::{self, Counts, DeleteRefusal, Expect, QueueDraft, SaveRefusal, Saved};
use crate::transition::apply;

const STATEMENTS_MAX: usize = 64;
/// How long the writer waits for readers at a checkpoint, and for a stranger that holds the write lock.
const BUSY_MAX: Duration = Duration::from_millis(200);

pub struct SqliteStore {
    calls: Mutex<Option<SyncSender<Box<dyn Call>>>>,
    readers: Arc<Readers>,
    failed: watch::Receiver<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    ids: Ids,
    damage: Damage,
    commit_times: Arc<Histogram>,
    /// Before this start.
    away: Option<Outage>,
    clock: Arc<StoreClock>,
    files: FileWatch,
    /// Closed after all connections: closing it drops SQLite's locks.
    _wal_index: Arc<WalIndex>,
}

impl SqliteStore {
    /// Takes the directory's lock, looks at its files, migrates, reads the indexes into memory and starts the writer.
    pub fn open(options: Options) -> Result<SqliteStore, OpenError> {
        let lock = lock(&options.directory)?;
        let last_written = last_written(&options.directory);
        let Inspected { mut state, last_commit } = inspect(&options)?;
        let damage = Damage::default();
        let failed = |source| OpenError::Directory { directory: options.directory.clone(), source };
        if options.accepts_loss {
            state = go_on_with_the_rest(&options, state, &damage)?;
        }
        let connection = open_database(&options)?;
        check_at_start(&connection, &damage)?;
        let index = Arc::new(WalIndex::open(&options.directory).map_err(failed)?);
        let mut tracker = WalTracker::new(Arc::clone(&index), state, options.durability != Durability::Normal);
        settle(&connection, &mut tracker, &options.directory)?;
        let files = FileWatch::of(&options.directory).map_err(failed)?;
        let clock = Arc::new(StoreClock::start(options.clock, last_commit));
        let mut entropy = options.entropy;
        let ids = Ids::new(secret(&connection, entropy.as_mut())?);
        let shared = Shared::default();
        let (sender, calls) = sync_channel(options.waiting_writes_max);
        let (failed_sender, failed) = watch::channel(None);
        let commit_times = Arc::new(Histogram::new(COMMIT_BOUNDS));
        let now = clock.now();
        let setup = Setup {
            ids,
            entropy,
            compose: options.compose,
            shared: shared.clone(),
            now,
            job_cache_bytes: options.job_cache_bytes,
            namespace_waiting_max: options.namespace_waiting_max,
            expected_seq: (options.durability == Durability::Full).then(|| tracker.record().next_seq),
            accepts_loss: options.accepts_loss,
            damage: damage.clone(),
        };
        let outside = Outside {
            clock: Arc::clone(&clock) as _,
            tracker,
            calls,
            durability: options.durability,
            reserve: Reserve::open(&options.directory, options.reserve_bytes, now),
            failed: failed_sender,
            commit_times: Arc::clone(&commit_times),
            _lock: lock,
        };
        let (ready_sender, ready) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("outlast-writer".to_owned())
            .spawn(move || write_until_closed(&connection, setup, outside, &ready_sender))
            .map_err(|source| OpenError::Directory { directory: options.directory.clone(), source })?;
        ready.recv().unwrap_or_else(|_| Err(OpenError::Corrupt("the writer ended while it started".to_owned())))?;
        Ok(SqliteStore {
            calls: Mutex::new(Some(sender)),
            readers: Arc::new(Readers::new(&options.directory, ids, shared, damage.clone())),
            failed,
            thread: Mutex::new(Some(thread)),
            ids,
            damage,
            commit_times,
            away: last_commit.or(last_written).filter(|from| *from < now).map(|from| Outage { from, to: now }),
            clock,
            files,
            _wal_index: index,
        })
    }

    /// The time that all deadlines in this store go by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as _
    }

    /// Waits until the writer has failed or a file was taken away, and says why. Never returns while the store is sound.
    /// Cancel-safe.
    pub async fn failed(&self) -> String {
        tokio::select! {
            why = self.writer_failed() => why,
            why = self.files.gone() => why,
        }
    }

    async fn writer_failed(&self) -> String {
        let mut failed = self.failed.clone();
        loop {
            if let Some(why) = failed.borrow_and_update().clone() {
                return why;
            }
            if failed.changed().await.is_err() {
                return "the writer ended unexpectedly".to_owned();
            }
        }
    }

    /// Does the index in memory say what the rows say? For tests and `doctor`; reads every row.
    pub async fn verify(&self) -> Result<bool, Error> {
        self.call(Kind::Read, |core| {
            Ok(core.scan()?.index.equals(&core.index)
                && core.scan_young_keys()? == core.young_keys
                && core.hints.hold(core.connection)?)
        })
        .await
    }

    async fn call<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnMut(&mut Core<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.send(kind, work, |_, _| {})?.await.map_err(|_| Error::Indeterminate)?
    }

    fn send<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl FnMut(&mut Core<'_>) -> Result<T, Fault> + Send + 'static,
        undelivered: fn(T, &mut Core<'_>),
    ) -> Result<oneshot::Receiver<Result<T, Error>>, Error> {
        let (reply, answer) = oneshot::channel();
        let task = Task { kind, work, value: None, reply, undelivered };
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = calls.as_ref().ok_or(Error::Stopped)?;
        match sender.try_send(Box::new(task)) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(Error::Overloaded),
            Err(TrySendError::Disconnected(_)) => Err(Error::Stopped),
        }
    }
}

/// The writer's thread. It owns the connection, so that the statements it uses all the time can stay prepared.
fn write_until_closed(
    connection: &Connection,
    setup: Setup,
    outside: Outside,
    ready: &SyncSender<Result<(), OpenError>>,
) {
    match Core::start(connection, setup) {
        Ok(core) => {
            let _ = ready.send(Ok(()));
            Writer { core, outside }.run();
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

/// A wait for a hand-out. If it is dropped with the answer already inside, the jobs go back at once.
struct HandOut<'a> {
    store: &'a SqliteStore,
    answer: oneshot::Receiver<Result<Option<Claimed>, Error>>,
}

impl Drop for HandOut<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(Some(claimed))) = self.answer.try_recv() {
            let unwanted = Some(claimed);
            // Refused only when the store has stopped or is overloaded; then the leases run out by themselves.
            let _ = self.store.send(
                Kind::Write,
                move |core| {
                    core.orphan(unwanted.clone());
                    core.release_orphans()
                },
                |(), _| {},
            );
        }
    }
}

/// Where the database is damaged, it is replaced by one that has what can be read of it.
fn go_on_with_the_rest(options: &Options, state: StateFile, damage: &Damage) -> Result<StateFile, OpenError> {
    let Err(OpenError::Corrupt(what)) = open_database(options).and_then(|source| check_wholly(&source)) else {
        return Ok(state);
    };
    let source = open_damaged(options).map_err(OpenError::beyond_help)?;
    let kept = salvage(&options.directory, source, state.record.incarnation, damage)?;
    tracing::error!(what, kept = %kept.join(", "), "going on with what can be read, as --accept-loss asks");
    let failed = |source| OpenError::Directory { directory: options.directory.clone(), source };
    begin_anew(&options.directory, state.record).map_err(failed)
}

/// To read what is there. With a writable schema, which nobody writes, the library takes a file that was cut as it is, and
/// leaves out what it cannot understand of the schema.
fn open_damaged(options: &Options) -> Result<Connection, OpenError> {
    let connection = Connection::open(database_path(&options.directory))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "writable_schema", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn open_database(options: &Options) -> Result<Connection, OpenError> {
    let mut connection = Connection::open(database_path(&options.directory))?;
    prepare(&connection, options)?;
    migrate(&mut connection)?;
    Ok(connection)
}

fn prepare(connection: &Connection, options: &Options) -> Result<(), OpenError> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    keep_plans(connection)?;
    // Closing after a failure must leave the log as it is: the state file still speaks of it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "page_size", 4096)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    let synchronous = if options.durability == Durability::Normal { "NORMAL" } else { "FULL" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -i64::try_from(options.page_cache_bytes / 1024).unwrap_or(32_768))?;
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(())
}

/// A plan stays whatever values are bound. Without this the library compiles some statements anew for every value, in the
/// hope of a better plan: a sixth of the processor time of a status poll.
pub(super) fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

const READ_SECRET: &str = "SELECT value FROM meta WHERE name = 'secret'";
const WRITE_SECRET: &str = "INSERT INTO meta (name, value, checksum) VALUES (?1, ?2, ?3)";

/// The number that permutes this store's ids; made once.
fn secret(connection: &Connection, entropy: &mut dyn Entropy) -> Result<i64, OpenError> {
    if let Some(secret) = connection.query_row(READ_SECRET, [], |row| row.get(0)).optional()? {
        return Ok(secret);
    }
    let secret = entropy.next_u64().cast_signed();
    sealed::execute(&mut connection.prepare(WRITE_SECRET)?, Table::Meta, params!["secret", secret])?;
    Ok(secret)
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        // What can be done beforehand is not left to the writer: all others wait for it.
        let payloads: Vec<Packed> = jobs.iter().map(|new| Packed::new(&new.spec.payload)).collect();
        let jobs: Vec<(NewJob, Packed)> = jobs.into_iter().zip(payloads).collect();
        self.call(Kind::Grow, move |core| core.publish(&jobs)).await
    }

    async fn ingest(&self, arrivals: Vec<NewArrival>) -> Result<Vec<Ingested>, Error> {
        let ids = self.ids;
        let arrivals = arrivals.into_iter().map(|new| Ready::new(new, ids)).collect::<Result<Vec<_>, _>>()?;
        self.call(Kind::Grow, move |core| core.ingest(&arrivals)).await?
    }

    async fn arrival(&self, namespace: NamespaceId, id: ArrivalId) -> Result<Option<Arrival>, Error> {
        self.readers.run(move |reader| reader.arrival(namespace, id)).await
    }

    async fn arrivals(&self, list: ListArrivals) -> Result<ArrivalPage, Error> {
        self.readers.run(move |reader| reader.arrivals(&list)).await
    }

    async fn prune_arrivals(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        self.call(Kind::Write, move |core| core.prune_arrivals(before, limit)).await
    }

    async fn claim(&self, want: Claim) -> Result<Option<Claimed>, Error> {
        let answer = self.send(Kind::HandOut, move |core| core.claim(&want), |claimed, core| core.orphan(claimed))?;
        let mut hand_out = HandOut { store: self, answer };
        (&mut hand_out.answer).await.map_err(|_| Error::Indeterminate)?
    }

    async fn apply(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let kind = match &orders {
            orders if orders.iter().any(|order| order.command.grows()) => Kind::Grow,
            orders if orders.iter().all(|order| matches!(order.command, Command::Heartbeat { .. })) => Kind::Patient,
            _ => Kind::Write,
        };
        self.call(kind, move |core| orders.iter().map(|order| apply(core, order)).collect()).await
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        self.call(Kind::Read, move |core| core.due(limit)).await
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<Found>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.job(&reach, id)).await
    }

    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.job_detail(&reach, id)).await
    }

    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error> {
        self.readers.run(move |reader| reader.jobs(&list)).await
    }

    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error> {
        self.readers.run(move |reader| reader.dead_letters(&list)).await
    }

    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.events(&reach, id, after, limit)).await
    }

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<Inline>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.result(&reach, id)).await
    }

    async fn kept(&self, reach: &Reach, id: JobId) -> Result<Option<Kept>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.kept(&reach, id)).await
    }

    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        let (reach, after) = (reach.clone(), after.map(str::to_owned));
        self.readers.run(move |reader| reader.sections(&reach, id, after.as_deref(), limit)).await
    }

    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        let (reach, name) = (reach.clone(), name.to_owned());
        self.readers.run(move |reader| reader.section(&reach, id, &name)).await
    }

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<Stored>>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.objects(&reach, id)).await
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        self.call(Kind::Write, move |core| core.count_download(id)).await
    }

    async fn record_inspection(&self, key: &ObjectKey, found: Inspection) -> Result<(), Error> {
        let key = *key;
        self.call(Kind::Write, move |core| core.record_inspection(&key, &found)).await
    }

    async fn doomed(&self, limit: usize) -> Result<Doomed, Error> {
        self.call(Kind::Read, move |core| core.doomed(limit)).await
    }

    async fn postpone_objects(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        let keys = keys.to_vec();
        self.call(Kind::Write, move |core| core.postpone_objects(&keys, until)).await
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        let keys = keys.to_vec();
        self.call(Kind::Write, move |core| core.forget_objects(&keys)).await
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: Expect,
    ) -> Result<Result<Saved, SaveRefusal>, Error> {
        let name = name.to_owned();
        self.call(Kind::Grow, move |core| at_once(queues::save(core, namespace, &name, &draft, expect))).await
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        let name = name.to_owned();
        self.call(Kind::Write, move |core| at_once(queues::set_paused(core, namespace, &name, paused))).await
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        let name = name.to_owned();
        self.call(Kind::Write, move |core| at_once(queues::delete(core, namespace, &name))).await
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, Counts)>, Error> {
        let name = name.to_owned();
        self.call(Kind::Read, move |core| Ok(core.queue(namespace, &name))).await
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        let after = after.map(str::to_owned);
        self.call(Kind::Read, move |core| Ok(core.queues(namespace, after.as_deref(), limit))).await
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        self.call(Kind::Read, |core| Ok(core.oldest_waiting())).await
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
        self.call(Kind::Read, |core| Ok(core.census())).await
    }

    /// Differs: nobody but this process looks, so only its start is told. What it was itself not awake for, it knows itself.
    async fn attend(&self) -> Result<Option<Outage>, Error> {
        Ok(self.away)
    }

    async fn interrupted(&self) -> Result<Vec<JobId>, Error> {
        self.call(Kind::Read, |core| core.interrupted()).await
    }

    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error> {
        let replaces = replaces.to_vec();
        self.call(Kind::Grow, move |core| core.sealing_key(key, &replaces)).await
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        let name = name.to_owned();
        self.call(Kind::Grow, move |core| core.namespace(&name)).await
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error> {
        self.call(Kind::Grow, move |core| core.add_key(&key)).await
    }

    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error> {
        self.call(Kind::Grow, move |core| core.add_first_key(&key)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        self.call(Kind::Read, |core| Ok(core.keys()?)).await
    }

    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error> {
        self.call(Kind::Write, move |core| core.revoke_key(namespace, id, force)).await
    }

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        self.call(Kind::Grow, move |core| at_once(operations::start(core, &operation))).await
    }

    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(Kind::Read, move |core| Ok(core.operation(id)?.filter(|operation| operation.namespace == namespace)))
            .await
    }

    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.call(Kind::Read, move |core| Ok(core.operations(namespace, limit)?)).await
    }

    async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        self.call(Kind::Read, |core| Ok(core.open_operations()?)).await
    }

    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(Kind::Write, move |core| at_once(operations::stop(core, namespace, id))).await
    }

    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error> {
        self.call(Kind::Write, move |core| at_once(operations::advance(core, id, limit))).await
    }

    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        let operation = operation.clone();
        self.call(Kind::Read, move |core| core.count_operation(&operation, limit)).await
    }

    fn commit_times(&self) -> Option<Arc<Histogram>> {
        Some(Arc::clone(&self.commit_times))
    }

    fn damage(&self) -> Damage {
        self.damage.clone()
    }

    async fn ping(&self) -> Result<(), Error> {
        self.call(Kind::Probe, |_| Ok(())).await
    }

    async fn close(&self) {
        drop(self.calls.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The writer drains what was sent before and then ends; joining must not block the runtime.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}
