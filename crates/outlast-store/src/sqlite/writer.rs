//! The writer loop: take what waits, run it in one transaction, sync once, then answer everybody. While one group syncs,
//! the next one gathers by itself, so there is no artificial delay; only heartbeats that follow each other closely wait a
//! moment for each other, since ten thousand workers would have a sync each and none of them is in a hurry.
//!
//! A failed write or sync ends the thread without another answer, and the process with it: after a failed sync nobody
//! knows what the disk holds.

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
use super::directory::Lock;
use super::faults::Fault;
use super::hints::{Hints, READ_MAX};
use super::hot::Hot;
use super::index::Index;
use super::options::{Durability, OpenError};
use super::registry::{Registry, Shared};
use super::reserve::Reserve;
use super::survey::Loss;
use super::wal_tracker::WalTracker;
use crate::damage::Damage;
use crate::error::Error;
use crate::handout::HandoutPool;
use crate::histogram::Histogram;
use crate::ids::Ids;
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
pub(super) struct Core<'c> {
    pub(super) connection: &'c Connection,
    pub(super) hot: Hot<'c>,
    pub(super) ids: Ids,
    pub(super) entropy: Box<dyn Entropy + Send>,
    pub(super) compose: Compose,
    pub(super) index: Index,
    pub(super) registry: Registry,
    pub(super) cache: Cache,
    /// Ids of providers that are in no index on disk yet: hash and row.
    pub(super) young_keys: BTreeSet<(i64, i64)>,
    /// Those in memory have changed since the last commit.
    pub(super) has_new_keys: bool,
    /// What may be in that index. After a rolled-back group it says too much, which does no harm.
    pub(super) hints: Hints,
    pub(super) next_seq: i64,
    /// As far as `next_seq` has been noted on disk.
    pub(super) noted_seq: i64,
    /// What the rows of the present transaction say `next_seq` is; a start finds at least this.
    pub(super) stored_seq: i64,
    /// What it was at the last commit.
    pub(super) committed_seq: i64,
    /// The time of the present group. Never goes back.
    pub(super) now: Timestamp,
    pub(super) namespace_waiting_max: u64,
    /// Hand-outs whose receiver has gone; released in the next group.
    pub(super) orphans: Vec<(JobId, Lease)>,
    /// Rows of jobs that were being delivered when this process started.
    pub(super) interrupted: Vec<i64>,
    /// Jobs whose rows are damaged, with the queue where that can still be told. They are in no index and are not looked
    /// at again before the next start.
    pub(super) set_aside: BTreeMap<i64, Option<QueueId>>,
    pub(super) damage: Damage,
    /// An estimate of the pages written since the last checkpoint.
    pub(super) dirty_pages: u64,
    pub(super) handouts: HandoutPool,
}

/// One call on the store. `run` may happen twice, when a group is repeated after a full disk.
pub(super) trait Call: Send {
    fn writes(&self) -> bool;
    /// May wait a moment for others.
    fn is_patient(&self) -> bool;
    /// Needs new space, so it is refused while the disk is full.
    fn grows(&self) -> bool;
    /// Nobody waits for the answer any more and the effect would only harm.
    fn is_moot(&self) -> bool;
    fn run(&mut self, core: &mut Core<'_>) -> Result<(), Fault>;
    fn answer(self: Box<Self>, outcome: Result<(), Error>, core: &mut Core<'_>);
}

/// What a call wants of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub(super) kind: Kind,
    pub(super) work: F,
    pub(super) value: Option<T>,
    pub(super) reply: oneshot::Sender<Result<T, Error>>,
    /// What to do with an answer that nobody takes.
    pub(super) undelivered: fn(T, &mut Core<'_>),
}

impl<T: Send, F: FnMut(&mut Core<'_>) -> Result<T, Fault> + Send> Call for Task<T, F> {
    fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read | Kind::Probe)
    }

    fn is_patient(&self) -> bool {
        self.kind == Kind::Patient
    }

    fn grows(&self) -> bool {
        matches!(self.kind, Kind::Grow | Kind::Probe)
    }

    fn is_moot(&self) -> bool {
        self.kind == Kind::HandOut && self.reply.is_closed()
    }

