//! State that all verbs of the store share: the pool, the ids, entropy, time, the cached queues.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool_postgres::Pool;
use outlast_core::{Clock, Entropy, Timestamp};

use super::claim_cursor::ClaimCursors;
use super::clock::DatabaseClock;
use super::connect::causes;
use super::queue_cache::QueueCache;
use super::quota::Quota;
use super::session::Session;
use crate::codec::job_id::JobIdCodec;
use crate::damage::Damage;
use crate::error::Error;
use crate::handout::HandoutPool;
use crate::histogram::{COMMIT_BOUNDS, Histogram};
use crate::outbox::Compose;

/// Rows a queue's counts are spread over.
const SLOTS: u16 = 64;

pub(super) struct StoreContext {
    pub(super) pool: Pool,
    pub(super) ids: JobIdCodec,
    pub(super) registry: QueueCache,
    pub(super) quota: Quota,
    pub(super) cursors: ClaimCursors,
    pub(super) handouts: HandoutPool,
    pub(super) damage: Damage,
    pub(super) commit_times: Arc<Histogram>,
    pub(super) clock: Arc<DatabaseClock>,
    pub(super) test_clock: Option<Arc<dyn Clock>>,
    entropy: Mutex<Box<dyn Entropy + Send>>,
    pub(super) compose: Compose,
    /// Statements are prepared under a name.
    named: bool,
    begin: String,
    next_slot: AtomicU16,
    pub(super) crash_epoch: AtomicI64,
    closed: AtomicBool,
}

/// Facts about a store that is connected.
pub(super) struct StoreSetup {
    pub(super) pool: Pool,
    pub(super) ids: JobIdCodec,
    pub(super) entropy: Box<dyn Entropy + Send>,
    pub(super) compose: Compose,
    pub(super) clock: Arc<DatabaseClock>,
    pub(super) test_clock: Option<Arc<dyn Clock>>,
    pub(super) named: bool,
    /// The statement that begins a transaction.
    pub(super) begin: String,
    pub(super) namespace_waiting_max: u64,
}

impl StoreContext {
    pub(super) fn new(mut setup: StoreSetup) -> StoreContext {
        let first_slot = setup.entropy.next_u64() % u64::from(SLOTS);
        StoreContext {
            pool: setup.pool,
            ids: setup.ids,
            registry: QueueCache::default(),
            quota: Quota::new(setup.namespace_waiting_max),
            cursors: ClaimCursors::default(),
            handouts: HandoutPool::default(),
            damage: Damage::default(),
            commit_times: Arc::new(Histogram::new(COMMIT_BOUNDS)),
            clock: setup.clock,
            test_clock: setup.test_clock,
            entropy: Mutex::new(setup.entropy),
            compose: setup.compose,
            named: setup.named,
            begin: setup.begin,
            next_slot: AtomicU16::new(u16::try_from(first_slot).unwrap_or(0)),
            crash_epoch: AtomicI64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// A connection, or why there is none.
    pub(super) async fn session(&self) -> Result<Session, String> {
        match self.pool.get().await {
            Ok(client) => Ok(Session::new(client, self.named)),
            Err(error) => Err(causes(&error)),
        }
    }

    /// Lists what a read found damaged.
    pub(super) fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Corrupt(what)) = &answer {
            self.damage.note(what);
        }
        answer
    }

    pub(super) fn begin(&self) -> &str {
        &self.begin
    }

    /// The time to decide by, from what the database has just said.
    pub(super) fn learn_time(&self, database: Timestamp) -> Timestamp {
        let learnt = self.clock.learn(database);
        self.test_clock.as_ref().map_or(learnt, |clock| clock.now())
    }

    /// The time to look by.
    pub(super) fn now(&self) -> Timestamp {
        self.test_clock.as_ref().map_or_else(|| self.clock.now(), |clock| clock.now())
    }

    pub(super) fn entropy(&self) -> MutexGuard<'_, Box<dyn Entropy + Send>> {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot the next transaction counts in: another one than its neighbours'.
    pub(super) fn slot(&self) -> i16 {
        i16::try_from(self.next_slot.fetch_add(1, Ordering::Relaxed) % SLOTS).unwrap_or(0)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}
