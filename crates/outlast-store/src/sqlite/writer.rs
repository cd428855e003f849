//! The writer loop: take all waiting calls, run them in one transaction, sync once, then answer all of them. The next
//! group gathers while one syncs, so there is no artificial delay; only heartbeats that follow each other closely wait
//! a moment for each other, since ten thousand workers would have a sync each and none of them is in a hurry.
//!
//! A failed write or sync ends the thread without another answer, and the process with it: after a failed sync the
//! content of the disk is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use outlast_core::{Clock, Entropy, JobId, Lease, QueueId, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::cache::Cache;
use super::directory::DirectoryLock;
use super::faults::Fault;
use super::index::Index;
use super::key_bloom::{KeyBloom, READ_MAX};
use super::options::{Durability, OpenError};
use super::queue_cache::{CommittedQueues, QueueCache};
use super::reserve::Reserve;
use super::statements::Statements;
use super::survey::Loss;
use super::wal_tracker::WalTracker;
use crate::codec::job_id::JobIdCodec;
use crate::damage::Damage;
use crate::error::Error;
use crate::handout::HandoutPool;
use crate::histogram::Histogram;
use crate::outbox::Compose;

/// More operations than this do not share a commit: latency would suffer and nothing be gained.
const GROUP_MAX: usize = 1000;
/// Pages written to the WAL before it is copied back; 16 MiB.
const CHECKPOINT_PAGES: i64 = 4000;
/// A WAL longer than this is started over even if readers have to be waited for; 64 MiB.
const WAL_PAGES_MAX: i64 = 4 * CHECKPOINT_PAGES;
/// How many pages may have been written, by a rough count, before the WAL is asked for its true length.
const LOOK_AT_WAL_PAGES: u64 = 1000;
/// How long a patient call waits for company, and how close the one before it must have been for that.
const COMPANY: Duration = Duration::from_millis(20);
/// In the rig that answers first: how many groups stay uncommitted.
const UNCOMMITTED_GROUPS: u32 = 64;

/// Everything a transaction touches.
pub(super) struct WriterState<'c> {
    pub(super) connection: &'c Connection,
    pub(super) statements: Statements<'c>,
    pub(super) ids: JobIdCodec,
    pub(super) entropy: Box<dyn Entropy + Send>,
    pub(super) compose: Compose,
    pub(super) index: Index,
    pub(super) registry: QueueCache,
    pub(super) cache: Cache,
    /// JobIdCodec of providers that are in no index on disk yet: hash and row.
    pub(super) memtable: BTreeSet<(i64, i64)>,
    /// Those in memory have changed since the last commit.
    pub(super) has_new_keys: bool,
    /// The keys that may be in that index. After a rollback it has some too many, which is harmless.
    pub(super) key_bloom: KeyBloom,
    pub(super) next_seq: i64,
    /// As far as `next_seq` has been noted on disk.
    pub(super) noted_seq: i64,
    /// The `next_seq` that the rows of the current transaction give; a start finds at least this.
    pub(super) stored_seq: i64,
    /// Its value at the last commit.
    pub(super) committed_seq: i64,
    /// The time of the present group. Never goes back.
    pub(super) now: Timestamp,
    pub(super) namespace_waiting_max: u64,
    /// Hand-outs whose receiver has gone; released in the next group.
    pub(super) orphans: Vec<(JobId, Lease)>,
    /// Rows of jobs that were being delivered when this process started.
    pub(super) interrupted: Vec<i64>,
    /// Jobs with damaged rows, with the queue where that is known. They are in no index and are not read again before
    /// the next start.
    pub(super) set_aside: BTreeMap<i64, Option<QueueId>>,
    pub(super) damage: Damage,
    /// An estimate of the pages written since the last checkpoint.
    pub(super) dirty_pages: u64,
    pub(super) handouts: HandoutPool,
}