    fn run(&mut self, core: &mut Core<'_>) -> Result<(), Fault> {
        self.value = Some((self.work)(core)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>, core: &mut Core<'_>) {
        let Task { value, reply, undelivered, .. } = *self;
        let Some(value) = outcome.map(|()| value).transpose() else {
            return;
        };
        if let Err(Ok(unwanted)) = reply.send(value) {
            undelivered(unwanted, core);
        }
    }
}

/// What a writer starts from.
pub(super) struct Setup {
    pub(super) ids: Ids,
    pub(super) entropy: Box<dyn Entropy + Send>,
    pub(super) compose: Compose,
    pub(super) shared: Shared,
    pub(super) now: Timestamp,
    pub(super) job_cache_bytes: u64,
    pub(super) namespace_waiting_max: u64,
    /// What `next_seq` was at the last commit, where that was written down.
    pub(super) expected_seq: Option<i64>,
    pub(super) accepts_loss: bool,
    pub(super) damage: Damage,
}

impl<'c> Core<'c> {
    /// Prepares the statements and reads the indexes into memory.
    pub(super) fn start(connection: &'c Connection, setup: Setup) -> Result<Core<'c>, OpenError> {
        let corrupt = |error: Error| OpenError::Corrupt(error.what());
        let registry = Registry::load(connection, setup.ids, setup.shared, &setup.damage).map_err(corrupt)?;
        let mut core = Core {
            connection,
            hot: Hot::prepare(connection)?,
            ids: setup.ids,
            entropy: setup.entropy,
            compose: setup.compose,
            index: Index::default(),
            registry,
            cache: Cache::new(setup.job_cache_bytes),
            young_keys: BTreeSet::new(),
            has_new_keys: false,
            hints: Hints::read(connection, READ_MAX).map_err(corrupt)?,
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
        core.interrupted = core.rebuild().map_err(corrupt)?;
        if let Some(expected) = setup.expected_seq.filter(|expected| *expected > core.next_seq) {
            let loss = Loss::NumbersMissing { found: core.next_seq, expected };
            if !setup.accepts_loss {
                return Err(OpenError::Loss(loss));
            }
            tracing::error!(%loss, "going on without what is missing, as --accept-loss asks");
            core.skip_to(expected).map_err(|fault| OpenError::Corrupt(format!("{fault:?}")))?;
        }
        Ok(core)
    }
}

/// The writer's thread: its loop, and what it stands on.
pub(super) struct Writer<'c> {
    pub(super) core: Core<'c>,
    pub(super) outside: Outside,
}

/// The writer's ties to the rest of the process.
pub(super) struct Outside {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) calls: Receiver<Box<dyn Call>>,
    pub(super) durability: Durability,
    pub(super) reserve: Reserve,
    pub(super) tracker: WalTracker,
    pub(super) commit_times: Arc<Histogram>,
    /// Set when the loop ends by a failure; whoever runs the process waits for it.
    pub(super) failed: watch::Sender<Option<String>>,
    pub(super) _lock: Lock,
}

type Group = Vec<Box<dyn Call>>;
type Answered = (Box<dyn Call>, Result<(), Error>);

/// Who shares a commit.
#[derive(Default)]
struct Company {
    /// When the latest patient calls were taken.
    patient_at: Option<Timestamp>,
}

impl Company {
    /// The first one and who waits already; if all of them are patient and more such came lately, also who comes soon.
    fn gather(&mut self, first: Box<dyn Call>, outside: &Outside) -> Group {
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

fn take_waiting(group: &mut Group, calls: &Receiver<Box<dyn Call>>) {
    while group.len() < GROUP_MAX
        && let Ok(next) = calls.try_recv()
    {
        group.push(next);
    }
}

impl Writer<'_> {
    /// Runs until all senders are gone or a write fails.
    pub(super) fn run(mut self) {
        let mut uncommitted = 0;
        let mut company = Company::default();
        while let Ok(first) = self.outside.calls.recv() {
            let group = company.gather(first, &self.outside);
            self.core.now = self.core.now.max(self.outside.clock.now());
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
        tracker.advance_mark(self.core.connection)?;
        tracker.will_empty().map_err(from_io)?;
        if !tracker.is_current() {
            return Ok(());
        }
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self.core.connection.query_row(checkpoint, [], |row| row.get(0))?;
        if is_busy {
            tracing::warn!("another program reads the database; the next start will empty the log");
            return Ok(());
        }
        tracker.stopped().map_err(from_io)?;
        // From here on closing may remove the empty log.
        self.core.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(|_| ())
    }

    fn stop(&self, error: &rusqlite::Error) {
        tracing::error!(%error, "a write or sync failed; stopping without further answers");
        self.outside.failed.send_replace(Some(error.to_string()));
    }

    /// `Err` means stop: nobody of this group has been answered.
    fn commit_group(&mut self, group: Group) -> Result<(), rusqlite::Error> {
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
        self.core.registry.publish();
        self.refuse(refused);
        for (call, result) in group.into_iter().zip(results.drain(..)) {
            call.answer(result, &mut self.core);
        }
        Ok(())
    }

    /// Runs and commits. Calls that fail alone have their error in the list.
    fn transact(&mut self, group: &mut [Box<dyn Call>]) -> Result<Vec<Result<(), Error>>, Fault> {
        let writes = !self.core.orphans.is_empty() || group.iter().any(|call| call.writes());
        if writes {
            self.core.begin()?;
            if let Err(fault) = self.core.release_orphans() {
                // Their leases run out by themselves.
                self.core.orphans.clear();
                return Err(Fault::Damaged(fault.damage()?));
            }
        }
        let mut results = Vec::with_capacity(group.len());
        for call in group.iter_mut() {
            let changes = self.core.connection.total_changes();
            results.push(match call.run(&mut self.core) {
                Ok(()) => Ok(()),
                Err(Fault::Unsound(error)) => {
                    self.core.note_damage(&error);
                    // What the call did before it met the damage must not be committed.
                    if self.core.connection.total_changes() != changes {
                        return Err(Fault::Damaged(error));
                    }
                    Err(error)
                }
                Err(fault) => return Err(fault),
            });
        }
        if writes {
            self.commit()?;
            self.core.orphans.clear();
        }
        Ok(results)
    }

    /// What was committed is also written down, before anybody is answered.
    fn commit(&mut self) -> Result<(), Fault> {
        let began = Instant::now();
        self.core.commit()?;
        self.outside.commit_times.record(began.elapsed());
        let written = self.outside.tracker.committed(self.core.stored_seq, self.core.now);
        written.map_err(|error| Fault::Fatal(from_io(error)))
    }

    /// Each call in a transaction of its own, after a group of them met damage: only the one that touches it fails.
    fn transact_one_by_one(&mut self, group: &mut [Box<dyn Call>]) -> Result<Vec<Result<(), Error>>, rusqlite::Error> {
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
        self.core.note_damage(&error);
        self.rollback()?;
        Ok(error)
    }

    /// Leaves out what is moot, and what needs space while there is none.
    fn admit(&mut self, group: Group) -> (Group, Group) {
        let wants_space = group.iter().any(|call| call.grows());
        let has_room = !wants_space || self.outside.reserve.has_room(self.core.now);
        let (live, _moot) = split(group, |call| !call.is_moot());
        split(live, |call| has_room || !call.grows())
    }

    fn refuse(&mut self, calls: Group) {
        for call in calls {
            call.answer(Err(Error::DiskFull), &mut self.core);
        }
    }

    /// The group did not fit: undo it, give up the reserve.
    fn make_room(&mut self) -> Result<(), rusqlite::Error> {
        self.rollback()?;
        self.outside.reserve.give_up(self.core.now);
        Ok(())
    }

    /// Undoes the transaction, and what memory had already followed of it.
    fn rollback(&mut self) -> Result<(), rusqlite::Error> {
        if !self.core.connection.is_autocommit() {
            self.core.connection.execute_batch("ROLLBACK")?;
        }
        self.core.undo_changes().map_err(|error| rusqlite::Error::InvalidParameterName(error.to_string()))
    }

    /// The negative control of the crash rigs.
    fn answer_first(&mut self, mut group: Group, uncommitted: &mut u32) -> Result<(), rusqlite::Error> {
        let fatal = |fault: Fault| match fault {
            Fault::Fatal(error) => error,
            other => rusqlite::Error::InvalidParameterName(format!("{other:?}")),
        };
        if self.core.connection.is_autocommit() {
            self.core.begin().map_err(fatal)?;
        }
        let mut answered: Vec<Answered> = Vec::new();
        for mut call in group.drain(..) {
            call.run(&mut self.core).map_err(fatal)?;
            answered.push((call, Ok(())));
        }
        self.core.registry.publish();
        for (call, result) in answered {
            call.answer(result, &mut self.core);
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
        if self.core.dirty_pages < LOOK_AT_WAL_PAGES || !self.core.connection.is_autocommit() {
            return Ok(());
        }
        self.core.dirty_pages = 0;
        let (length, copied) = self.core.wal_pages()?;
        if length - copied < CHECKPOINT_PAGES && length < WAL_PAGES_MAX {
            return Ok(());
        }
        let tracker = &mut self.outside.tracker;
        if !tracker.is_current() {
            return Ok(());
        }
        tracker.advance_mark(self.core.connection)?;
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
            .core
            .connection
            .prepare_cached(statement)?
            .query_row([], |row| Ok(!row.get::<_, bool>(0)? && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?));
        match copied {
            Ok(true) => tracker.has_copied().map_err(from_io),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                self.outside.reserve.give_up(self.core.now);
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }
}

impl Core<'_> {
    /// Damage is listed, whoever meets it.
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

fn split(group: Group, keep: impl Fn(&dyn Call) -> bool) -> (Group, Group) {
    group.into_iter().partition(|call| keep(call.as_ref()))
}
