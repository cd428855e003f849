//! The jobs that tell how others ended, made in the transaction that ended them. The namespace's queue for that is made
//! when it is first needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::queue::CALLBACKS;
use outlast_core::{NamespaceId, Queue, QueueSettings};
use tokio_postgres::types::Type;

use super::publish::create;
use super::queues;
use super::registry::queue_columns;
use super::session::Sql;
use super::transact::{Fault, Tx};

/// The queue must not go while jobs are put into it.
static FIND: Sql = Sql {
    text: concat!("SELECT ", queue_columns!(), " FROM queue WHERE namespace = $1 AND name = $2 FOR KEY SHARE"),
    types: &[Type::INT4, Type::TEXT],
};
static NUMBERS: Sql = Sql { text: "SELECT nextval('job_seq') FROM generate_series(1, $1)", types: &[Type::INT4] };

/// To be called when everything else has been decided.
pub(super) async fn publish(tx: &mut Tx<'_>) -> Result<(), Fault> {
    let wanted = std::mem::take(&mut tx.writes.callbacks);
    if wanted.is_empty() {
        return Ok(());
    }
    let count = i32::try_from(wanted.len()).unwrap_or(i32::MAX);
    let numbers = tx.session.query(&NUMBERS, &[&count]).await?;
    let mut queues: BTreeMap<NamespaceId, Arc<Queue>> = BTreeMap::new();
    for ((namespace, spec), number) in wanted.into_iter().zip(numbers) {
        let queue = match queues.get(&namespace) {
            Some(queue) => Arc::clone(queue),
            None => queue(namespace, tx).await?,
        };
        queues.insert(namespace, Arc::clone(&queue));
        create(&queue, spec, number.get(0), tx);
    }
    Ok(())
}

async fn queue(namespace: NamespaceId, tx: &mut Tx<'_>) -> Result<Arc<Queue>, Fault> {
    loop {
        let found = tx.session.query(&FIND, &[&namespace.0.cast_signed(), &CALLBACKS]).await?;
        if let Some(row) = found.first() {
            return Ok(tx.shared.registry.queue(row, 0)?);
        }
        queues::insert(namespace, CALLBACKS, &QueueSettings::of_callbacks().into(), tx).await?;
    }
}
