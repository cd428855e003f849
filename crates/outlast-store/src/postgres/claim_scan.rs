//! The line of a queue: its next jobs are locked and taken into the transaction, and what cannot be had at the moment is
//! looked at again. Says nothing about who gets them.

use std::time::Duration;

use outlast_core::Queue;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::claim_cursor::{CursorScan, ReadyRank};
use super::rows::{COLUMNS, get, job_columns};
use super::session::{Parameter, Sql};
use super::shared::StoreContext;
use super::transact::{Fault, Tx};
use crate::codec::row::IndexEntry;
use crate::page::PAGE_BYTES_MAX;

/// The row of the job is what is locked and passed over when somebody else has it: all who move a job hold it. A row of
/// `ready_and_alarm` that was there when the statement began may be outdated, so the status is asked again under the lock.
///
/// The lateral join leaves the planner no choice: from the front of the line to the jobs, one by one, until there are
/// enough. Any other way would lock more than it takes.
///
/// Of the jobs that it locks it gives only those whose payloads fit into `$6` bytes together, and always the first; the
/// others are free again with the end of the transaction. The length of a payload is known without reading it. The window
/// keeps the order of the line.
pub(super) static TAKE: Sql = Sql {
    text: concat!(
        "SELECT ",
        job_columns!(),
        ", job.payload
          FROM (
              SELECT line.*,
                  sum(octet_length(line.payload)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(line.payload)
                      AS bytes_before
              FROM (
                  SELECT job.*
                  FROM ready_and_alarm
                  CROSS JOIN LATERAL (
                      SELECT ",
        job_columns!(),
        ", job.payload
                      FROM job
                      WHERE job.seq = ready_and_alarm.seq AND job.status = 1
                      FOR UPDATE SKIP LOCKED
                  ) AS job
                  WHERE ready_and_alarm.queue = $1 AND (ready_and_alarm.place, ready_and_alarm.at, ready_and_alarm.seq) >= ($3, $4, $5)
                  ORDER BY ready_and_alarm.place, ready_and_alarm.at, ready_and_alarm.seq
                  LIMIT $2
              ) AS line
          ) AS job
          WHERE job.bytes_before < $6"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT2, Type::INT8, Type::INT8, Type::INT8],
};

/// The parameters of a look.
pub(super) struct ClaimScan {
    pub(super) queue: i32,
    limit: i64,
    bytes: i64,
    pub(super) look: CursorScan,
}

/// How much a look takes: for how many claims, and how many jobs at most.
#[derive(Clone, Copy)]
pub(super) struct ClaimBudget {
    pub(super) claims: usize,
    pub(super) jobs: usize,
}

/// Bytes of payloads that one look loads, for however many claims.
const LOOK_BYTES_MAX: usize = 8 << 20;

impl ClaimScan {
    pub(super) fn new(queue: &Queue, wanted: ClaimBudget, shared: &StoreContext) -> ClaimScan {
        let bytes =
            wanted.claims.saturating_mul(PAGE_BYTES_MAX).min(LOOK_BYTES_MAX).min(shared.handouts.free(queue.namespace));
        ClaimScan {
            queue: queue.id.0.cast_signed(),
            limit: i64::try_from(wanted.jobs).unwrap_or(i64::MAX),
            bytes: i64::try_from(bytes.max(1)).unwrap_or(i64::MAX),
            look: shared.cursors.look(queue.id),
        }
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 6] {
        let from = &self.look.from;
        [&self.queue, &self.limit, &from.place, &from.ready_at, &from.seq, &self.bytes]
    }

    pub(super) fn taken(self, rows: Vec<Row>) -> ScannedJobs {
        let bytes: usize =
            rows.iter().map(|row| get::<Option<&str>>(row, COLUMNS - 1).ok().flatten().map_or(0, str::len)).sum();
        let is_cut = i64::try_from(bytes).unwrap_or(i64::MAX) >= self.bytes;
        let is_full = is_cut || i64::try_from(rows.len()).unwrap_or(i64::MAX) >= self.limit;
        ScannedJobs { rows, look: self.look, is_full, is_cut }
    }
}

/// The result of a scan.
pub(super) struct ScannedJobs {
    pub(super) rows: Vec<Row>,
    pub(super) look: CursorScan,
    /// There may be more behind them.
    is_full: bool,
    /// Its bytes were used up.
    pub(super) is_cut: bool,
}

impl ScannedJobs {
    /// No jobs, since nothing was scanned.
    pub(super) fn none(look: CursorScan) -> ScannedJobs {
        ScannedJobs { rows: Vec::new(), look, is_full: false, is_cut: false }
    }
}

static NUMBER: Sql = Sql { text: "SELECT pg_current_xact_id()::text", types: &[] };

/// Locks the next jobs of a queue. The transaction has a number afterwards.
pub(super) async fn take(queue: &Queue, jobs: usize, tx: &mut Tx<'_>) -> Result<ScannedJobs, Fault> {
    take_for(queue, ClaimBudget { claims: 1, jobs }, tx).await
}

/// The same for several claims.
pub(super) async fn take_for(queue: &Queue, wanted: ClaimBudget, tx: &mut Tx<'_>) -> Result<ScannedJobs, Fault> {
    let taking = ClaimScan::new(queue, wanted, tx.shared);
    let rows = tx.session.query(&TAKE, &taking.parameters()).await?;
    if tx.number.is_none() && !rows.is_empty() {
        let number = tx.session.query(&NUMBER, &[]).await?;
        tx.number = number.first().and_then(|row| row.get(0));
    }
    Ok(taking.taken(rows))
}

/// Takes what a look found into the transaction and remembers how far it came.
pub(super) fn line_up(
    queue: &Queue,
    taken: &ScannedJobs,
    tx: &mut Tx<'_>,
) -> (std::vec::IntoIter<i64>, Option<Duration>) {
    let line: Vec<i64> = taken.rows.iter().filter_map(|row| tx.take_in(row)).collect();
    let last = line.last().and_then(|seq| rank(*seq, tx));
    let look_again = tx.shared.cursors.seen(queue.id, taken.look, last, taken.is_full);
    (line.into_iter(), look_again)
}

fn rank(seq: i64, tx: &Tx<'_>) -> Option<ReadyRank> {
    tx.writes.get(seq).map(|record| ReadyRank::of(&IndexEntry::of(record), record.seq))
}

/// Jobs that no claim took stay ready: later scans start there.
pub(super) fn leave(queue: &Queue, mut line: std::vec::IntoIter<i64>, tx: &mut Tx<'_>) {
    if let Some(rank) = line.next().and_then(|seq| rank(seq, tx)) {
        tx.shared.cursors.left(queue.id, rank);
    }
}

/// Bytes that responses carry of earlier attempts beside the payloads: a checkpoint in the row, and the names of the
/// sections.
static SAVED_BYTES: Sql = Sql {
    text: "
        SELECT one.seq,
            coalesce((SELECT octet_length(data) FROM checkpoint WHERE checkpoint.seq = one.seq), 0)::bigint
            + coalesce((SELECT sum(octet_length(name) + 3) FROM section WHERE section.job = one.seq), 0)::bigint
        FROM unnest($1) AS one (seq)",
    types: &[Type::INT8_ARRAY],
};

/// Reads how many bytes attempts of these jobs have saved, where they have.
pub(super) async fn read_saved_bytes(line: &[i64], tx: &mut Tx<'_>) -> Result<(), Fault> {
    let has_saved = |seq: &&i64| {
        let work_summary = tx.writes.get(**seq).map(|record| record.job.work_summary);
        work_summary.is_some_and(|work_summary| work_summary.has_checkpoint || work_summary.has_sections)
    };
    let saved: Vec<i64> = line.iter().filter(has_saved).copied().collect();
    if !saved.is_empty() {
        let rows = tx.session.query(&SAVED_BYTES, &[&saved]).await?;
        tx.saved_bytes.extend(rows.iter().map(|row| (row.get(0), usize::try_from(row.get::<_, i64>(1)).unwrap_or(0))));
    }
    Ok(())
}

pub(super) static IN_LINE: Sql = Sql {
    text: "SELECT seq FROM ready_and_alarm WHERE queue = $1 ORDER BY place, at, seq LIMIT $2",
    types: &[Type::INT4, Type::INT8],
};
/// After this a job that somebody else holds is looked at again. A transaction has mostly ended by then; if not, the same
/// happens once more.
const HELD_PAUSE: Duration = Duration::from_millis(10);

/// When claims that got nothing should retry: soon, if another transaction holds a ready job, which may be free in a
/// moment without a signal. Jobs that this transaction holds do not count.
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
