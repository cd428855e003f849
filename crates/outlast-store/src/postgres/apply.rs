//! Commands on single jobs, and the jobs whose alarm has rung. All jobs of a group are locked in order of their numbers,
//! so that two groups never wait for each other in a circle.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use outlast_core::{Command, Evidence, Outcome, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::alarms;
use super::group_commit::RequestGroup;
use super::key_holders;
use super::queue_cache::queue_columns;
use super::rows::job_columns;
use super::session::{Parameter, Session, Sql};
use super::shared::StoreContext;
use super::stored_sections;
use super::transact::{Fault, Tx};
use super::write_handler::{WriteHandler, WriteRequest};
use crate::alarms::Due;
use crate::checked_decide::lease_of;
use crate::codec::job_id::JobIdCodec;
use crate::error::Error;
use crate::jobs::{Applied, Claimed, Declined, JobCommand, Reach};
use crate::transition;

pub(super) static LOCK: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text FROM job WHERE job.seq = ANY ($1) ORDER BY job.seq FOR UPDATE"
    ),
    types: &[Type::INT8_ARRAY],
};
static LOCK_QUEUES: Sql = Sql {
    text: concat!(
        "SELECT ",
        queue_columns!(),
        " FROM queue WHERE queue.id = ANY ($1) ORDER BY queue.id FOR NO KEY UPDATE"
    ),
    types: &[Type::INT4_ARRAY],
};
/// Alarms that are due, and the first that is not.
pub(super) static DUE: Sql = Sql {
    text: "
        SELECT ready_and_alarm.at, ready_and_alarm.seq, job.created_at
        FROM (
            (SELECT at, seq FROM ready_and_alarm WHERE queue = 0 AND place = 0 AND at <= $2 ORDER BY at, seq LIMIT $1)
            UNION ALL
            (SELECT at, seq FROM ready_and_alarm WHERE queue = 0 AND place = 0 AND at > $2 ORDER BY at, seq LIMIT 1)
        ) AS ready_and_alarm
        JOIN job ON job.seq = ready_and_alarm.seq
        ORDER BY ready_and_alarm.at, ready_and_alarm.seq",
    types: &[Type::INT8, Type::INT8],
};

/// Passes over jobs that somebody holds.
static LOCK_FREE: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", NULL::text FROM job WHERE job.seq = ANY ($1) ORDER BY job.seq FOR UPDATE SKIP LOCKED"
    ),
    types: &[Type::INT8_ARRAY],
};

/// The commands of a group.
pub(super) struct ApplyPart<'g> {
    asks: Vec<(&'g [JobCommand], LockWait)>,
    seqs: Vec<i64>,
    /// Those of them that are waited for, and those that are passed over when somebody holds them.
    waited_for: Vec<i64>,
    passed_over: Vec<i64>,
}

/// How to treat a job that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockWait {
    /// Wait for it.
    Waits,
    /// Let somebody else wait: the rest of the group must not. Alarms do not wait at all: who holds the job is moving it,
    /// perhaps for this very alarm on another node.
    Hurries,
}

