//! Operations: each step changes some jobs and the position in one transaction. The operation's row is the lock: of
//! several nodes that try at once, one goes on and the others leave it alone.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::apply::{load_more, lock_holds};
use super::key_holders;
use super::queues::{has_jobs, lock_whole, remove};
use super::registry::queue_columns;
use super::rows::{get, job_columns, record};
use super::session::Sql;
use super::shared::Shared;
use super::transact::{Fault, Tx};
use crate::error::Error;
use crate::operations::{NewOperation, Operation, OperationId, OperationKind, OperationStatus, Step, step};
use crate::rows::{from_json, to_json};
use crate::transition::operate;

/// Rows one step looks at, whether they match or not: what bounds its time and its locks.
const LOOK_MAX: usize = 500;

macro_rules! select_operations {
    ($rest:literal) => {
        concat!(
            "SELECT id, namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position, processed,
                    created_at, finished_at, skipped
             FROM operation ",
            $rest
        )
    };
}
static ONE: Sql = Sql { text: select_operations!("WHERE id = $1"), types: &[Type::INT4] };
static LOCK: Sql = Sql { text: select_operations!("WHERE id = $1 FOR UPDATE"), types: &[Type::INT4] };
static LOCK_IF_FREE: Sql =
    Sql { text: select_operations!("WHERE id = $1 FOR UPDATE SKIP LOCKED"), types: &[Type::INT4] };
