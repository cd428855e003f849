//! The jobs that state changes create, published in the transaction of the change. A system queue is made when it is first
//! needed.

use std::sync::Arc;

use outlast_core::{Queue, system_queue};
use tokio_postgres::types::Type;

use super::publish::PublishPart;
use super::queue_cache::queue_columns;
use super::session::Sql;
use super::transact::{Fault, QueueName, Queues, Tx};
use crate::publish::Publisher;
use crate::queues::QueueRows;

/// The queue must not go while jobs are put into it.
static FIND: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2 FOR KEY SHARE"),
    types: &[Type::INT4, Type::TEXT],
};
static NUMBERS: Sql = Sql { text: "SELECT nextval('job_seq') FROM generate_series(1, $1)", types: &[Type::INT4] };

/// To be called when everything else has been decided.
pub(super) async fn publish(tx: &mut Tx<'_>) -> Result<(), Fault> {
    let jobs = std::mem::take(&mut tx.writes.outbox);
    if jobs.is_empty() {
        return Ok(());
    }
    let count = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    let numbers = tx.session.query(&NUMBERS, &[&count]).await?;
    let numbers = numbers.iter().map(|row| row.get(0)).collect();
    let mut queues = Queues::new();
    for job in &jobs {
        let name = (job.namespace, Arc::clone(&job.queue));
        if !queues.contains_key(&name)
            && let Some(queue) = find(&name, tx).await?
        {
            queues.insert(name, queue);
        }
    }
    PublishPart::new(jobs.iter().collect(), Publisher::StateChange).finish(&queues, numbers, tx).await.map(|_| ())
}

async fn find((namespace, name): &QueueName, tx: &mut Tx<'_>) -> Result<Option<Arc<Queue>>, Fault> {
    loop {
        let found = tx.session.query(&FIND, &[&namespace.0.cast_signed(), &&**name]).await?;
        match (found.first(), system_queue(name)) {
            (Some(row), _) => return Ok(Some(tx.shared.registry.queue(row, 0)?)),
            (None, None) => return Ok(None),
            (None, Some(own)) => tx.insert_queue(*namespace, name, &(own.settings)().into()).await?,
        };
    }
}