/// One call on the store. `run` may happen twice, when a group is repeated after a full disk.
pub(super) trait WriteCall: Send {
    fn writes(&self) -> bool;
    /// May wait a moment for others.
    fn is_patient(&self) -> bool;
    /// Needs new space, so it is refused while the disk is full.
    fn grows(&self) -> bool;
    /// The caller has disconnected and the effect would only be harmful.
    fn is_moot(&self) -> bool;
    fn run(&mut self, state: &mut WriterState<'_>) -> Result<(), Fault>;
    fn answer(self: Box<Self>, outcome: Result<(), Error>, state: &mut WriterState<'_>);
}

/// The kind of a call, which decides its treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Read,
    /// A read that is refused while the disk is full, as what needs new space is.
    Probe,
    Write,
    /// A write that may wait a moment for others.
    Patient,
    /// A write that needs new space.
    Grow,
    /// A hand-out: moot without a receiver.
    HandOut,
}

/// A call made of a closure.
pub(super) struct Task<T, F> {
    pub(super) kind: CallKind,
    pub(super) work: F,
    pub(super) value: Option<T>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
    /// What happens with an answer whose caller has disconnected.
    pub(super) undelivered: fn(T, &mut WriterState<'_>),
}

impl<T: Send, F: FnMut(&mut WriterState<'_>) -> Result<T, Fault> + Send> WriteCall for Task<T, F> {
    fn writes(&self) -> bool {
        !matches!(self.kind, CallKind::Read | CallKind::Probe)
    }

    fn is_patient(&self) -> bool {
        self.kind == CallKind::Patient
    }

    fn grows(&self) -> bool {
        matches!(self.kind, CallKind::Grow | CallKind::Probe)
    }

    fn is_moot(&self) -> bool {
        self.kind == CallKind::HandOut && self.reply.is_closed()
    }

    fn run(&mut self, state: &mut WriterState<'_>) -> Result<(), Fault> {
        self.value = Some((self.work)(state)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>, state: &mut WriterState<'_>) {
        let Task { value, reply, undelivered, .. } = *self;
        let Some(value) = outcome.map(|()| value).transpose() else {
            return;
        };
        if let Err(Ok(unwanted)) = reply.send(value) {
            undelivered(unwanted, state);
        }
    }
}

/// The state that a writer starts from.
pub(super) struct WriterSetup {
    pub(super) ids: JobIdCodec,
    pub(super) entropy: Box<dyn Entropy + Send>,
    pub(super) compose: Compose,
    pub(super) shared: CommittedQueues,
    pub(super) now: Timestamp,
    pub(super) job_cache_bytes: u64,
    pub(super) namespace_waiting_max: u64,
    /// The `next_seq` of the last commit, where that was recorded.
    pub(super) expected_seq: Option<i64>,
    pub(super) accepts_loss: bool,
    pub(super) damage: Damage,
}

impl<'c> WriterState<'c> {
    /// Prepares the statements and reads the indexes into memory.
    pub(super) fn start(connection: &'c Connection, setup: WriterSetup) -> Result<WriterState<'c>, OpenError> {
        let corrupt = |error: Error| OpenError::Corrupt(error.what());
        let registry = QueueCache::load(connection, setup.ids, setup.shared, &setup.damage).map_err(corrupt)?;
        let mut state = WriterState {
            connection,
            statements: Statements::prepare(connection)?,
            ids: setup.ids,
            entropy: setup.entropy,
            compose: setup.compose,
            index: Index::default(),
            registry,
            cache: Cache::new(setup.job_cache_bytes),
            memtable: BTreeSet::new(),
            has_new_keys: false,
            key_bloom: KeyBloom::read(connection, READ_MAX).map_err(corrupt)?,
            next_seq: 1,
            noted_seq: 1,
            stored_seq: 1,
            committed_seq: 1,
            now: setup.now,
            namespace_waiting_max: setup.namespace_waiting_max,
            orphans: Vec::new(),
            interrupted: Vec::new(),
            set_aside: BTreeMap::new(),
            damage: setup.damage,
            dirty_pages: 0,
            handouts: HandoutPool::default(),
        };
        state.interrupted = state.rebuild().map_err(corrupt)?;
        if let Some(expected) = setup.expected_seq.filter(|expected| *expected > state.next_seq) {
            let loss = Loss::NumbersMissing { found: state.next_seq, expected };
            if !setup.accepts_loss {
                return Err(OpenError::Loss(loss));
            }
            tracing::error!(%loss, "going on without what is missing, as --accept-loss asks");
            state.skip_to(expected).map_err(|fault| OpenError::Corrupt(format!("{fault:?}")))?;
        }
        Ok(state)
    }
}

/// The writer's thread: its loop, its state and its channels.
pub(super) struct GroupWriter<'c> {
    pub(super) state: WriterState<'c>,
    pub(super) outside: WriterIo,
}

/// The writer's ties to the rest of the process.
pub(super) struct WriterIo {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) calls: Receiver<Box<dyn WriteCall>>,
    pub(super) durability: Durability,
    pub(super) reserve: Reserve,
    pub(super) tracker: WalTracker,
    pub(super) commit_times: Arc<Histogram>,
    /// Set when the loop ends by a failure; the process waits for it.
    pub(super) failed: watch::Sender<Option<String>>,
    pub(super) _lock: DirectoryLock,
}

type CallGroup = Vec<Box<dyn WriteCall>>;
type Answered = (Box<dyn WriteCall>, Result<(), Error>);

/// Decides which calls share a commit.
#[derive(Default)]
struct Batcher {
    /// When the latest patient calls were taken.
    patient_at: Option<Timestamp>,
}

impl Batcher {
    /// The first one and who waits already; if all of them are patient and more such came lately, also who comes soon.
    fn gather(&mut self, first: Box<dyn WriteCall>, outside: &WriterIo) -> CallGroup {
        let mut group = vec![first];
        take_waiting(&mut group, &outside.calls);
        if !group.iter().all(|call| call.is_patient()) {
            return group;
        }
        let now = outside.clock.now();
        let expects_more = self.patient_at.replace(now).is_some_and(|at| now.since(at) < COMPANY);
        while expects_more
            && group.len() < GROUP_MAX
            && group.last().is_some_and(|call| call.is_patient())
            && let Some(left) = COMPANY.checked_sub(outside.clock.now().since(now))
            && let Ok(next) = outside.calls.recv_timeout(left)
        {
            group.push(next);
        }
        take_waiting(&mut group, &outside.calls);
        group
    }
}

fn take_waiting(group: &mut CallGroup, calls: &Receiver<Box<dyn WriteCall>>) {
    while group.len() < GROUP_MAX
        && let Ok(next) = calls.try_recv()
    {
        group.push(next);
    }
}

impl GroupWriter<'_> {
    /// Runs until all senders are gone or a write fails.
    pub(super) fn run(mut self) {
        let mut uncommitted = 0;
        let mut company = Batcher::default();
        while let Ok(first) = self.outside.calls.recv() {
            let group = company.gather(first, &self.outside);
            self.state.now = self.state.now.max(self.outside.clock.now());
            let answered = match self.outside.durability {
                // A lone call is committed, so that a rig can set itself up; under load the promise is broken.
                Durability::AnswerFirst if group.len() > 1 => self.answer_first(group, &mut uncommitted),
                _ => self.commit_group(group),
            };
            match answered.and_then(|()| self.checkpoint_if_due()) {
                Ok(()) => {}
                Err(error) => return self.stop(&error),
            }
        }
        if let Err(error) = self.empty_log() {
            tracing::warn!(%error, "last checkpoint failed; the next start will do it");
        }
    }

