//! Queues: saved, paused, deleted and counted, each under a lock on its row.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, Status};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::registry::{QUEUE_COLUMNS, queue_columns, queue_sum, settings_json};
use super::session::Sql;
use super::shared::Shared;
use super::transact::{Fault, Tx};
use crate::error::Error;
use crate::queues::{Counts, DeleteRefusal, Expect, QueueDraft, SaveRefusal, Saved};

/// For changes: publishers, who hold the row against deletion, need not be waited for.
static LOCK_TO_CHANGE: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2 FOR NO KEY UPDATE"),
    types: &[Type::INT4, Type::TEXT],
};
static LOCK: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2 FOR UPDATE"),
    types: &[Type::INT4, Type::TEXT],
};
static INSERT: Sql = Sql {
    text: concat!(
        "INSERT INTO queue (namespace, name, settings, paused, version, created_at, updated_at, secrets, checksum)
         VALUES ($1, $2, $3, false, 1, $4, $4, $5, $6)
         ON CONFLICT (namespace, name) DO NOTHING
         RETURNING ",
        queue_columns!()
    ),
    types: &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8, Type::BYTEA, Type::INT4],
};
static UPDATE: Sql = Sql {
    text: concat!(
        "UPDATE queue
         SET settings = $2, paused = $3, version = version + 1, updated_at = $4, secrets = $5, checksum = $6
         WHERE id = $1
         RETURNING ",
        queue_columns!()
    ),
    types: &[Type::INT4, Type::TEXT, Type::BOOL, Type::INT8, Type::BYTEA, Type::INT4],
};
static HAS_JOBS: Sql = Sql { text: "SELECT EXISTS (SELECT FROM job WHERE queue = $1)", types: &[Type::INT4] };
static DELETE: Sql = Sql {
    text: "WITH counts AS (DELETE FROM tally WHERE queue = $1) DELETE FROM queue WHERE id = $1",
    types: &[Type::INT4],
};

/// The counts of a queue, in the order of `Status::ALL`, after its own columns.
macro_rules! counted {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            queue_columns!(),
            ", coalesce(sum(pending), 0)::bigint, coalesce(sum(queued), 0)::bigint, coalesce(sum(running), 0)::bigint,
               coalesce(sum(succeeded), 0)::bigint, coalesce(sum(failed), 0)::bigint,
               coalesce(sum(cancelled), 0)::bigint, coalesce(sum(expired), 0)::bigint
             FROM queue
             LEFT JOIN tally ON tally.queue = queue.id ",
            $rest
        )
    };
}
static ONE: Sql =
    Sql { text: counted!("WHERE namespace = $1 AND name = $2 GROUP BY queue.id"), types: &[Type::INT4, Type::TEXT] };
static PAGE: Sql = Sql {
    text: counted!("WHERE namespace = $1 AND name > $2 GROUP BY queue.id ORDER BY queue.name LIMIT $3"),
    types: &[Type::INT4, Type::TEXT, Type::INT8],
};
static ALL: Sql = Sql { text: counted!("GROUP BY queue.id"), types: &[] };

async fn lock(sql: &Sql, namespace: NamespaceId, name: &str, tx: &mut Tx<'_>) -> Result<Option<Arc<Queue>>, Fault> {
    let rows = tx.session.query(sql, &[&namespace.0.cast_signed(), &name]).await?;
    Ok(rows.first().map(|row| tx.shared.registry.queue(row, 0)).transpose()?)
}

pub(super) async fn save(
    namespace: NamespaceId,
    name: &str,
    draft: &QueueDraft,
    expect: Expect,
    tx: &mut Tx<'_>,
) -> Result<Result<Saved, SaveRefusal>, Fault> {
    tx.begin_write().await?;
    loop {
        let present = lock(&LOCK_TO_CHANGE, namespace, name, tx).await?;
        if let Some(refusal) = expect.refusal(present.as_deref()) {
            return Ok(Err(refusal));
        }
        match present {
            Some(queue) if draft.is_present(&queue) => return Ok(Ok(Saved { queue, created: false })),
            Some(queue) => {
                let changed = draft.applied_to(&queue, tx.now);
                if changed.hold != queue.hold || changed.pace != queue.pace {
                    tx.writes.write_gate(changed.clone());
                    tx.writes.flush(tx.session, tx.shared.slot()).await?;
                }
                let queue = update(&changed, tx).await?;
                return Ok(Ok(Saved { queue, created: false }));
            }
            None => {
                if let Some(queue) = insert(namespace, name, draft, tx).await? {
                    return Ok(Ok(Saved { queue, created: true }));
                }
                // Somebody else made it in between: look again.
            }
        }
    }
}

