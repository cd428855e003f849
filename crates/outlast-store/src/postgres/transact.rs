//! One transaction from BEGIN to a certain end. Whatever fails before COMMIT was sent did not happen and is tried again; a
//! COMMIT whose answer was lost is looked up by the number of its transaction, never guessed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join3};
use outlast_core::{NamespaceId, Queue, Timestamp};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::Type;

use super::batch::WriteBatch;
use super::key_holders::KeyHolders;
use super::outbox;
use super::queue_cache::queue_columns;
use super::rows::record;
use super::session::{Parameter, Session, Sql};
use super::shared::StoreContext;
use super::stored_sections::StoredSections;
use super::unit_of_work::UnitOfWork;
use crate::error::Error;

/// How long after a call came in its transaction, which surely did not happen, is tried again.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a commit is looked for whose answer was lost.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// No transaction takes this long on a healthy database: the connection is given up.
const TRANSACTION_MAX: Duration = Duration::from_secs(6);
/// The time that a call gets which has waited too long already.
const TRANSACTION_MIN: Duration = Duration::from_secs(2);
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// A node that stops in the middle is cut off by the database and holds no lock for long. The planner is kept to the
/// indexes: its statistics are always behind on tables that fill and empty this fast.
const SETTINGS: [(&str, &str); 9] = [
    ("idle_in_transaction_session_timeout", "8s"),
    ("lock_timeout", "4s"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// Settings of a direct connection, so that transactions need not repeat them.
pub(super) fn startup_options() -> String {
    SETTINGS.map(|(name, value)| format!("-c {name}={value}")).join(" ")
}

/// The beginning of every transaction. With a pooler in between, nothing outlives the transaction.
pub(super) fn begin_text(own_connection: bool, synchronous_commit: bool) -> String {
    let mut text = BEGIN.to_owned();
    if !own_connection {
        text.extend(SETTINGS.map(|(name, value)| format!("; SET LOCAL {name} = '{value}'")));
    }
    if !synchronous_commit {
        text.push_str("; SET LOCAL synchronous_commit = on");
    }
    text
}

/// The time; the number of the transaction, if it has one or is to have one; numbers for new jobs; and the queues that it
/// is about, by name or through their jobs. Sent after the statements that lock jobs: a hold that names one of them is
/// seen.
macro_rules! opening {
    ($lock:literal) => {
        concat!(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
                    CASE WHEN $1 THEN pg_current_xact_id() ELSE pg_current_xact_id_if_assigned() END::text,
                    ARRAY(SELECT nextval('job_seq') FROM generate_series(1, $2)),
                    queue.*
             FROM (VALUES (1)) AS one
             LEFT JOIN LATERAL (
                 SELECT ",
            queue_columns!(),
            "    FROM queue
                 WHERE queue.id = ANY (
                     ARRAY(
                         SELECT job.queue FROM job WHERE job.seq = ANY ($3)
                         UNION
                         SELECT (
                             SELECT named.id
                             FROM queue AS named
                             WHERE named.namespace = wanted.namespace AND named.name = wanted.name
                         )
                         FROM unnest($4, $5) AS wanted (namespace, name)
                     )
                 ) ",
            $lock,
            ") AS queue ON true"
        )
    };
}
const OPENING_TYPES: &[Type] = &[Type::BOOL, Type::INT4, Type::INT8_ARRAY, Type::INT4_ARRAY, Type::TEXT_ARRAY];
static OPENING: Sql = Sql { text: opening!(""), types: OPENING_TYPES };
/// A queue must not go while jobs are put into it.
pub(super) static OPENING_TO_PUBLISH: Sql = Sql { text: opening!("FOR KEY SHARE"), types: OPENING_TYPES };
/// First column of a queue in an opening.
const QUEUE: usize = 3;
const LOOK_UP: Sql = Sql { text: "SELECT pg_xact_status($1::text::xid8)", types: &[Type::TEXT] };

/// Why a transaction could not do its work.
#[derive(Debug)]
pub(super) enum Fault {
    /// The database or the way to it.
    Postgres(tokio_postgres::Error),
    /// This is the answer; nothing is stored.
    Refused(Error),
    /// The connection gave no answer in time, or none could be had.
    Silent,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Postgres(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

/// A transaction under way.
pub(super) struct Tx<'a> {
    pub(super) session: &'a Session,
    pub(super) shared: &'a Arc<StoreContext>,
    /// The time to decide by: the database's.
    pub(super) now: Timestamp,
    /// The number by which this transaction can be looked up. Known before anything is committed.
    pub(super) number: Option<String>,
    pub(super) writes: UnitOfWork,
    /// The holders of the keys of the jobs that this transaction replays.
    pub(super) key_holders: KeyHolders,
    /// The sections of the jobs that get another one in this transaction.
    pub(super) stored_sections: StoredSections,
    /// Bytes that attempts of some jobs have saved.
    pub(super) saved_bytes: HashMap<i64, usize>,
}

/// A queue is called by namespace and name.
pub(super) type QueueName = (NamespaceId, Arc<str>);
pub(super) type Queues = HashMap<QueueName, Arc<Queue>>;

/// The result of an opening besides the time.
pub(super) struct OpenedTx<T> {
    pub(super) seqs: Vec<i64>,
    pub(super) queues: Queues,
    pub(super) rest: T,
}

/// The statements at the beginning of a transaction.
#[derive(Debug, Default)]
pub(super) struct Opening<'o> {
    /// It will surely write.
    pub(super) numbered: bool,
    /// Numbers for so many new jobs.
    pub(super) seqs: usize,
    /// Jobs whose queues are wanted, and queues by name.
    pub(super) jobs: &'o [i64],
    pub(super) queues: Vec<(NamespaceId, &'o str)>,
}

impl Tx<'_> {
    /// Begins, together with the first statements, which are sent in the same flight.
    pub(super) async fn begin<T>(
        &mut self,
        opening: Opening<'_>,
        first: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<OpenedTx<T>, Fault> {
        let session = self.session;
        let sql = if opening.seqs > 0 { &OPENING_TO_PUBLISH } else { &OPENING };
        session.ready(&[sql]).await?;
        let seqs = i32::try_from(opening.seqs).unwrap_or(i32::MAX);
        let mut queues = opening.queues;
        queues.sort_unstable();
        queues.dedup();
        let (namespaces, names): (Vec<i32>, Vec<&str>) =
            queues.into_iter().map(|(namespace, name)| (namespace.0.cast_signed(), name)).unzip();
        let parameters: [Parameter<'_>; 5] = [&opening.numbered, &seqs, &opening.jobs, &namespaces, &names];
        let begin = session.send(self.shared.begin());
        let (begun, first, opened) = join3(begin, first, session.query(sql, &parameters)).await;
        begun?;
        let (first, opened) = (first?, opened?);
        let row = opened.first().ok_or(Fault::Silent)?;
        self.now = self.shared.learn_time(Timestamp::from_millis(row.get(0)));
        self.number = row.get(1);
        let mut queues = Queues::new();
        for row in opened.iter().filter(|row| row.get::<_, Option<i32>>(QUEUE).is_some()) {
            let queue = self.shared.registry.queue(row, QUEUE)?;
            self.writes.know_queue(Arc::clone(&queue));
            queues.insert((queue.namespace, Arc::from(queue.name.as_str())), queue);
        }
        Ok(OpenedTx { seqs: row.get(2), queues, rest: first })
    }

    /// Takes in the row of a job that was read under a lock, and gives its number. One that cannot be read is set aside,
    /// so that it stops neither its queue nor the alarms.
    pub(super) fn take_in(&mut self, row: &Row) -> Option<i64> {
        match record(row, self.shared.ids) {
            Ok(record) => {
                let seq = record.seq;
                self.writes.load(record);
                Some(seq)
            }
            Err(error) => {
                let seq: i64 = row.get(0);
                self.shared.damage.note(&format!("job row {seq}: {error}"));
                self.writes.set_aside.push(seq);
                None
            }
        }
    }

    /// Begins a transaction that will write, with nothing else in the flight.
    pub(super) async fn begin_write(&mut self) -> Result<(), Fault> {
        self.begin(Opening { numbered: true, ..Opening::default() }, async { Ok(()) }).await.map(|_| ())
    }
}

/// The work of one transaction. It may run more than once; only the last run counts.
#[async_trait]
pub(super) trait TxWork: Send {
    type Answer: Send;
    async fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Answer, Fault>;

    /// The answer to COMMIT was lost and will be looked up, which may take a while.
    fn is_lost(&mut self) {}
}

pub(super) type TxFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 't>>;

/// Work made of a closure.
pub(super) struct Once<F>(pub(super) F);

#[async_trait]
impl<T: Send, F> TxWork for Once<F>
where
    F: for<'t, 's> FnMut(&'t mut Tx<'s>) -> TxFuture<'t, T> + Send,
{
    type Answer = T;

    async fn run(&mut self, tx: &mut Tx<'_>) -> Result<T, Fault> {
        (self.0)(tx).await
    }
}

/// How a try ended.
enum Try<T> {
    Done(T),
    /// It did not happen, and a retry is needed.
    Refused(Error),
    /// It did not happen; trying again may help.
    Again(String),
    /// COMMIT was sent and no answer came.
    Lost {
        number: String,
        answer: T,
    },
}

impl StoreContext {
    /// Runs the work in a transaction and commits it. Not to be dropped in the middle: the caller runs it as a task.
    pub(super) async fn transact<W: TxWork>(self: &Arc<Self>, work: &mut W) -> Result<W::Answer, Error> {
        self.transact_since(Instant::now(), work).await
    }

    /// The same for calls of which the first has waited since then.
    pub(super) async fn transact_since<W: TxWork>(
        self: &Arc<Self>,
        since: Instant,
        work: &mut W,
    ) -> Result<W::Answer, Error> {
        let mut pause = PAUSE_FIRST;
        loop {
            let crash_epoch = self.crash_epoch();
            let patience = RETRY_MAX.saturating_sub(since.elapsed()).clamp(TRANSACTION_MIN, TRANSACTION_MAX);
            let outcome = self.attempt(work, patience).await;
            if !matches!(outcome, Try::Done(_)) {
                self.cursors.forget();
            }
            if matches!(outcome, Try::Lost { .. }) {
                work.is_lost();
            }
            let why = match outcome {
                Try::Done(answer) => return Ok(answer),
                Try::Refused(error) => return Err(error),
                Try::Lost { number, answer } => match self.look_up(&number, crash_epoch).await {
                    Some(true) => return Ok(answer),
                    Some(false) => "the connection was lost at the commit, which did not happen".to_owned(),
                    None => return Err(Error::Indeterminate),
                },
                Try::Again(why) => why,
            };
            if since.elapsed() + pause > RETRY_MAX || self.is_closed() {
                tracing::warn!(why, "a transaction was given up; nothing was stored");
                return Err(Error::Unavailable);
            }
            tracing::debug!(why, "a transaction is tried again");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn attempt<W: TxWork>(self: &Arc<Self>, work: &mut W, patience: Duration) -> Try<W::Answer> {
        let session = match timeout(patience, self.session()).await {
            Ok(Ok(session)) => session,
            Ok(Err(why)) => return Try::Again(why),
            Err(_) => return Try::Again("no connection could be had in time".to_owned()),
        };
        // Until COMMIT or ROLLBACK is answered; a connection that is dropped before is not used again.
        session.begun();
        let mut tx = Tx {
            session: &session,
            shared: self,
            now: Timestamp::EPOCH,
            number: None,
            writes: UnitOfWork::default(),
            key_holders: KeyHolders::default(),
            stored_sections: StoredSections::default(),
            saved_bytes: HashMap::new(),
        };
        let working = async {
            let answer = work.run(&mut tx).await?;
            outbox::publish(&mut tx).await.map(|()| answer)
        };
        let ran = match timeout(patience, working).await {
            Ok(ran) => ran,
            Err(_) => Err(Fault::Silent),
        };
        let (number, writes) = (tx.number.take(), std::mem::take(&mut tx.writes));
        match ran {
            Ok(answer) => self.finish(&session, number, writes, answer).await,
            // The effect of a rollback on a silent connection is unknown.
            Err(Fault::Silent) => self.after(Fault::Silent),
            Err(fault) => {
                roll_back(&session).await;
                self.after(fault)
            }
        }
    }

    /// Sends the last writes and COMMIT in one flight.
    async fn finish<T>(
        self: &Arc<Self>,
        session: &Session,
        number: Option<String>,
        writes: UnitOfWork,
        answer: T,
    ) -> Try<T> {
        let batch = WriteBatch::of(&writes, self.slot());
        let committing = async {
            batch.ready(session).await?;
            // A statement that fails turns the COMMIT behind it into a rollback.
            let (written, committed) = join(batch.send(session), session.send("COMMIT")).await;
            written.and(committed)
        };
        let began = Instant::now();
        let failed = match timeout(TRANSACTION_MAX, committing).await {
            Ok(Ok(())) => {
                self.commit_times.record(began.elapsed());
                session.ended();
                self.cursors.inserted(&writes.lined_up());
                return Try::Done(answer);
            }
            Ok(Err(error)) if error.as_db_error().is_some_and(|refusal| !ends_connection(refusal)) => {
                roll_back(session).await;
                return self.after(Fault::Postgres(error));
            }
            Ok(Err(error)) => super::connect::causes(&error),
            Err(_) => "no answer came in time".to_owned(),
        };
        match number {
            Some(number) => Try::Lost { number, answer },
            // Only a transaction that wrote nothing has no number.
            None => Try::Again(failed),
        }
    }

    fn after<T>(&self, fault: Fault) -> Try<T> {
        match fault {
            Fault::Refused(error) => Try::Refused(error),
            Fault::Silent => Try::Again("the database gave no answer".to_owned()),
            Fault::Postgres(error) => match error.code() {
                Some(code) if *code == SqlState::DISK_FULL => Try::Refused(Error::DiskFull),
                Some(code) if super::read::is_damage(code) => {
                    let why = super::connect::causes(&error);
                    self.damage.note(&why);
                    Try::Refused(Error::Corrupt(why))
                }
                Some(code) if !may_pass(code) => {
                    let why = super::connect::causes(&error);
                    tracing::error!(why, "the database refused a statement");
                    Try::Refused(Error::Unreadable(why))
                }
                _ => Try::Again(super::connect::causes(&error)),
            },
        }
    }

    /// Did the transaction commit? `None` when the database cannot be asked or does not know.
    ///
    /// A database that crashes gives out again the numbers of transactions that left no trace: "committed" then speaks
    /// of somebody else's. So it is believed only if the database has not crashed since this transaction began.
    async fn look_up(self: &Arc<Self>, number: &str, crash_epoch: i64) -> Option<bool> {
        let started = Instant::now();
        while started.elapsed() < LOOK_MAX {
            let happened = match timeout(TRANSACTION_MIN, self.ask_status(number)).await {
                Ok(Ok(happened)) => happened,
                Ok(Err(error)) => {
                    tracing::debug!(error, "a lost commit cannot be looked up yet");
                    None
                }
                Err(_) => None,
            };
            let believed = match happened {
                Some(true) => self.has_not_crashed(crash_epoch).await.map(|alive| alive.then_some(true)),
                Some(false) => Some(Some(false)),
                None => None,
            };
            if let Some(verdict) = believed {
                tracing::info!(happened = verdict, "a commit whose answer was lost was looked up");
                return verdict;
            }
            sleep(Duration::from_millis(50)).await;
        }
        tracing::warn!(
            "a commit whose answer was lost could not be looked up in time; its callers are told that nobody knows"
        );
        None
    }

    /// `Ok(None)` while it is under way.
    async fn ask_status(self: &Arc<Self>, number: &str) -> Result<Option<bool>, String> {
        let session = self.session().await?;
        let rows = match session.query(&LOOK_UP, &[&number]).await {
            Ok(rows) => rows,
            // A number of the future: the server has been replaced by a copy that never saw it.
            Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => return Ok(Some(false)),
            Err(error) => return Err(super::connect::causes(&error)),
        };
        match rows.first().and_then(|row| row.get::<_, Option<&str>>(0)) {
            Some("committed") => Ok(Some(true)),
            Some("aborted") => Ok(Some(false)),
            Some(_) => Ok(None),
            None => Err("the database no longer knows".to_owned()),
        }
    }
}

async fn roll_back(session: &Session) {
    if let Ok(Ok(())) = timeout(TRANSACTION_MIN, session.send("ROLLBACK")).await {
        session.ended();
    }
}

/// The way to the database broke, perhaps behind a pooler that says so in the database's stead: not an answer to COMMIT.
fn ends_connection(refusal: &DbError) -> bool {
    let class = refusal.code().code().get(..2).unwrap_or_default();
    matches!(class, "08" | "57") || matches!(refusal.severity(), "FATAL" | "PANIC")
}

/// Troubles that pass: deadlocks, lost connections, a server that stops, starts or has no room for one more.
pub(super) fn may_pass(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "08" | "40" | "53" | "57" | "25" | "55")
        // A pooler lost a prepared statement: the next connection has its own.
        || *code == SqlState::INVALID_SQL_STATEMENT_NAME
        || *code == SqlState::DUPLICATE_PSTATEMENT
}