    /// An orderly end leaves an empty WAL, so that the file alone is the whole store.
    fn empty_log(&mut self) -> Result<(), rusqlite::Error> {
        let tracker = &mut self.outside.tracker;
        tracker.advance_mark(self.state.connection)?;
        tracker.will_empty().map_err(from_io)?;
        if !tracker.is_current() {
            return Ok(());
        }
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self.state.connection.query_row(checkpoint, [], |row| row.get(0))?;
        if is_busy {
            tracing::warn!("another program reads the database; the next start will empty the log");
            return Ok(());
        }
        tracker.stopped().map_err(from_io)?;
        // From here on closing may remove the empty log.
        self.state.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(|_| ())
    }

    fn stop(&self, error: &rusqlite::Error) {
        tracing::error!(%error, "a write or sync failed; stopping without further answers");
        self.outside.failed.send_replace(Some(error.to_string()));
    }

    /// `Err` means stop: no call of this group has been answered.
    fn commit_group(&mut self, group: CallGroup) -> Result<(), rusqlite::Error> {
        let (mut group, refused) = self.admit(group);
        let mut results = match self.transact(&mut group) {
            Err(Fault::Full) => {
                self.make_room()?;
                let (without_growth, refused) = split(group, |call| !call.grows());
                self.refuse(refused);
                group = without_growth;
                self.transact(&mut group)
            }
            first => first,
        };
        if matches!(results, Err(Fault::Damaged(_))) {
            self.rollback()?;
            results = Ok(self.transact_one_by_one(&mut group)?);
        }
        let mut results = match results {
            Ok(results) => results,
            Err(fault) => {
                let error = self.undo(fault)?;
                vec![Err(error); group.len()]
            }
        };
        self.state.registry.publish();
        self.refuse(refused);
        for (call, result) in group.into_iter().zip(results.drain(..)) {
            call.answer(result, &mut self.state);
        }
        Ok(())
    }