/// `None` when somebody else has made it.
pub(super) async fn insert(
    namespace: NamespaceId,
    name: &str,
    draft: &QueueDraft,
    tx: &mut Tx<'_>,
) -> Result<Option<Arc<Queue>>, Fault> {
    let (json, now) = (settings_json(&draft.settings)?, tx.now.as_millis());
    let secrets = draft.secrets.as_deref();
    let number = namespace.0.cast_signed();
    let sum = queue_sum(number, name, &json, false, secrets);
    let made = tx.session.query(&INSERT, &[&number, &name, &json, &now, &secrets, &sum]).await?;
    Ok(made.first().map(|row| tx.shared.registry.queue(row, 0)).transpose()?)
}

pub(super) async fn set_paused(
    namespace: NamespaceId,
    name: &str,
    paused: bool,
    tx: &mut Tx<'_>,
) -> Result<Option<Arc<Queue>>, Fault> {
    tx.begin_write().await?;
    match lock(&LOCK_TO_CHANGE, namespace, name, tx).await? {
        Some(queue) if queue.paused != paused => Ok(Some(update(&Queue { paused, ..Queue::clone(&queue) }, tx).await?)),
        found => Ok(found),
    }
}

pub(super) async fn delete(
    namespace: NamespaceId,
    name: &str,
    tx: &mut Tx<'_>,
) -> Result<Result<(), DeleteRefusal>, Fault> {
    tx.begin_write().await?;
    // Publishers hold the row against deletion, so none is half way.
    let Some(queue) = lock(&LOCK, namespace, name, tx).await? else {
        return Ok(Err(DeleteRefusal::NotFound));
    };
    if has_jobs(&queue, tx).await? {
        return Ok(Err(DeleteRefusal::NotEmpty));
    }
    remove(&queue, tx).await?;
    Ok(Ok(()))
}

pub(super) async fn has_jobs(queue: &Queue, tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let rows = tx.session.query(&HAS_JOBS, &[&queue.id.0.cast_signed()]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// The queue has no jobs, and its row is locked.
pub(super) async fn remove(queue: &Queue, tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.session.execute(&DELETE, &[&queue.id.0.cast_signed()]).await?;
    Ok(())
}

/// Locks a queue by its number and its name, so that nobody publishes to it.
pub(super) async fn lock_whole(queue: &Queue, tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let found = lock(&LOCK, queue.namespace, &queue.name, tx).await?;
    Ok(found.is_some_and(|found| found.id == queue.id))
}

async fn update(queue: &Queue, tx: &mut Tx<'_>) -> Result<Arc<Queue>, Fault> {
    let (json, now) = (settings_json(&queue.settings)?, tx.now.as_millis());
    let secrets = queue.secrets.as_deref();
    let sum = queue_sum(queue.namespace.0.cast_signed(), &queue.name, &json, queue.paused, secrets);
    let id = queue.id.0.cast_signed();
    let rows = tx.session.query(&UPDATE, &[&id, &json, &queue.paused, &now, &secrets, &sum]).await?;
    let row = rows.first().ok_or_else(|| Error::Corrupt(format!("queue {} is gone under its lock", queue.id.0)))?;
    Ok(tx.shared.registry.queue(row, 0)?)
}

pub(super) async fn one(
    shared: &Arc<Shared>,
    namespace: NamespaceId,
    name: &str,
) -> Result<Option<(Arc<Queue>, Counts)>, Error> {
    let rows = shared.read(&ONE, &[&namespace.0.cast_signed(), &name]).await?;
    rows.first().map(|row| counted(shared, row)).transpose()
}

pub(super) async fn page(
    shared: &Arc<Shared>,
    namespace: NamespaceId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = shared.read(&PAGE, &[&namespace.0.cast_signed(), &after.unwrap_or_default(), &limit]).await?;
    rows.iter().map(|row| counted(shared, row)).collect()
}

pub(super) async fn census(shared: &Arc<Shared>) -> Result<Vec<(Arc<Queue>, Counts)>, Error> {
    shared.read(&ALL, &[]).await?.iter().map(|row| counted(shared, row)).collect()
}

fn counted(shared: &Shared, row: &Row) -> Result<(Arc<Queue>, Counts), Error> {
    let mut counts = Counts::default();
    for (status, at) in Status::ALL.into_iter().zip(QUEUE_COLUMNS..) {
        counts.set(status, u64::try_from(super::rows::get::<i64>(row, at)?).unwrap_or(0));
    }
    Ok((shared.registry.queue(row, 0)?, counts))
}
