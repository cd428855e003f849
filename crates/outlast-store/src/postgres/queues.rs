//! Queues: saved, paused, deleted and counted, each under a lock on its row.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueId, Status, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::queue_cache::{QUEUE_COLUMNS, queue_columns, queue_sum, settings_json};
use super::session::Sql;
use super::shared::StoreContext;
use super::transact::{Fault, Tx};
use crate::error::Error;
use crate::queues::{QueueCounts, QueueDraft, QueueLock, QueueRows};

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
    text: "WITH counts AS (DELETE FROM queue_count WHERE queue = $1) DELETE FROM queue WHERE id = $1",
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
             LEFT JOIN queue_count ON queue_count.queue = queue.id ",
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

impl QueueRows for Tx<'_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn lock_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        lock: QueueLock,
    ) -> Result<Option<Arc<Queue>>, Fault> {
        // A deletion counts the queue's jobs, so all changes of this transaction must be sent first.
        self.writes.flush(self.session, self.shared.slot()).await?;
        let sql = if lock == QueueLock::Changes { &LOCK_TO_CHANGE } else { &LOCK };
        let rows = self.session.query(sql, &[&namespace.0.cast_signed(), &name]).await?;
        Ok(rows.first().map(|row| self.shared.registry.queue(row, 0)).transpose()?)
    }

    async fn insert_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
    ) -> Result<Option<Arc<Queue>>, Fault> {
        let (json, now) = (settings_json(&draft.settings)?, self.now.as_millis());
        let secrets = draft.secrets.as_deref();
        let number = namespace.0.cast_signed();
        let sum = queue_sum(number, name, &json, false, secrets);
        let made = self.session.query(&INSERT, &[&number, &name, &json, &now, &secrets, &sum]).await?;
        Ok(made.first().map(|row| self.shared.registry.queue(row, 0)).transpose()?)
    }

    async fn update_queue(&mut self, changed: Queue, is_gate_changed: bool) -> Result<Arc<Queue>, Fault> {
        let (json, now) = (settings_json(&changed.settings)?, self.now.as_millis());
        let (id, paused, secrets) = (changed.id.0.cast_signed(), changed.paused, changed.secrets.clone());
        let sum = queue_sum(changed.namespace.0.cast_signed(), &changed.name, &json, paused, secrets.as_deref());
        if is_gate_changed {
            self.writes.write_gate(changed);
            self.writes.flush(self.session, self.shared.slot()).await?;
        }
        let rows = self.session.query(&UPDATE, &[&id, &json, &paused, &now, &secrets.as_deref(), &sum]).await?;
        let row = rows.first().ok_or_else(|| Error::Corrupt(format!("queue {id} is gone under its lock")))?;
        Ok(self.shared.registry.queue(row, 0)?)
    }

    async fn has_jobs(&mut self, queue: &Queue) -> Result<bool, Fault> {
        let rows = self.session.query(&HAS_JOBS, &[&queue.id.0.cast_signed()]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn remove_queue(&mut self, queue: &Queue) -> Result<(), Fault> {
        self.session.execute(&DELETE, &[&queue.id.0.cast_signed()]).await?;
        Ok(())
    }
}

pub(super) async fn one(
    shared: &Arc<StoreContext>,
    namespace: NamespaceId,
    name: &str,
) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error> {
    let rows = shared.read(&ONE, &[&namespace.0.cast_signed(), &name]).await?;
    rows.first().map(|row| counted(shared, row)).transpose()
}

pub(super) async fn page(
    shared: &Arc<StoreContext>,
    namespace: NamespaceId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = shared.read(&PAGE, &[&namespace.0.cast_signed(), &after.unwrap_or_default(), &limit]).await?;
    rows.iter().map(|row| counted(shared, row)).collect()
}

/// Looks at one job of each priority that a queue has, as an index scan for each.
static OLDEST: Sql = Sql {
    text: "WITH RECURSIVE head AS (
             SELECT queue.id, first.place, first.at
             FROM queue
             CROSS JOIN LATERAL (
               SELECT place, at FROM ready_and_alarm WHERE ready_and_alarm.queue = queue.id ORDER BY place, at LIMIT 1
             ) AS first
             UNION ALL
             SELECT head.id, next.place, next.at
             FROM head
             CROSS JOIN LATERAL (
               SELECT place, at FROM ready_and_alarm WHERE ready_and_alarm.queue = head.id AND place > head.place ORDER BY place, at LIMIT 1
             ) AS next
           )
           SELECT id, min(at) FROM head GROUP BY id",
    types: &[],
};

pub(super) async fn oldest_waiting(shared: &Arc<StoreContext>) -> Result<Vec<(QueueId, Timestamp)>, Error> {
    let mut oldest = Vec::new();
    for row in shared.read(&OLDEST, &[]).await? {
        let (queue, at): (i32, i64) = (super::rows::get(&row, 0)?, super::rows::get(&row, 1)?);
        oldest.push((QueueId(queue.cast_unsigned()), Timestamp::from_millis(at)));
    }
    Ok(oldest)
}

pub(super) async fn census(shared: &Arc<StoreContext>) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error> {
    shared.read(&ALL, &[]).await?.iter().map(|row| counted(shared, row)).collect()
}

fn counted(shared: &StoreContext, row: &Row) -> Result<(Arc<Queue>, QueueCounts), Error> {
    let mut counts = QueueCounts::default();
    for (status, at) in Status::ALL.into_iter().zip(QUEUE_COLUMNS..) {
        counts.set(status, u64::try_from(super::rows::get::<i64>(row, at)?).unwrap_or(0));
    }
    Ok((shared.registry.queue(row, 0)?, counts))
}