    /// Runs and commits. Calls that fail alone have their error in the list.
    fn transact(&mut self, group: &mut [Box<dyn WriteCall>]) -> Result<Vec<Result<(), Error>>, Fault> {
        let writes = !self.state.orphans.is_empty() || group.iter().any(|call| call.writes());
        if writes {
            self.state.begin()?;
            if let Err(fault) = self.state.release_orphans() {
                // Their leases run out.
                self.state.orphans.clear();
                return Err(Fault::Damaged(fault.damage()?));
            }
        }
        let mut results = Vec::with_capacity(group.len());
        for call in group.iter_mut() {
            let changes = self.state.connection.total_changes();
            results.push(match call.run(&mut self.state) {
                Ok(()) => Ok(()),
                Err(Fault::Unsound(error)) => {
                    self.state.note_damage(&error);
                    // Changes of the call before it met the damage must not be committed.
                    if self.state.connection.total_changes() != changes {
                        return Err(Fault::Damaged(error));
                    }
                    Err(error)
                }
                Err(fault) => return Err(fault),
            });
        }
        if writes {
            self.commit()?;
            self.state.orphans.clear();
        }
        Ok(results)
    }

    /// The commit is recorded in the state file before any caller is answered.
    fn commit(&mut self) -> Result<(), Fault> {
        let began = Instant::now();
        self.state.commit()?;
        self.outside.commit_times.record(began.elapsed());
        let written = self.outside.tracker.committed(self.state.stored_seq, self.state.now);
        written.map_err(|error| Fault::Fatal(from_io(error)))
    }

    /// Each call in a transaction of its own, after a group of them met damage: only the one that touches it fails.
    fn transact_one_by_one(
        &mut self,
        group: &mut [Box<dyn WriteCall>],
    ) -> Result<Vec<Result<(), Error>>, rusqlite::Error> {
        let mut results = Vec::with_capacity(group.len());
        for call in group {
            results.push(match self.transact(std::slice::from_mut(call)) {
                Ok(mut result) => result.pop().unwrap_or(Ok(())),
                Err(fault) => Err(self.undo(fault)?),
            });
        }
        Ok(results)
    }

    /// Undoes a transaction that failed, and says what its calls are answered. `Err` means stop.
    fn undo(&mut self, fault: Fault) -> Result<Error, rusqlite::Error> {
        let error = match fault {
            Fault::Full => Error::DiskFull,
            Fault::NotBegun => return Ok(Error::Overloaded),
            Fault::Busy => Error::Overloaded,
            Fault::Unsound(error) | Fault::Damaged(error) => error,
            Fault::Fatal(error) => return Err(error),
        };
        self.state.note_damage(&error);
        self.rollback()?;
        Ok(error)
    }

