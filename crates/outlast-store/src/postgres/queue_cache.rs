//! Queues as last seen. Only a settings text that was read before is not read again; everything else comes fresh from the
//! database with each transaction, since another node may have changed it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::gate::{Hold, HoldCause};
use outlast_core::gcra::Gcra;
use outlast_core::{JobId, NamespaceId, Queue, QueueId, QueueSettings, Timestamp};
use tokio_postgres::Row;

use super::rows::{Cell, cells, get, row_sum, verify};
use crate::checksum::Table;
use crate::error::Error;

/// Columns of a queue, in the order [`QueueCache::queue`] reads them.
macro_rules! queue_columns {
    () => {
        "queue.id, queue.namespace, queue.name, queue.settings, queue.paused, queue.hold_until, queue.hold_probe,
         queue.version, queue.created_at, queue.updated_at, queue.hold_cause, queue.hold_round, queue.gcra,
         queue.secrets, queue.checksum"
    };
}
pub(super) use queue_columns;

/// The number of these columns; further columns of a statement follow them.
pub(super) const QUEUE_COLUMNS: usize = 15;

/// A queue and the text of its settings.
type CachedQueue = (Arc<Queue>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct QueueCache {
    /// With the text of the settings: a version alone does not name them, since a transaction that was read from may not
    /// have been committed.
    queues: RwLock<HashMap<QueueId, CachedQueue>>,
    names: RwLock<HashMap<(NamespaceId, Arc<str>), QueueId>>,
}

impl QueueCache {
    /// A queue as it was when it was last read: a hint, never a fact.
    pub(super) fn hint(&self, namespace: NamespaceId, name: &Arc<str>) -> Option<Arc<Queue>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let id = names.get(&(namespace, Arc::clone(name)))?;
        self.queues.read().unwrap_or_else(PoisonError::into_inner).get(id).map(|(queue, _)| Arc::clone(queue))
    }

    /// Reads `queue_columns!` beginning at `at`.
    pub(super) fn queue(&self, row: &Row, at: usize) -> Result<Arc<Queue>, Error> {
        let id = QueueId(get::<i32>(row, at)?.cast_unsigned());
        let version = get::<i64>(row, at + 7)?.cast_unsigned();
        let paused: bool = get(row, at + 4)?;
        let hold = hold(row, at)?;
        let gcra = Gcra(get(row, at + 12)?);
        let secrets: Option<&[u8]> = get(row, at + 13)?;
        let text: &str = get(row, at + 3)?;
        let known = self.queues.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        let known = known.filter(|(_, known)| **known == *text);
        if let Some((known, _)) = &known
            && known.version == version
            && known.paused == paused
            && known.hold == hold
            && known.gcra == gcra
            && known.secrets.as_deref() == secrets
        {
            return Ok(Arc::clone(known));
        }
        let namespace = get::<i32>(row, at + 1)?;
        let sum = queue_sum(namespace, get(row, at + 2)?, text, paused, secrets);
        verify(Table::Queue, &id.0.to_string(), get(row, at + 14)?, sum)?;
        let settings = match known {
            Some((known, _)) => known.settings.clone(),
            None => settings(text)?,
        };
        let queue = Arc::new(Queue {
            id,
            namespace: NamespaceId(get::<i32>(row, at + 1)?.cast_unsigned()),
            name: get(row, at + 2)?,
            settings,
            paused,
            hold,
            gcra,
            secrets: secrets.map(Arc::from),
            version,
            created_at: Timestamp::from_millis(get(row, at + 8)?),
            updated_at: Timestamp::from_millis(get(row, at + 9)?),
        });
        self.keep(&queue, text);
        Ok(queue)
    }

    fn keep(&self, queue: &Arc<Queue>, settings: &str) {
        let name = (queue.namespace, Arc::from(queue.name.as_str()));
        self.queues
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(queue.id, (Arc::clone(queue), settings.into()));
        self.names.write().unwrap_or_else(PoisonError::into_inner).insert(name, queue.id);
    }

    /// The queue is not there any more.
    pub(super) fn forget(&self, namespace: NamespaceId, name: &str) {
        let id = self.names.write().unwrap_or_else(PoisonError::into_inner).remove(&(namespace, name.into()));
        if let Some(id) = id {
            self.queues.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }
}

fn hold(row: &Row, at: usize) -> Result<Option<Hold>, Error> {
    let Some(until) = get::<Option<i64>>(row, at + 5)? else {
        return Ok(None);
    };
    let probe = get::<Option<&[u8]>>(row, at + 6)?.map(<[u8; 16]>::try_from).transpose();
    let probe = probe.map_err(|_| Error::Corrupt("column hold_probe of a queue".to_owned()))?;
    let probe = probe.and_then(|bytes| JobId::from_u128(u128::from_be_bytes(bytes)));
    let cause = usize::try_from(get::<i16>(row, at + 10)?).ok().and_then(|cause| HoldCause::ALL.get(cause));
    let cause = *cause.ok_or_else(|| Error::Corrupt("column hold_cause of a queue".to_owned()))?;
    let round = get::<i32>(row, at + 11)?.cast_unsigned();
    Ok(Some(Hold { until: Timestamp::from_millis(until), probe, cause, round }))
}

/// The settings, by the queue's name. Hold, rate and version change without it.
pub(super) fn queue_sum(namespace: i32, name: &str, settings: &str, paused: bool, secrets: Option<&[u8]>) -> i32 {
    row_sum(Table::Queue, &cells![namespace, name, settings, paused, secrets])
}

fn settings(json: &str) -> Result<QueueSettings, Error> {
    serde_json::from_str(json).map_err(|error| Error::Corrupt(format!("queue settings: {error}")))
}

pub(super) fn settings_json(settings: &QueueSettings) -> Result<String, Error> {
    serde_json::to_string(settings).map_err(|error| Error::Corrupt(error.to_string()))
}
