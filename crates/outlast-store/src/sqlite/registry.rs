//! All queues in memory: the writer's own view, and the committed one that readers share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::gate::{Cause, Hold};
use outlast_core::pace::Pace;
use outlast_core::{NamespaceId, Queue, QueueId, QueueSettings, Timestamp};
use rusqlite::{Connection, Row};

use crate::error::Error;
use crate::ids::Ids;

/// The committed queues, for readers.
#[derive(Debug, Default, Clone)]
pub(super) struct Shared(Arc<RwLock<HashMap<QueueId, Arc<Queue>>>>);

impl Shared {
    pub(super) fn get(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn find(&self, namespace: NamespaceId, name: &str) -> Option<Arc<Queue>> {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        queues.values().find(|queue| queue.namespace == namespace && queue.name == name).cloned()
    }
}

#[derive(Debug)]
pub(super) struct Registry {
    queues: HashMap<QueueId, Arc<Queue>>,
    names: HashMap<NamespaceId, BTreeMap<Arc<str>, QueueId>>,
    shared: Shared,
    changed: bool,
}

const ALL_QUEUES: &str = "
    SELECT queue.id, queue.namespace, queue.name, queue.settings, queue.paused, queue.hold_until, queue.hold_probe,
           queue.version, queue.created_at, queue.updated_at, job.created_at, queue.hold_cause, queue.hold_round,
           queue.pace, queue.secrets
    FROM queue
    LEFT JOIN job ON job.seq = queue.hold_probe
    LIMIT 1000000";

impl Registry {
    pub(super) fn load(connection: &Connection, ids: Ids, shared: Shared) -> Result<Registry, Error> {
        let mut registry = Registry { queues: HashMap::new(), names: HashMap::new(), shared, changed: true };
        let unreadable = |error: rusqlite::Error| Error::Unreadable(error.to_string());
        let mut statement = connection.prepare(ALL_QUEUES).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            registry.put(queue(row, ids)?);
        }
        registry.publish();
        Ok(registry)
    }

    pub(super) fn shared(&self) -> Shared {
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

    /// Shows readers what has been committed.
    pub(super) fn publish(&mut self) {
        if self.changed {
            *self.shared.0.write().unwrap_or_else(PoisonError::into_inner) = self.queues.clone();
            self.changed = false;
        }
    }
}

fn queue(row: &Row<'_>, ids: Ids) -> Result<Queue, Error> {
    let corrupt = |error: rusqlite::Error| Error::Corrupt(format!("queue: {error}"));
    let settings: String = row.get(3).map_err(corrupt)?;
    let settings: QueueSettings =
        serde_json::from_str(&settings).map_err(|error| Error::Corrupt(format!("queue settings: {error}")))?;
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(corrupt);
    let probe_seq: Option<i64> = row.get(6).map_err(corrupt)?;
    let probe = probe_seq.zip(time(10)?).map(|(seq, created_at)| ids.id(seq, created_at));
    let cause: usize = row.get(11).map_err(corrupt)?;
    let cause = *Cause::ALL.get(cause).ok_or_else(|| Error::Corrupt("queue: hold_cause".to_owned()))?;
    let round: u32 = row.get(12).map_err(corrupt)?;
    Ok(Queue {
        id: QueueId(row.get(0).map_err(corrupt)?),
        namespace: NamespaceId(row.get(1).map_err(corrupt)?),
        name: row.get(2).map_err(corrupt)?,
        settings,
        paused: row.get(4).map_err(corrupt)?,
        hold: time(5)?.map(|until| Hold { until, probe, cause, round }),
        pace: Pace(row.get(13).map_err(corrupt)?),
        secrets: row.get::<_, Option<Vec<u8>>>(14).map_err(corrupt)?.map(Arc::from),
        version: row.get(7).map_err(corrupt)?,
        created_at: time(8)?.unwrap_or_default(),
        updated_at: time(9)?.unwrap_or_default(),
    })
}
