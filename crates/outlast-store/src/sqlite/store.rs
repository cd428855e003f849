//! The store as others see it: opens the file, starts the writer, and turns each verb into a call for the writer or a
//! reader.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::{Clock, Command, Entropy, Event, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{oneshot, watch};

use super::clock::StoreClock;
use super::compressed_text::CompressedText;
use super::directory::{database_path, last_written, lock};
use super::faults::Fault;
use super::file_watch::FileWatch;
use super::inbound_events::Ready;
use super::inspect::{check_at_start, check_wholly};
use super::migrate::migrate;
use super::options::{Durability, OpenError, Options};
use super::queue_cache::CommittedQueues;
use super::queues::at_once;
use super::read::Readers;
use super::reserve::Reserve;
use super::row_checksums;
use super::salvage::salvage;
use super::startup::{Inspected, begin_anew, inspect, settle};
use super::state_file::StateFile;
use super::wal_index::WalIndex;
use super::wal_tracker::WalTracker;
use super::writer::{CallKind, GroupWriter, Task, WriteCall, WriterIo, WriterSetup, WriterState};
use crate::alarms::Due;
use crate::artifacts::{Artifacts, DueDeletions, InlineResult, ObjectInspection, StoredObject};
use crate::checksum::Table;
use crate::codec::job_id::JobIdCodec;
use crate::damage::Damage;
use crate::dead_letters::{DeadLetterPage, ListDeadLetters};
use crate::error::Error;
use crate::histogram::{COMMIT_BOUNDS, Histogram};
use crate::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent};
use crate::job_detail::JobDetail;
use crate::jobs::{
    Applied, ClaimRequest, Claimed, Declined, FoundJob, JobCommand, JobPage, JobStore, ListJobs, NewJob, Published,
    Reach,
};
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation};
use crate::operations::{self, NewOperation, Operation, OperationId};
use crate::queues::{self, DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};
use crate::transition::apply;

const STATEMENTS_MAX: usize = 64;
/// How long the writer waits for readers at a checkpoint, and for a stranger that holds the write lock.
const BUSY_MAX: Duration = Duration::from_millis(200);

