//! Queues: saved under a condition, paused, deleted when empty, counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::gcra::Gcra;
use outlast_core::{NamespaceId, Queue, QueueId, State, Timestamp};
use outlast_store::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};

use super::world::World;

impl World {
    pub(super) fn save_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<StoredQueue, SaveRefusal> {
        let present = self.find_queue(namespace, name);
        match (expect, &present) {
            (ExpectedVersion::Absent, Some(_)) => return Err(SaveRefusal::Exists),
            (ExpectedVersion::Version(_), None) => return Err(SaveRefusal::NotFound),
            (ExpectedVersion::Version(wanted), Some(queue)) if wanted != queue.version => {
                return Err(SaveRefusal::VersionMismatch { present: queue.version });
            }
            _ => {}
        }
        Ok(match present {
            None => StoredQueue { queue: self.create_queue(namespace, name, draft), created: true },
            Some(queue) => {
                let changed = draft.applied_to(&queue, self.now);
                let queue = if changed == *queue { queue } else { self.put_queue(changed) };
                StoredQueue { queue, created: false }
            }
        })
    }

    pub(super) fn set_paused(&mut self, namespace: NamespaceId, name: &str, paused: bool) -> Option<Arc<Queue>> {
        let queue = self.find_queue(namespace, name)?;
        if queue.paused == paused {
            return Some(queue);
        }
        Some(self.put_queue(Queue { paused, ..Queue::clone(&queue) }))
    }

    pub(super) fn delete_queue(&mut self, namespace: NamespaceId, name: &str) -> Result<(), DeleteRefusal> {
        let queue = self.find_queue(namespace, name).ok_or(DeleteRefusal::NotFound)?;
        if !self.is_empty(queue.id) {
            return Err(DeleteRefusal::NotEmpty);
        }
        self.queues.remove(&queue.id);
        Ok(())
    }

    pub(super) fn queue(&self, namespace: NamespaceId, name: &str) -> Option<(Arc<Queue>, QueueCounts)> {
        self.find_queue(namespace, name).map(|queue| self.counted(queue))
    }

    pub(super) fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<(Arc<Queue>, QueueCounts)> {
        let later =
            |queue: &&Arc<Queue>| queue.namespace == namespace && after.is_none_or(|after| queue.name.as_str() > after);
        let mut found: Vec<_> = self.queues.values().filter(later).cloned().collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.into_iter().take(limit).map(|queue| self.counted(queue)).collect()
    }

    pub(super) fn oldest_waiting(&self) -> Vec<(QueueId, Timestamp)> {
        let mut oldest: BTreeMap<QueueId, Timestamp> = BTreeMap::new();
        for row in self.rows.values() {
            if let State::Queued { ready_at } = row.job.state {
                let first = oldest.entry(row.job.queue).or_insert(ready_at);
                *first = ready_at.min(*first);
            }
        }
        oldest.into_iter().collect()
    }

    pub(super) fn census(&self) -> Vec<(Arc<Queue>, QueueCounts)> {
        self.queues.values().map(|queue| self.counted(Arc::clone(queue))).collect()
    }

    pub(super) fn is_empty(&self, queue: QueueId) -> bool {
        self.rows.values().all(|row| row.job.queue != queue)
    }

    fn counted(&self, queue: Arc<Queue>) -> (Arc<Queue>, QueueCounts) {
        let mut counts = QueueCounts::default();
        for row in self.rows.values().filter(|row| row.job.queue == queue.id) {
            counts.add(row.job.status());
        }
        (queue, counts)
    }

    pub(super) fn create_queue(&mut self, namespace: NamespaceId, name: &str, draft: &QueueDraft) -> Arc<Queue> {
        self.queues_made += 1;
        let queue = Arc::new(Queue {
            id: QueueId(self.queues_made),
            namespace,
            name: name.to_owned(),
            settings: draft.settings.clone(),
            paused: false,
            hold: None,
            gcra: Gcra::default(),
            secrets: draft.secrets.clone(),
            version: 1,
            created_at: self.now,
            updated_at: self.now,
        });
        self.queues.insert(queue.id, Arc::clone(&queue));
        queue
    }

    /// A change of settings or pause.
    fn put_queue(&mut self, queue: Queue) -> Arc<Queue> {
        let queue = Arc::new(Queue { version: queue.version + 1, updated_at: self.now, ..queue });
        self.queues.insert(queue.id, Arc::clone(&queue));
        queue
    }
}