static NEWEST: Sql = Sql {
    text: select_operations!("WHERE namespace = $1 ORDER BY id DESC LIMIT $2"),
    types: &[Type::INT4, Type::INT8],
};
static OPEN: Sql = Sql { text: select_operations!("WHERE status = 'running' ORDER BY id LIMIT 10000"), types: &[] };
static INSERT: Sql = Sql {
    text: "
        INSERT INTO operation (namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position,
                               processed, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', 0, 0, $8)
        RETURNING id, namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position, processed,
                  created_at, finished_at, skipped",
    types: &[Type::INT4, Type::INT4, Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8, Type::INT8],
};
static UPDATE: Sql = Sql {
    text: "UPDATE operation SET status = $2, position = $3, processed = $4, finished_at = $5, skipped = $6 WHERE id = $1",
    types: &[Type::INT4, Type::TEXT, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
};
static QUEUE_BY_NAME: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2"),
    types: &[Type::INT4, Type::TEXT],
};
static QUEUE_BY_ID: Sql =
    Sql { text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE id = $1"), types: &[Type::INT4] };
static NEXT_DEAD: Sql = Sql {
    text: "SELECT seq FROM dead WHERE queue = $1 AND seq > $2 ORDER BY seq LIMIT $3",
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
static NEXT_OF_QUEUE: Sql = Sql {
    text: "SELECT seq FROM job WHERE queue = $1 AND seq > $2 ORDER BY seq LIMIT $3",
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
static JOBS: Sql = Sql {
    text: concat!("SELECT ", job_columns!(), ", NULL::text FROM job WHERE job.seq = ANY ($1)"),
    types: &[Type::INT8_ARRAY],
};

/// `None` when there is no such queue.
pub(super) async fn start(new: &NewOperation, tx: &mut Tx<'_>) -> Result<Option<Operation>, Fault> {
    tx.begin_write().await?;
    let namespace = new.namespace.0.cast_signed();
    let found = tx.session.query(&QUEUE_BY_NAME, &[&namespace, &new.queue]).await?;
    let Some(queue) = found.first().map(|row| tx.shared.registry.queue(row, 0)).transpose()? else {
        return Ok(None);
    };
    let (kind, filter) = (new.kind.as_str(), to_json(&new.filter)?);
    let (take, rate) = (new.limit.map(u64::cast_signed), new.rate_per_second.map(i64::from));
    let (id, now) = (queue.id.0.cast_signed(), tx.now.as_millis());
    let made = tx.session.query(&INSERT, &[&namespace, &id, &queue.name, &kind, &filter, &take, &rate, &now]).await?;
    Ok(made.first().map(operation).transpose()?)
}

pub(super) async fn one(shared: &Arc<Shared>, id: OperationId) -> Result<Option<Operation>, Error> {
    shared.read(&ONE, &[&id.0.cast_signed()]).await?.first().map(operation).transpose()
}

pub(super) async fn newest(
    shared: &Arc<Shared>,
    namespace: NamespaceId,
    limit: usize,
) -> Result<Vec<Operation>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    shared.read(&NEWEST, &[&namespace.0.cast_signed(), &limit]).await?.iter().map(operation).collect()
}

pub(super) async fn open(shared: &Arc<Shared>) -> Result<Vec<Operation>, Error> {
    shared.read(&OPEN, &[]).await?.iter().map(operation).collect()
}

pub(super) async fn stop(namespace: NamespaceId, id: OperationId, tx: &mut Tx<'_>) -> Result<Option<Operation>, Fault> {
    tx.begin_write().await?;
    let found = tx.session.query(&LOCK, &[&id.0.cast_signed()]).await?.first().map(operation).transpose()?;
    let Some(mut operation) = found.filter(|operation| operation.namespace == namespace) else {
        return Ok(None);
    };
    if operation.status == OperationStatus::Running {
        operation.status = OperationStatus::Stopped;
        operation.finished_at = Some(tx.now);
        save(&operation, tx).await?;
    }
    Ok(Some(operation))
}

/// Does up to `limit` jobs. `None` when there is no such operation. One that another node is at stays as it is.
pub(super) async fn advance(id: OperationId, limit: usize, tx: &mut Tx<'_>) -> Result<Option<Operation>, Fault> {
    tx.begin_write().await?;
    let number = id.0.cast_signed();
    let locked = tx.session.query(&LOCK_IF_FREE, &[&number]).await?.first().map(operation).transpose()?;
    let Some(mut operation) = locked else {
        return Ok(tx.session.query(&ONE, &[&number]).await?.first().map(operation).transpose()?);
    };
    if operation.status != OperationStatus::Running {
        return Ok(Some(operation));
    }
    let found = tx.session.query(&QUEUE_BY_ID, &[&operation.queue.0.cast_signed()]).await?;
    let queue = found.first().map(|row| tx.shared.registry.queue(row, 0)).transpose()?;
    let exhausted = match &queue {
        Some(queue) => walk(&mut operation, queue, limit, tx).await?,
        None => true,
    };
    if exhausted || operation.is_full() {
        operation.status = match queue {
            Some(queue) if operation.kind == OperationKind::Delete => end_deletion(&mut operation, &queue, tx).await?,
            _ => OperationStatus::Done,
        };
        operation.finished_at = (operation.status != OperationStatus::Running).then_some(tx.now);
    }
    save(&operation, tx).await?;
    Ok(Some(operation))
}

/// Removes the queue if nothing is left of it, or else says how it goes on.
async fn end_deletion(operation: &mut Operation, queue: &Queue, tx: &mut Tx<'_>) -> Result<OperationStatus, Fault> {
    tx.writes.flush(tx.session, tx.shared.slot()).await?;
    if !lock_whole(queue, tx).await? {
        return Ok(OperationStatus::Done);
    }
    if !has_jobs(queue, tx).await? {
        remove(queue, tx).await?;
        return Ok(OperationStatus::Done);
    }
    if operation.is_full() {
        return Ok(OperationStatus::Done);
    }
    // A job came in behind the position: numbers are given out before they are committed.
    if let Some(seq) = first_readable(queue, tx).await? {
        operation.position = seq.saturating_sub(1).cast_unsigned();
        return Ok(OperationStatus::Running);
    }
    tracing::error!(operation = operation.id.0, queue = queue.name, "a queue stays: jobs that are left cannot be read");
    Ok(OperationStatus::Stuck)
}

/// The first job of a queue that an operation can take. `None` when there is none but damaged ones.
async fn first_readable(queue: &Queue, tx: &mut Tx<'_>) -> Result<Option<i64>, Fault> {
    let (id, limit) = (queue.id.0.cast_signed(), i64::try_from(LOOK_MAX).unwrap_or(i64::MAX));
    let mut position = 0_i64;
    loop {
        let rows = tx.session.query(&NEXT_OF_QUEUE, &[&id, &position, &limit]).await?;
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let Some(last) = seqs.last() else {
            return Ok(None);
        };
        position = *last;
        let rows = tx.session.query(&JOBS, &[&seqs]).await?;
        let readable = rows.iter().filter(|row| record(row, tx.shared.ids).is_ok()).map(|row| row.get(0)).min();
        if readable.is_some() {
            return Ok(readable);
        }
    }
}

/// True when there is nothing left to look at.
async fn walk(operation: &mut Operation, queue: &Queue, limit: usize, tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let rows = candidates(operation, LOOK_MAX, tx).await?;
    load_more(&rows, tx).await?;
    // Read again under a lock: the hold may name one of these jobs by now.
    lock_holds(&[queue.id.0.cast_signed()], tx).await?;
    if operation.kind == OperationKind::Replay {
        key_holders::load(&rows, tx).await?;
    }
    let mut done = 0;
    for seq in &rows {
        if done >= limit || operation.is_full() {
            return Ok(false);
        }
        if let (Some(entry), Some(queue)) = (tx.writes.take(*seq), tx.writes.queue(queue.id).cloned()) {
            let processed = operate(tx, entry, operation, &queue)?;
            done += usize::from(operation.count(processed));
        }
        operation.position = seq.cast_unsigned();
    }
    Ok(rows.len() < LOOK_MAX)
}

async fn candidates(operation: &Operation, limit: usize, tx: &mut Tx<'_>) -> Result<Vec<i64>, Fault> {
    let (queue, position) = (operation.queue.0.cast_signed(), operation.position.cast_signed());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.session.query(next(operation.kind), &[&queue, &position, &limit]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn next(kind: OperationKind) -> &'static Sql {
    match kind {
        OperationKind::Replay | OperationKind::Discard => &NEXT_DEAD,
        OperationKind::Purge | OperationKind::Delete => &NEXT_OF_QUEUE,
    }
}

/// How many jobs it would touch, counting at most `limit`.
pub(super) async fn count(shared: &Arc<Shared>, new: &NewOperation, limit: usize) -> Result<u64, Error> {
    let found = shared.read(&QUEUE_BY_NAME, &[&new.namespace.0.cast_signed(), &new.queue]).await?;
    let Some(queue) = found.first().map(|row| shared.registry.queue(row, 0)).transpose()? else {
        return Ok(0);
    };
    let mut operation = new.draft(&queue, shared.now());
    let (mut count, limit) = (0, u64::try_from(limit).unwrap_or(u64::MAX));
    loop {
        let (id, position) = (queue.id.0.cast_signed(), operation.position.cast_signed());
        let look = i64::try_from(LOOK_MAX).unwrap_or(i64::MAX);
        let rows = shared.read(next(operation.kind), &[&id, &position, &look]).await?;
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let Some(last) = seqs.last() else {
            return Ok(count);
        };
        operation.position = last.cast_unsigned();
        for row in &shared.read(&JOBS, &[&seqs]).await? {
            let record = record(row, shared.ids)?;
            count += u64::from(step(&operation, &record.job) != Step::Skip);
            if count >= limit {
                return Ok(count);
            }
        }
    }
}

async fn save(operation: &Operation, tx: &mut Tx<'_>) -> Result<(), Fault> {
    let (id, status) = (operation.id.0.cast_signed(), operation.status.as_str());
    let (position, processed) = (operation.position.cast_signed(), operation.processed.cast_signed());
    let (finished_at, skipped) = (operation.finished_at.map(Timestamp::as_millis), operation.skipped.cast_signed());
    tx.session.execute(&UPDATE, &[&id, &status, &position, &processed, &finished_at, &skipped]).await?;
    Ok(())
}

fn operation(row: &Row) -> Result<Operation, Error> {
    let word = |at: usize| get::<&str>(row, at).map(|word| format!("\"{word}\""));
    Ok(Operation {
        id: OperationId(get::<i32>(row, 0)?.cast_unsigned()),
        namespace: NamespaceId(get::<i32>(row, 1)?.cast_unsigned()),
        queue: QueueId(get::<i32>(row, 2)?.cast_unsigned()),
        queue_name: get(row, 3)?,
        kind: from_json(&word(4)?)?,
        filter: from_json(get(row, 5)?)?,
        limit: get::<Option<i64>>(row, 6)?.map(i64::cast_unsigned),
        rate_per_second: get::<Option<i64>>(row, 7)?.and_then(|rate| u32::try_from(rate).ok()),
        status: from_json(&word(8)?)?,
        position: get::<i64>(row, 9)?.cast_unsigned(),
        processed: get::<i64>(row, 10)?.cast_unsigned(),
        skipped: get::<i64>(row, 13)?.cast_unsigned(),
        created_at: Timestamp::from_millis(get(row, 11)?),
        finished_at: get::<Option<i64>>(row, 12)?.map(Timestamp::from_millis),
    })
}