    /// Leaves out what is moot, and what needs space while there is none.
    fn admit(&mut self, group: CallGroup) -> (CallGroup, CallGroup) {
        let wants_space = group.iter().any(|call| call.grows());
        let has_room = !wants_space || self.outside.reserve.has_room(self.state.now);
        let (live, _moot) = split(group, |call| !call.is_moot());
        split(live, |call| has_room || !call.grows())
    }

    fn refuse(&mut self, calls: CallGroup) {
        for call in calls {
            call.answer(Err(Error::DiskFull), &mut self.state);
        }
    }

    /// The group did not fit: undo it, give up the reserve.
    fn make_room(&mut self) -> Result<(), rusqlite::Error> {
        self.rollback()?;
        self.outside.reserve.give_up(self.state.now);
        Ok(())
    }

    /// Undoes the transaction, and what memory had already followed of it.
    fn rollback(&mut self) -> Result<(), rusqlite::Error> {
        if !self.state.connection.is_autocommit() {
            self.state.connection.execute_batch("ROLLBACK")?;
        }
        self.state.undo_changes().map_err(|error| rusqlite::Error::InvalidParameterName(error.to_string()))
    }

    /// The negative control of the crash rigs.
    fn answer_first(&mut self, mut group: CallGroup, uncommitted: &mut u32) -> Result<(), rusqlite::Error> {
        let fatal = |fault: Fault| match fault {
            Fault::Fatal(error) => error,
            other => rusqlite::Error::InvalidParameterName(format!("{other:?}")),
        };
        if self.state.connection.is_autocommit() {
            self.state.begin().map_err(fatal)?;
        }
        let mut answered: Vec<Answered> = Vec::new();
        for mut call in group.drain(..) {
            call.run(&mut self.state).map_err(fatal)?;
            answered.push((call, Ok(())));
        }
        self.state.registry.publish();
        for (call, result) in answered {
            call.answer(result, &mut self.state);
        }
        *uncommitted += 1;
        if *uncommitted >= UNCOMMITTED_GROUPS {
            *uncommitted = 0;
            self.commit().map_err(fatal)?;
        }
        Ok(())
    }

    /// By hand and not by SQLite's automatism, which would swallow a failed sync.
    fn checkpoint_if_due(&mut self) -> Result<(), rusqlite::Error> {
        if self.state.dirty_pages < LOOK_AT_WAL_PAGES || !self.state.connection.is_autocommit() {
            return Ok(());
        }
        self.state.dirty_pages = 0;
        let (length, copied) = self.state.wal_pages()?;
        if length - copied < CHECKPOINT_PAGES && length < WAL_PAGES_MAX {
            return Ok(());
        }
        let tracker = &mut self.outside.tracker;
        if !tracker.is_current() {
            return Ok(());
        }
        tracker.advance_mark(self.state.connection)?;
        tracker.will_copy().map_err(from_io)?;
        if !tracker.is_current() {
            return Ok(());
        }
        // Readers that never pause keep a passive checkpoint from starting the file over; then it is worth waiting for
        // them, as long as the busy timeout allows.
        let statement = match length < WAL_PAGES_MAX {
            true => "PRAGMA wal_checkpoint(PASSIVE)",
            false => "PRAGMA wal_checkpoint(RESTART)",
        };
        let copied = self
            .state
            .connection
            .prepare_cached(statement)?
            .query_row([], |row| Ok(!row.get::<_, bool>(0)? && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?));
        match copied {
            Ok(true) => tracker.has_copied().map_err(from_io),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                self.outside.reserve.give_up(self.state.now);
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }
}

impl WriterState<'_> {
    /// Lists damage, whichever call finds it.
    pub(super) fn note_damage(&self, error: &Error) {
        if let Error::Corrupt(what) = error {
            self.damage.note(what);
        }
    }

    /// Pages in the WAL, and how many of them have been copied back.
    fn wal_pages(&self) -> Result<(i64, i64), rusqlite::Error> {
        let mut statement = self.connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
        statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }
}

/// The library's error has no other room for one of the operating system.
fn from_io(error: std::io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn split(group: CallGroup, keep: impl Fn(&dyn WriteCall) -> bool) -> (CallGroup, CallGroup) {
    group.into_iter().partition(|call| keep(call.as_ref()))
}
