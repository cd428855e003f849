//! Queues inside the writer.

use std::sync::Arc;

use outlast_core::pace::Pace;
use outlast_core::{NamespaceId, Queue, QueueId, QueueSettings, Timestamp};
use rusqlite::params;

use super::faults::Fault;
use super::sealed;
use super::writer::Core;
use crate::checksum::Table;
use crate::error::Error;
use crate::queues::{Counts, DeleteRefusal, Expect, QueueDraft, SaveRefusal, Saved};

const INSERT_QUEUE: &str = "
    INSERT INTO queue (namespace, name, settings, paused, version, created_at, updated_at, secrets)
    VALUES (?1, ?2, ?3, 0, 1, ?4, ?4, ?5)";

/// Its parameters are the columns under the checksum, and the checksum.
const UPDATE_QUEUE: &str = "
    UPDATE queue
    SET settings = ?4, paused = ?5, version = ?6, updated_at = ?8, secrets = ?9, checksum = ?10
    WHERE id = ?1";

const DELETE_QUEUE: &str = "DELETE FROM queue WHERE id = ?1";

impl Core<'_> {
    pub(super) fn save_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
        expect: Expect,
    ) -> Result<Result<Saved, SaveRefusal>, Fault> {
        let present = self.registry.find(namespace, name).cloned();
        if let Some(refusal) = expect.refusal(present.as_deref()) {
            return Ok(Err(refusal));
        }
        match present {
            None => self.create_queue(namespace, name, draft).map(|queue| Ok(Saved { queue, created: true })),
            Some(queue) if draft.is_present(&queue) => Ok(Ok(Saved { queue, created: false })),
            Some(queue) => {
                let changed = draft.applied_to(&queue, self.now);
                if changed.hold != queue.hold || changed.pace != queue.pace {
                    self.write_hold_and_pace(&changed)?;
                }
                self.update_queue(changed).map(|queue| Ok(Saved { queue, created: false }))
            }
        }
    }

    pub(super) fn set_paused(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        paused: bool,
    ) -> Result<Option<Arc<Queue>>, Fault> {
        let Some(queue) = self.registry.find(namespace, name).cloned() else {
            return Ok(None);
        };
        if queue.paused == paused {
            return Ok(Some(queue));
        }
        self.update_queue(Queue { paused, ..Queue::clone(&queue) }).map(Some)
    }

    pub(super) fn delete_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
    ) -> Result<Result<(), DeleteRefusal>, Fault> {
        let Some(queue) = self.registry.find(namespace, name).cloned() else {
            return Ok(Err(DeleteRefusal::NotFound));
        };
        if self.index.counts(queue.id).total() > 0 {
            return Ok(Err(DeleteRefusal::NotEmpty));
        }
        self.remove_queue(&queue)?;
        Ok(Ok(()))
    }

    /// The queue has no jobs.
    pub(super) fn remove_queue(&mut self, queue: &Queue) -> Result<(), Fault> {
        self.connection.prepare_cached(DELETE_QUEUE)?.execute([queue.id.0])?;
        self.registry.remove(queue);
        self.index.forget_queue(queue.id);
        Ok(())
    }

    pub(super) fn queue(&self, namespace: NamespaceId, name: &str) -> Option<(Arc<Queue>, Counts)> {
        self.registry.find(namespace, name).map(|queue| self.counted(queue))
    }

    pub(super) fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Arc<Queue>, Counts)> {
        self.registry.page(namespace, after, limit).iter().map(|queue| self.counted(queue)).collect()
    }

    pub(super) fn census(&self) -> Vec<(Arc<Queue>, Counts)> {
        self.registry.all().map(|queue| self.counted(queue)).collect()
    }

    fn counted(&self, queue: &Arc<Queue>) -> (Arc<Queue>, Counts) {
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
            pace: Pace::default(),
            secrets: draft.secrets.clone(),
            version: 1,
            created_at: now,
            updated_at: now,
        };
        self.write_queue(&queue)?;
        self.write_hold_and_pace(&queue)?;
        Ok(self.registry.put(queue))
    }

    fn update_queue(&mut self, mut queue: Queue) -> Result<Arc<Queue>, Fault> {
        queue.version += 1;
        queue.updated_at = self.now;
        self.write_queue(&queue)?;
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
        sealed::execute(&mut *self.connection.prepare_cached(UPDATE_QUEUE)?, Table::Queue, columns)?;
        Ok(())
    }
}

fn settings_json(settings: &QueueSettings) -> Result<String, Error> {
    serde_json::to_string(settings).map_err(|error| Error::Corrupt(error.to_string()))
}
