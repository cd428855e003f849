//! The line of a queue: its next jobs are locked and taken into the transaction, and what cannot be had at the moment is
//! looked at again. Says nothing about who gets them.

use std::time::Duration;

use outlast_core::Queue;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::marks::{Look, Marks, Rank};
use super::rows::job_columns;
use super::session::{Parameter, Sql};
use super::transact::{Fault, Tx};
use super::write::Place;

/// The row of the job is what is locked and passed over when somebody else has it: all who move a job hold it. A row of
/// `turn` that was there when the statement began may be outdated, so the status is asked again under the lock.
///
/// The lateral join leaves the planner no choice: from the front of the line to the jobs, one by one, until there are
/// enough. Any other way would lock more than it takes.
pub(super) static TAKE: Sql = Sql {
    text: concat!(
        "SELECT job.*
          FROM turn
          CROSS JOIN LATERAL (
              SELECT ",
        job_columns!(),
        ", job.payload
              FROM job
              WHERE job.seq = turn.seq AND job.status = 1
              FOR UPDATE SKIP LOCKED
          ) AS job
          WHERE turn.queue = $1 AND (turn.place, turn.at, turn.seq) >= ($3, $4, $5)
          ORDER BY turn.place, turn.at, turn.seq
          LIMIT $2"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT2, Type::INT8, Type::INT8],
};

/// The parameters of a look.
pub(super) struct Taking {
    pub(super) queue: i32,
    limit: i64,
    pub(super) look: Look,
}

impl Taking {
    pub(super) fn new(queue: &Queue, limit: usize, marks: &Marks) -> Taking {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Taking { queue: queue.id.0.cast_signed(), limit, look: marks.look(queue.id) }
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 5] {
        let from = &self.look.from;
        [&self.queue, &self.limit, &from.place, &from.ready_at, &from.seq]
    }
}

static NUMBER: Sql = Sql { text: "SELECT pg_current_xact_id()::text", types: &[] };

/// Locks the next jobs of a queue. The transaction has a number afterwards.
pub(super) async fn take(queue: &Queue, limit: usize, tx: &mut Tx<'_>) -> Result<(Vec<Row>, Look), Fault> {
    let taking = Taking::new(queue, limit, &tx.shared.marks);
    let rows = tx.session.query(&TAKE, &taking.parameters()).await?;
    if tx.number.is_none() && !rows.is_empty() {
        let number = tx.session.query(&NUMBER, &[]).await?;
        tx.number = number.first().and_then(|row| row.get(0));
    }
    Ok((rows, taking.look))
}

/// Takes what a look found into the transaction and remembers how far it came.
pub(super) fn line_up(
    queue: &Queue,
    rows: &[Row],
    look: Look,
    limit: usize,
    tx: &mut Tx<'_>,
) -> (std::vec::IntoIter<i64>, Option<Duration>) {
    let line: Vec<i64> = rows.iter().filter_map(|row| tx.take_in(row)).collect();
    let last = line.last().and_then(|seq| tx.writes.get(*seq)).map(|last| Rank::of(&Place::of(last), last.seq));
    let look_again = tx.shared.marks.seen(queue.id, look, last, rows.len() >= limit);
    (line.into_iter(), look_again)
}

pub(super) static IN_LINE: Sql = Sql {
    text: "SELECT seq FROM turn WHERE queue = $1 ORDER BY place, at, seq LIMIT $2",
    types: &[Type::INT4, Type::INT8],
};
/// After this a job that somebody else holds is looked at again. A transaction has mostly ended by then; if not, the same
/// happens once more.
const HELD_PAUSE: Duration = Duration::from_millis(10);

/// When those who got nothing should look again: soon, if somebody else holds a job in line, which may be free in a
/// moment without anybody telling. What this transaction itself has in hand is no reason.
pub(super) async fn look_again(
    queue: &Queue,
    planned: Option<Duration>,
    tx: &mut Tx<'_>,
) -> Result<Option<Duration>, Fault> {
    let one_more = i64::try_from(tx.writes.in_hand() + 1).unwrap_or(i64::MAX);
    let rows = tx.session.query(&IN_LINE, &[&queue.id.0.cast_signed(), &one_more]).await?;
    let is_held_by_others = rows.iter().any(|row| !tx.writes.has_in_hand(row.get(0)));
    Ok(if is_held_by_others { Some(HELD_PAUSE) } else { planned })
}