impl<'g> ApplyPart<'g> {
    pub(super) fn new(asks: Vec<(&'g [JobCommand], LockWait)>, ids: JobIdCodec) -> ApplyPart<'g> {
        let (mut seqs, mut waited_for) = (BTreeSet::new(), BTreeSet::new());
        for (orders, patience) in &asks {
            for order in *orders {
                let seq = ids.seq(order.id);
                seqs.insert(seq);
                if *patience == LockWait::Waits && !order.command.is_wake() {
                    waited_for.insert(seq);
                }
            }
        }
        let passed_over = seqs.difference(&waited_for).copied().collect();
        ApplyPart { asks, seqs: seqs.into_iter().collect(), waited_for: waited_for.into_iter().collect(), passed_over }
    }

    pub(super) async fn ready(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        if self.seqs.is_empty() { Ok(()) } else { session.ready(&[&LOCK, &LOCK_FREE]).await }
    }

    pub(super) fn seqs(&self) -> &[i64] {
        &self.seqs
    }

    /// Locks the jobs, in the first flight.
    pub(super) async fn look(&self, session: &Session) -> Result<Vec<Row>, tokio_postgres::Error> {
        let look = async |sql: &Sql, seqs: &Vec<i64>| match seqs.is_empty() {
            true => Ok(Vec::new()),
            false => session.query(sql, &[seqs]).await,
        };
        let (waited_for, passed_over) = join(look(&LOCK, &self.waited_for), look(&LOCK_FREE, &self.passed_over)).await;
        let mut rows = waited_for?;
        rows.extend(passed_over?);
        Ok(rows)
    }

    /// One answer per ask, in order; `None` where a job is held by somebody else, or is not there at all.
    pub(super) async fn finish(self, jobs: Vec<Row>, tx: &mut Tx<'_>) -> Result<Vec<Option<Outcomes>>, Fault> {
        take_in(&jobs, tx);
        let mut served: Vec<Option<&[JobCommand]>> = Vec::with_capacity(self.asks.len());
        for (orders, patience) in self.asks {
            let is_served = patience == LockWait::Waits || orders.iter().all(|order| is_here(order, tx));
            served.push(is_served.then_some(orders));
        }
        lock_queues(&served, tx).await?;
        key_holders::load(&replayed(&served, tx.shared.ids), tx).await?;
        stored_sections::load(&saved_sections(&served, tx.shared.ids), tx).await?;
        let mut answers = Vec::with_capacity(served.len());
        for orders in served {
            let Some(orders) = orders else {
                answers.push(None);
                continue;
            };
            answers.push(Some(orders.iter().map(|order| apply_one(order, tx)).collect::<Result<_, Fault>>()?));
        }
        Ok(answers)
    }
}

pub(super) type Outcomes = Vec<Result<Applied, Declined>>;

/// Was the job found, or need it not be?
fn is_here(order: &JobCommand, tx: &Tx<'_>) -> bool {
    let seq = tx.shared.ids.seq(order.id);
    order.command.is_wake() || tx.writes.has_in_hand(seq)
}

/// Locks more jobs inside a transaction that has begun and knows their queue.
pub(super) async fn load_more(seqs: &[i64], tx: &mut Tx<'_>) -> Result<(), Fault> {
    let jobs = tx.session.query(&LOCK, &[&seqs]).await?;
    take_in(&jobs, tx);
    Ok(())
}

fn take_in(jobs: &[Row], tx: &mut Tx<'_>) {
    for row in jobs {
        tx.take_in(row);
    }
}

/// The jobs to be replayed.
fn replayed(served: &[Option<&[JobCommand]>], ids: JobIdCodec) -> Vec<i64> {
    let orders = served.iter().copied().flatten().flatten();
    orders.filter(|order| order.command.is_replay()).map(|order| ids.seq(order.id)).collect()
}

/// The jobs that get another section, with its name.
fn saved_sections(served: &[Option<&[JobCommand]>], ids: JobIdCodec) -> Vec<(i64, Box<str>)> {
    let orders = served.iter().copied().flatten().flatten();
    let saved = |order: &JobCommand| match &order.command {
        Command::Section { section, .. } => Some((ids.seq(order.id), section.name.clone())),
        _ => None,
    };
    orders.filter_map(saved).collect()
}

/// A queue's hold is decided on alone. Locked are the queues that have one and those that may get one.
async fn lock_queues(served: &[Option<&[JobCommand]>], tx: &mut Tx<'_>) -> Result<(), Fault> {
    let mut queues: BTreeSet<i32> = BTreeSet::new();
    for order in served.iter().copied().flatten().flatten() {
        let defers = matches!(order.command, Command::Report { outcome: Outcome::Defer { .. }, .. });
        let queue = tx.writes.get(tx.shared.ids.seq(order.id)).and_then(|record| tx.writes.queue(record.job.queue));
        if let Some(queue) = queue.filter(|queue| defers || queue.hold.is_some()) {
            queues.insert(queue.id.0.cast_signed());
        }
    }
    lock_holds(&queues.into_iter().collect::<Vec<_>>(), tx).await
}

pub(super) async fn lock_holds(queues: &[i32], tx: &mut Tx<'_>) -> Result<(), Fault> {
    if queues.is_empty() {
        return Ok(());
    }
    for row in &tx.session.query(&LOCK_QUEUES, &[&queues]).await? {
        let queue = tx.shared.registry.queue(row, 0)?;
        tx.writes.know_queue(queue);
    }
    Ok(())
}

fn apply_one(order: &JobCommand, tx: &mut Tx<'_>) -> Result<Result<Applied, Declined>, Fault> {
    let seq = tx.shared.ids.seq(order.id);
    // An alarm of a job that cannot be read is silenced by this transaction.
    if !order.command.is_wake() && tx.writes.set_aside.contains(&seq) {
        return Err(Error::Corrupt(format!("job row {seq}")).into());
    }
    transition::apply(tx, order)
}

/// Jobs whose alarm has rung by the time this node knows; whether it really has is decided by `apply`.
pub(super) async fn due(shared: &Arc<StoreContext>, limit: usize) -> Result<Due, Error> {
    let now = shared.now();
    let limit_and_next = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let parameters: [Parameter<'_>; 2] = [&limit_and_next, &now.as_millis()];
    let (rows, others) = join(shared.read(&DUE, &parameters), alarms::others(shared)).await;
    let mut due = Due { others: others?, ..Due::default() };
    for row in rows? {
        let at = Timestamp::from_millis(row.get(0));
        if at > now || due.jobs.len() >= limit {
            due.next = Some(at);
            break;
        }
        due.jobs.push(shared.ids.id(row.get(1), Timestamp::from_millis(row.get(2))));
    }
    Ok(due)
}

/// Hands back jobs whose receiver has disconnected. If it fails, their leases run out.
pub(super) fn release(shared: &Arc<StoreContext>, claimed: Option<Claimed>) {
    let orders: Vec<JobCommand> = claimed
        .into_iter()
        .flat_map(|claimed| claimed.jobs)
        .filter_map(|job| {
            let command =
                Command::Report { lease: lease_of(&job), outcome: Outcome::Release, evidence: Evidence::default() };
            lease_of(&job).map(|_| JobCommand { id: job.id, reach: Reach::Everything, command })
        })
        .collect();
    if orders.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _ = shared
            .transact(&mut RequestGroup::<WriteHandler>::new(
                &[WriteRequest::Apply(orders.into(), LockWait::Waits)],
                None,
            ))
            .await;
    });
}
