//! Operations: each next_step changes some jobs and the position in one transaction. The operation's row is the lock: of
//! several nodes that try at once, one goes on and the others leave it alone.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::apply::{load_more, lock_holds};
use super::key_holders;
use super::queue_cache::queue_columns;
use super::rows::{get, job_columns, record};
use super::session::{Parameter, Sql};
use super::shared::StoreContext;
use super::transact::{Fault, Tx};
use super::unit_of_work::LoadedRow;
use crate::codec::row::{from_json, to_json};
use crate::error::Error;
use crate::operations::{NewOperation, Operation, OperationId, OperationKind, OperationRows, OperationStep, next_step};

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
    text: "SELECT seq FROM dead_letter WHERE queue = $1 AND seq > $2 ORDER BY seq LIMIT $3",
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

impl OperationRows for Tx<'_> {
    const LOOK_MAX: usize = LOOK_MAX;

    async fn insert_operation(&mut self, draft: Operation) -> Result<Operation, Fault> {
        let (namespace, queue) = (draft.namespace.0.cast_signed(), draft.queue.0.cast_signed());
        let (name, kind, filter) = (&draft.queue_name, draft.kind.as_str(), to_json(&draft.filter)?);
        let (take, rate) = (draft.limit.map(u64::cast_signed), draft.rate_per_second.map(i64::from));
        let now = draft.created_at.as_millis();
        let columns: [Parameter<'_>; 8] = [&namespace, &queue, name, &kind, &filter, &take, &rate, &now];
        let made = self.session.query(&INSERT, &columns).await?;
        Ok(operation(made.first().ok_or(Fault::Silent)?)?)
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Fault> {
        let (id, status) = (operation.id.0.cast_signed(), operation.status.as_str());
        let (position, processed) = (operation.position.cast_signed(), operation.processed.cast_signed());
        let (finished_at, skipped) = (operation.finished_at.map(Timestamp::as_millis), operation.skipped.cast_signed());
        self.session.execute(&UPDATE, &[&id, &status, &position, &processed, &finished_at, &skipped]).await?;
        Ok(())
    }

    async fn lock_operation(&mut self, id: OperationId, waits: bool) -> Result<(Option<Operation>, bool), Fault> {
        let (number, lock) = (id.0.cast_signed(), if waits { &LOCK } else { &LOCK_IF_FREE });
        let locked = self.session.query(lock, &[&number]).await?.first().map(operation).transpose()?;
        if locked.is_some() {
            return Ok((locked, true));
        }
        Ok((self.session.query(&ONE, &[&number]).await?.first().map(operation).transpose()?, false))
    }

    async fn queue_of(&mut self, operation: &Operation) -> Result<Option<Arc<Queue>>, Fault> {
        let found = self.session.query(&QUEUE_BY_ID, &[&operation.queue.0.cast_signed()]).await?;
        Ok(found.first().map(|row| self.shared.registry.queue(row, 0)).transpose()?)
    }

    async fn load_candidates(&mut self, operation: &Operation) -> Result<Vec<i64>, Fault> {
        let (queue, position) = (operation.queue.0.cast_signed(), operation.position.cast_signed());
        let limit = i64::try_from(LOOK_MAX).unwrap_or(i64::MAX);
        let rows = self.session.query(next(operation.kind), &[&queue, &position, &limit]).await?;
        let rows: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        load_more(&rows, self).await?;
        // Read again under a lock: the hold may name one of these jobs by now.
        lock_holds(&[queue], self).await?;
        if operation.kind == OperationKind::Replay {
            key_holders::load(&rows, self).await?;
        }
        Ok(rows)
    }

    fn take_row(&mut self, seq: i64) -> Result<Option<LoadedRow>, Fault> {
        Ok(self.writes.take(seq))
    }

    /// Numbers are given out before they are committed.
    async fn first_readable(&mut self, queue: &Queue) -> Result<Option<i64>, Fault> {
        let (id, limit) = (queue.id.0.cast_signed(), i64::try_from(LOOK_MAX).unwrap_or(i64::MAX));
        let mut position = 0_i64;
        loop {
            let rows = self.session.query(&NEXT_OF_QUEUE, &[&id, &position, &limit]).await?;
            let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let Some(last) = seqs.last() else {
                return Ok(None);
            };
            position = *last;
            let rows = self.session.query(&JOBS, &[&seqs]).await?;
            let readable = rows.iter().filter(|row| record(row, self.shared.ids).is_ok()).map(|row| row.get(0)).min();
            if readable.is_some() {
                return Ok(readable);
            }
        }
    }
}

pub(super) async fn one(shared: &Arc<StoreContext>, id: OperationId) -> Result<Option<Operation>, Error> {
    shared.read(&ONE, &[&id.0.cast_signed()]).await?.first().map(operation).transpose()
}

pub(super) async fn newest(
    shared: &Arc<StoreContext>,
    namespace: NamespaceId,
    limit: usize,
) -> Result<Vec<Operation>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    shared.read(&NEWEST, &[&namespace.0.cast_signed(), &limit]).await?.iter().map(operation).collect()
}

pub(super) async fn open(shared: &Arc<StoreContext>) -> Result<Vec<Operation>, Error> {
    shared.read(&OPEN, &[]).await?.iter().map(operation).collect()
}

fn next(kind: OperationKind) -> &'static Sql {
    match kind {
        OperationKind::Replay | OperationKind::Discard => &NEXT_DEAD,
        OperationKind::Purge | OperationKind::Delete => &NEXT_OF_QUEUE,
    }
}

/// How many jobs it would touch, counting at most `limit`.
pub(super) async fn count(shared: &Arc<StoreContext>, new: &NewOperation, limit: usize) -> Result<u64, Error> {
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
            count += u64::from(next_step(&operation, &record.job) != OperationStep::Skip);
            if count >= limit {
                return Ok(count);
            }
        }
    }
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
