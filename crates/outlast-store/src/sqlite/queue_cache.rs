//! All queues in memory: the writer's own view, and the committed one that readers share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::gate::{Hold, HoldCause};
use outlast_core::gcra::Gcra;
use outlast_core::{NamespaceId, Queue, QueueId, QueueSettings, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::row_checksums::verify;
use super::write::unreadable;
use crate::checksum::Table;
use crate::codec::job_id::JobIdCodec;
use crate::damage::Damage;
use crate::error::Error;

/// The committed queues, for readers.
#[derive(Debug, Default, Clone)]
pub(super) struct CommittedQueues(Arc<RwLock<HashMap<QueueId, Arc<Queue>>>>);

impl CommittedQueues {
    pub(super) fn get(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn find(&self, namespace: NamespaceId, name: &str) -> Option<Arc<Queue>> {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        queues.values().find(|queue| queue.namespace == namespace && queue.name == name).cloned()
    }
}

#[derive(Debug)]
pub(super) struct QueueCache {
    queues: HashMap<QueueId, Arc<Queue>>,
    names: HashMap<NamespaceId, BTreeMap<Arc<str>, QueueId>>,
    shared: CommittedQueues,
    changed: bool,
}

/// The columns of both checksums, each followed by it.
const ALL_QUEUES: &str = "
    SELECT id, namespace, name, settings, paused, version, created_at, updated_at, secrets, checksum, id, hold_until,
           hold_probe, hold_cause, hold_round, gcra, gate_checksum
    FROM queue
    LIMIT 1000000";
const CHECKSUM: usize = 9;
const GATE: usize = 10;
const GATE_CHECKSUM: usize = 16;
const CREATED_AT: &str = "SELECT created_at FROM job WHERE seq = ?1";

impl QueueCache {
    /// A queue whose settings are damaged is an error: nothing can be decided about its jobs. A damaged hold or rate is
    /// listed and left out.
    pub(super) fn load(
        connection: &Connection,
        ids: JobIdCodec,
        shared: CommittedQueues,
        damage: &Damage,
    ) -> Result<QueueCache, Error> {
        let mut registry = QueueCache { queues: HashMap::new(), names: HashMap::new(), shared, changed: true };
        let mut statement = connection.prepare(ALL_QUEUES).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            let mut queue = queue(row)?;
            match gate(row, connection, ids) {
                Ok((hold, gcra)) => (queue.hold, queue.gcra) = (hold, gcra),
                Err(error) => damage.note(&format!("queue row {}: hold and rate: {}", queue.id.0, error.what())),
            }
            registry.put(queue);
        }
        registry.publish();
        Ok(registry)
    }

    pub(super) fn shared(&self) -> CommittedQueues {
        self.shared.clone()
    }

    pub(super) fn get(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(&id)
    }

    pub(super) fn find(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<Queue>> {
        let id = self.names.get(&namespace)?.get(name)?;
        self.queues.get(id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.values()
    }

    /// The queues of a namespace in order of name, after `after`.
    pub(super) fn page(&self, namespace: NamespaceId, after: Option<&str>, limit: usize) -> Vec<Arc<Queue>> {
        let Some(names) = self.names.get(&namespace) else {
            return Vec::new();
        };
        let later = names.iter().filter(|(name, _)| after.is_none_or(|after| &***name > after));
        later.filter_map(|(_, id)| self.queues.get(id)).take(limit).cloned().collect()
    }

    pub(super) fn put(&mut self, queue: Queue) -> Arc<Queue> {
        let queue = Arc::new(queue);
        self.names.entry(queue.namespace).or_default().insert(queue.name.as_str().into(), queue.id);
        self.queues.insert(queue.id, Arc::clone(&queue));
        self.changed = true;
        queue
    }

    pub(super) fn remove(&mut self, queue: &Queue) {
        if let Some(names) = self.names.get_mut(&queue.namespace) {
            names.remove(queue.name.as_str());
        }
        self.queues.remove(&queue.id);
        self.changed = true;
    }

    /// Has anything changed that readers were not shown yet?
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Shows readers what has been committed.
    pub(super) fn publish(&mut self) {
        if self.changed {
            *self.shared.0.write().unwrap_or_else(PoisonError::into_inner) = self.queues.clone();
            self.changed = false;
        }
    }
}

fn queue(row: &Row<'_>) -> Result<Queue, Error> {
    verify(Table::Queue, row, 0..CHECKSUM, CHECKSUM)?;
    let corrupt = |error: rusqlite::Error| Error::Corrupt(format!("queue: {error}"));
    let settings: String = row.get(3).map_err(corrupt)?;
    let settings: QueueSettings =
        serde_json::from_str(&settings).map_err(|error| Error::Corrupt(format!("queue settings: {error}")))?;
    let time = |at: usize| row.get::<_, i64>(at).map(Timestamp::from_millis).map_err(corrupt);
    Ok(Queue {
        id: QueueId(row.get(0).map_err(corrupt)?),
        namespace: NamespaceId(row.get(1).map_err(corrupt)?),
        name: row.get(2).map_err(corrupt)?,
        settings,
        paused: row.get(4).map_err(corrupt)?,
        hold: None,
        gcra: Gcra::default(),
        secrets: row.get::<_, Option<Vec<u8>>>(8).map_err(corrupt)?.map(Arc::from),
        version: row.get(5).map_err(corrupt)?,
        created_at: time(6)?,
        updated_at: time(7)?,
    })
}

fn gate(row: &Row<'_>, connection: &Connection, ids: JobIdCodec) -> Result<(Option<Hold>, Gcra), Error> {
    verify(Table::Gate, row, GATE..GATE_CHECKSUM, GATE_CHECKSUM)?;
    let until: Option<i64> = row.get(GATE + 1).map_err(unreadable)?;
    let probe: Option<i64> = row.get(GATE + 2).map_err(unreadable)?;
    let cause: usize = row.get(GATE + 3).map_err(unreadable)?;
    let cause = *HoldCause::ALL.get(cause).ok_or_else(|| Error::Corrupt("hold_cause".to_owned()))?;
    let round: u32 = row.get(GATE + 4).map_err(unreadable)?;
    let gcra = Gcra(row.get(GATE + 5).map_err(unreadable)?);
    let probe = match probe {
        None => None,
        Some(seq) => {
            let created_at = connection.query_row(CREATED_AT, [seq], |row| row.get::<_, i64>(0)).optional();
            created_at.map_err(unreadable)?.map(|at| ids.id(seq, Timestamp::from_millis(at)))
        }
    };
    Ok((until.map(|until| Hold { until: Timestamp::from_millis(until), probe, cause, round }), gcra))
}