pub struct SqliteStore {
    calls: Mutex<Option<SyncSender<Box<dyn WriteCall>>>>,
    readers: Arc<Readers>,
    failed: watch::Receiver<Option<String>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    ids: JobIdCodec,
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
        let ids = JobIdCodec::new(secret(&connection, entropy.as_mut())?);
        let shared = CommittedQueues::default();
        let (sender, calls) = sync_channel(options.waiting_writes_max);
        let (failed_sender, failed) = watch::channel(None);
        let commit_times = Arc::new(Histogram::new(COMMIT_BOUNDS));
        let now = clock.now();
        let setup = WriterSetup {
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
        let outside = WriterIo {
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
        self.call(CallKind::Read, |state| {
            Ok(state.scan()?.index.equals(&state.index)
                && state.scan_young_keys()? == state.memtable
                && state.key_bloom.hold(state.connection)?)
        })
        .await
    }

    async fn call<T: Send + 'static>(
        &self,
        kind: CallKind,
        work: impl FnMut(&mut WriterState<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        self.send(kind, work, |_, _| {})?.await.map_err(|_| Error::Indeterminate)?
    }

    fn send<T: Send + 'static>(
        &self,
        kind: CallKind,
        work: impl FnMut(&mut WriterState<'_>) -> Result<T, Fault> + Send + 'static,
        undelivered: fn(T, &mut WriterState<'_>),
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
    setup: WriterSetup,
    outside: WriterIo,
    ready: &SyncSender<Result<(), OpenError>>,
) {
    match WriterState::start(connection, setup) {
        Ok(state) => {
            let _ = ready.send(Ok(()));
            GroupWriter { state, outside }.run();
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

/// A wait for a hand-out. If it is dropped with the answer already inside, the jobs go back at once.
struct PendingHandout<'a> {
    store: &'a SqliteStore,
    answer: oneshot::Receiver<Result<Option<Claimed>, Error>>,
}

impl Drop for PendingHandout<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(Some(claimed))) = self.answer.try_recv() {
            let unwanted = Some(claimed);
            // Refused only when the store has stopped or is overloaded; then the leases run out.
            let _ = self.store.send(
                CallKind::Write,
                move |state| {
                    state.orphan(unwanted.clone());
                    state.release_orphans()
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

/// A read-only connection. With a writable schema, which is never written, the library accepts a file that was cut, and
/// leaves out the parts of the schema that it cannot understand.
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

/// Keeps a plan whatever values are bound. Without this the library compiles some statements again for every value, in
/// the hope of a better plan: a sixth of the processor time of a status poll.
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
    row_checksums::execute(&mut connection.prepare(WRITE_SECRET)?, Table::Meta, params!["secret", secret])?;
    Ok(secret)
}

#[async_trait]
impl JobStore for SqliteStore {
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error> {
        // Work that is possible before the writer's turn is done here: all other calls wait for the writer.
        let payloads: Vec<CompressedText> = jobs.iter().map(|new| CompressedText::new(&new.spec.payload)).collect();
        let jobs: Vec<(NewJob, CompressedText)> = jobs.into_iter().zip(payloads).collect();
        self.call(CallKind::Grow, move |state| state.publish(&jobs)).await
    }

    async fn ingest(&self, inbound_events: Vec<NewInboundEvent>) -> Result<Vec<Ingested>, Error> {
        let ids = self.ids;
        let inbound_events =
            inbound_events.into_iter().map(|new| Ready::new(new, ids)).collect::<Result<Vec<_>, _>>()?;
        self.call(CallKind::Grow, move |state| state.ingest(&inbound_events)).await?
    }

    async fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error> {
        self.readers.run(move |reader| reader.inbound_event(namespace, id)).await
    }

    async fn inbound_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error> {
        self.readers.run(move |reader| reader.inbound_events(&list)).await
    }

    async fn prune_inbound_events(&self, before: Timestamp, limit: usize) -> Result<usize, Error> {
        self.call(CallKind::Write, move |state| state.prune_inbound_events(before, limit)).await
    }

    async fn claim(&self, want: ClaimRequest) -> Result<Option<Claimed>, Error> {
        let answer =
            self.send(CallKind::HandOut, move |state| state.claim(&want), |claimed, state| state.orphan(claimed))?;
        let mut hand_out = PendingHandout { store: self, answer };
        (&mut hand_out.answer).await.map_err(|_| Error::Indeterminate)?
    }

    async fn apply(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let kind = match &orders {
            orders if orders.iter().any(|order| order.command.grows()) => CallKind::Grow,
            orders if orders.iter().all(|order| matches!(order.command, Command::Heartbeat { .. })) => {
                CallKind::Patient
            }
            _ => CallKind::Write,
        };
        self.call(kind, move |state| orders.iter().map(|order| apply(state, order)).collect()).await
    }

    async fn due(&self, limit: usize) -> Result<Due, Error> {
        self.call(CallKind::Read, move |state| state.due(limit)).await
    }

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error> {
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

    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.result(&reach, id)).await
    }

    async fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.artifacts(&reach, id)).await
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

    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error> {
        let reach = reach.clone();
        self.readers.run(move |reader| reader.objects(&reach, id)).await
    }

    async fn count_download(&self, id: JobId) -> Result<(), Error> {
        self.call(CallKind::Write, move |state| state.count_download(id)).await
    }

    async fn record_inspection(&self, key: &ObjectKey, found: ObjectInspection) -> Result<(), Error> {
        let key = *key;
        self.call(CallKind::Write, move |state| state.record_inspection(&key, &found)).await
    }

    async fn due_deletions(&self, limit: usize) -> Result<DueDeletions, Error> {
        self.call(CallKind::Read, move |state| state.due_deletions(limit)).await
    }

    async fn postpone_deletions(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error> {
        let keys = keys.to_vec();
        self.call(CallKind::Write, move |state| state.postpone_deletions(&keys, until)).await
    }

    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error> {
        let keys = keys.to_vec();
        self.call(CallKind::Write, move |state| state.forget_objects(&keys)).await
    }

    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error> {
        let name = name.to_owned();
        self.call(CallKind::Grow, move |state| at_once(queues::save(state, namespace, &name, &draft, expect))).await
    }

    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error> {
        let name = name.to_owned();
        self.call(CallKind::Write, move |state| at_once(queues::set_paused(state, namespace, &name, paused))).await
    }

    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error> {
        let name = name.to_owned();
        self.call(CallKind::Write, move |state| at_once(queues::delete(state, namespace, &name))).await
    }

    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
        let name = name.to_owned();
        self.call(CallKind::Read, move |state| Ok(state.queue(namespace, &name))).await
    }

    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        let after = after.map(str::to_owned);
        self.call(CallKind::Read, move |state| Ok(state.queues(namespace, after.as_deref(), limit))).await
    }

    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error> {
        self.call(CallKind::Read, |state| Ok(state.oldest_waiting())).await
    }

    async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
        self.call(CallKind::Read, |state| Ok(state.census())).await
    }

    /// Differs: only this process serves the alarms, so only its start reports an outage. The engine detects its own
    /// pauses.
    async fn record_attendance(&self) -> Result<Option<Outage>, Error> {
        Ok(self.away)
    }

    async fn interrupted(&self) -> Result<Vec<JobId>, Error> {
        self.call(CallKind::Read, |state| state.interrupted()).await
    }

    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error> {
        let replaces = replaces.to_vec();
        self.call(CallKind::Grow, move |state| state.sealing_key(key, &replaces)).await
    }

    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error> {
        let name = name.to_owned();
        self.call(CallKind::Grow, move |state| state.namespace(&name)).await
    }

    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error> {
        self.call(CallKind::Grow, move |state| state.add_key(&key)).await
    }

    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error> {
        self.call(CallKind::Grow, move |state| state.add_first_key(&key)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        self.call(CallKind::Read, |state| Ok(state.keys()?)).await
    }

    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error> {
        self.call(CallKind::Write, move |state| state.revoke_key(namespace, id, force)).await
    }

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error> {
        self.call(CallKind::Grow, move |state| at_once(operations::start(state, &operation))).await
    }

    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(CallKind::Read, move |state| {
            Ok(state.operation(id)?.filter(|operation| operation.namespace == namespace))
        })
        .await
    }

    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.call(CallKind::Read, move |state| Ok(state.operations(namespace, limit)?)).await
    }

    async fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        self.call(CallKind::Read, |state| Ok(state.open_operations()?)).await
    }

    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error> {
        self.call(CallKind::Write, move |state| at_once(operations::stop(state, namespace, id))).await
    }

    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error> {
        self.call(CallKind::Write, move |state| at_once(operations::advance(state, id, limit))).await
    }

    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error> {
        let operation = operation.clone();
        self.call(CallKind::Read, move |state| state.count_operation(&operation, limit)).await
    }

    fn commit_times(&self) -> Option<Arc<Histogram>> {
        Some(Arc::clone(&self.commit_times))
    }

    fn damage(&self) -> Damage {
        self.damage.clone()
    }

    async fn ping(&self) -> Result<(), Error> {
        self.call(CallKind::Probe, |_| Ok(())).await
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
