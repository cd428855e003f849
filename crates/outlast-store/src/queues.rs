//! Types of the store port for queues, and the changes of queues, for both engines.

use std::sync::Arc;

use outlast_core::state::Status;
use outlast_core::{NamespaceId, Queue, QueueSettings, Timestamp};

/// A condition on saving a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// It must not exist yet.
    Absent,
    Anything,
    /// It must exist with this version.
    Version(u64),
}

impl ExpectedVersion {
    /// Why saving is refused, given what is there.
    pub(crate) fn refusal(self, present: Option<&Queue>) -> Option<SaveRefusal> {
        match (self, present) {
            (ExpectedVersion::Absent, Some(_)) => Some(SaveRefusal::Exists),
            (ExpectedVersion::Version(_), None) => Some(SaveRefusal::NotFound),
            (ExpectedVersion::Version(wanted), Some(queue)) if queue.version != wanted => {
                Some(SaveRefusal::VersionMismatch { present: queue.version })
            }
            _ => None,
        }
    }
}

/// A queue as it shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueDraft {
    pub settings: QueueSettings,
    /// `None` keeps what is there.
    pub secrets: Option<Arc<[u8]>>,
}

impl From<QueueSettings> for QueueDraft {
    fn from(settings: QueueSettings) -> QueueDraft {
        QueueDraft { settings, secrets: None }
    }
}

impl QueueDraft {
    /// Would saving it change nothing?
    pub fn is_present(&self, queue: &Queue) -> bool {
        queue.settings == self.settings
            && self.secrets.as_ref().is_none_or(|secrets| queue.secrets.as_ref() == Some(secrets))
    }

    /// The queue with this in place of what it has. Another limit is not held back by the old one, and what one endpoint
    /// asked for does not hold for another.
    pub fn applied_to(&self, queue: &Queue, now: Timestamp) -> Queue {
        let (old, new) = (&queue.settings, &self.settings);
        Queue {
            secrets: self.secrets.clone().or_else(|| queue.secrets.clone()),
            gcra: if old.rate_limit == new.rate_limit { queue.gcra } else { queue.gcra.under(new.rate_limit, now) },
            hold: queue.hold.filter(|_| old.webhook_url == new.webhook_url),
            settings: new.clone(),
            ..queue.clone()
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredQueue {
    pub queue: Arc<Queue>,
    pub created: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveRefusal {
    Exists,
    NotFound,
    VersionMismatch { present: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteRefusal {
    NotFound,
    NotEmpty,
}

/// The strength of a lock on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLock {
    /// Other changes.
    Changes,
    /// Publishers, too: no job is half way into it.
    Publishers,
}

/// The rows of queues in a transaction of an engine. One that never has to wait answers at once.
pub(crate) trait QueueRows {
    type Fault;

    /// The time to decide by.
    fn now(&self) -> Timestamp;
    async fn lock_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        lock: QueueLock,
    ) -> Result<Option<Arc<Queue>>, Self::Fault>;
    /// `None` when somebody else has made it in between.
    async fn insert_queue(
        &mut self,
        namespace: NamespaceId,
        name: &str,
        draft: &QueueDraft,
    ) -> Result<Option<Arc<Queue>>, Self::Fault>;
    /// Gives it the next version.
    async fn update_queue(&mut self, changed: Queue, is_gate_changed: bool) -> Result<Arc<Queue>, Self::Fault>;
    async fn has_jobs(&mut self, queue: &Queue) -> Result<bool, Self::Fault>;
    /// The queue has no jobs.
    async fn remove_queue(&mut self, queue: &Queue) -> Result<(), Self::Fault>;
}

/// Creates or replaces a queue's settings, if `expect` holds.
pub(crate) async fn save<T: QueueRows>(
    tx: &mut T,
    namespace: NamespaceId,
    name: &str,
    draft: &QueueDraft,
    expect: ExpectedVersion,
) -> Result<Result<StoredQueue, SaveRefusal>, T::Fault> {
    loop {
        let present = tx.lock_queue(namespace, name, QueueLock::Changes).await?;
        if let Some(refusal) = expect.refusal(present.as_deref()) {
            return Ok(Err(refusal));
        }
        let Some(queue) = present else {
            match tx.insert_queue(namespace, name, draft).await? {
                Some(queue) => return Ok(Ok(StoredQueue { queue, created: true })),
                None => continue,
            }
        };
        if draft.is_present(&queue) {
            return Ok(Ok(StoredQueue { queue, created: false }));
        }
        let changed = draft.applied_to(&queue, tx.now());
        let is_gate_changed = changed.hold != queue.hold || changed.gcra != queue.gcra;
        let queue = tx.update_queue(changed, is_gate_changed).await?;
        return Ok(Ok(StoredQueue { queue, created: false }));
    }
}

pub(crate) async fn set_paused<T: QueueRows>(
    tx: &mut T,
    namespace: NamespaceId,
    name: &str,
    paused: bool,
) -> Result<Option<Arc<Queue>>, T::Fault> {
    match tx.lock_queue(namespace, name, QueueLock::Changes).await? {
        Some(queue) if queue.paused != paused => {
            tx.update_queue(Queue { paused, ..Queue::clone(&queue) }, false).await.map(Some)
        }
        found => Ok(found),
    }
}

/// Deletes a queue that has no jobs.
pub(crate) async fn delete<T: QueueRows>(
    tx: &mut T,
    namespace: NamespaceId,
    name: &str,
) -> Result<Result<(), DeleteRefusal>, T::Fault> {
    let Some(queue) = tx.lock_queue(namespace, name, QueueLock::Publishers).await? else {
        return Ok(Err(DeleteRefusal::NotFound));
    };
    if tx.has_jobs(&queue).await? {
        return Ok(Err(DeleteRefusal::NotEmpty));
    }
    tx.remove_queue(&queue).await.map(Ok)
}

/// Jobs per status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts([u64; 7]);

impl QueueCounts {
    pub fn get(&self, status: Status) -> u64 {
        self.0.get(slot(status)).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, status: Status, jobs: u64) {
        if let Some(count) = self.0.get_mut(slot(status)) {
            *count = jobs;
        }
    }

    pub fn add(&mut self, status: Status) {
        if let Some(count) = self.0.get_mut(slot(status)) {
            *count += 1;
        }
    }

    pub fn remove(&mut self, status: Status) {
        if let Some(count) = self.0.get_mut(slot(status)) {
            *count = count.saturating_sub(1);
        }
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Jobs that are not finished and not handed out.
    pub fn waiting(&self) -> u64 {
        self.get(Status::Pending) + self.get(Status::Queued)
    }
}

fn slot(status: Status) -> usize {
    match status {
        Status::Pending => 0,
        Status::Queued => 1,
        Status::Running => 2,
        Status::Succeeded => 3,
        Status::Failed => 4,
        Status::Cancelled => 5,
        Status::Expired => 6,
    }
}
