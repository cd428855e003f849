//! Queues inside the writer.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use outlast_core::gcra::Gcra;
use outlast_core::{NamespaceId, Queue, QueueId, QueueSettings, Timestamp};
use rusqlite::params;

use super::faults::Fault;
use super::row_checksums;
use super::writer::WriterState;
use crate::checksum::Table;
use crate::error::Error;
use crate::queues::{QueueCounts, QueueDraft, QueueLock, QueueRows};

const INSERT_QUEUE: &str = "
    INSERT INTO queue (namespace, name, settings, paused, version, created_at, updated_at, secrets)
    VALUES (?1, ?2, ?3, 0, 1, ?4, ?4, ?5)";

/// Its parameters are the columns under the checksum, and the checksum.
const UPDATE_QUEUE: &str = "
    UPDATE queue
    SET settings = ?4, paused = ?5, version = ?6, updated_at = ?8, secrets = ?9, checksum = ?10
    WHERE id = ?1";

const DELETE_QUEUE: &str = "DELETE FROM queue WHERE id = ?1";

impl QueueRows for WriterState<'_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn lock_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        _: QueueLock,
    ) -> Result<Option<Arc<Queue>>, Fault> {
        Ok(self.registry.find(namespace, name).cloned())
    }

    async fn insert_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
    ) -> Result<Option<Arc<Queue>>, Fault> {
        self.create_queue(namespace, name, draft).map(Some)
    }

    async fn update_queue(&mut self, mut changed: Queue, is_gate_changed: bool) -> Result<Arc<Queue>, Fault> {
        changed.version += 1;
        changed.updated_at = self.now;
        self.write_queue(&changed)?;
        if is_gate_changed {
            self.write_hold_and_gcra(&changed)?;
        }
        Ok(self.registry.put(changed))
    }

    async fn has_jobs(&mut self, queue: &Queue) -> Result<bool, Fault> {
        Ok(self.index.counts(queue.id).total() > 0)
    }

    async fn remove_queue(&mut self, queue: &Queue) -> Result<(), Fault> {
        self.connection.prepare_cached(DELETE_QUEUE)?.execute([queue.id.0])?;
        self.registry.remove(queue);
        self.index.forget_queue(queue.id);
        Ok(())
    }
}

/// The writer never waits: what it asks of itself is answered at once.
pub(super) fn at_once<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(Error::Unreadable("the writer was made to wait".to_owned()).into()),
    }
}

impl WriterState<'_> {
    pub(super) fn queue(&self, namespace: NamespaceId, name: &str) -> Option<(Arc<Queue>, QueueCounts)> {
        self.registry.find(namespace, name).map(|queue| self.counted(queue))
    }

    pub(super) fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Arc<Queue>, QueueCounts)> {
        self.registry.page(namespace, after, limit).iter().map(|queue| self.counted(queue)).collect()
    }

    pub(super) fn oldest_waiting(&self) -> Vec<(QueueId, Timestamp)> {
        self.index.oldest()
    }

    pub(super) fn census(&self) -> Vec<(Arc<Queue>, QueueCounts)> {
        self.registry.all().map(|queue| self.counted(queue)).collect()
    }

    fn counted(&self, queue: &Arc<Queue>) -> (Arc<Queue>, QueueCounts) {
        (Arc::clone(queue), self.index.counts(queue.id))
    }

    pub(super) fn create_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
    ) -> Result<Arc<Queue>, Fault> {
        let now = self.now;
        self.connection.prepare_cached(INSERT_QUEUE)?.execute(params![
            namespace.0,
            name,
            settings_json(&draft.settings)?,
            now.as_millis(),
            draft.secrets.as_deref(),
        ])?;
        let id = u32::try_from(self.connection.last_insert_rowid())
            .map_err(|_| Error::Corrupt("too many queues were made".to_owned()))?;
        let queue = Queue {
            id: QueueId(id),
            namespace,
            name: name.to_owned(),
            settings: draft.settings.clone(),
            paused: false,
            hold: None,
            gcra: Gcra::default(),
            secrets: draft.secrets.clone(),
            version: 1,
            created_at: now,
            updated_at: now,
        };
        self.write_queue(&queue)?;
        self.write_hold_and_gcra(&queue)?;
        Ok(self.registry.put(queue))
    }

    fn write_queue(&self, queue: &Queue) -> Result<(), Fault> {
        let columns = params![
            queue.id.0,
            queue.namespace.0,
            queue.name,
            settings_json(&queue.settings)?,
            queue.paused,
            queue.version.cast_signed(),
            Timestamp::as_millis(queue.created_at),
            Timestamp::as_millis(queue.updated_at),
            queue.secrets.as_deref(),
        ];
        row_checksums::execute(&mut *self.connection.prepare_cached(UPDATE_QUEUE)?, Table::Queue, columns)?;
        Ok(())
    }
}

fn settings_json(settings: &QueueSettings) -> Result<String, Error> {
    serde_json::to_string(settings).map_err(|error| Error::Corrupt(error.to_string()))
}
