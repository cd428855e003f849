//! Feeds of whole queues. A room that changes a job marks it dirty here; one loop reads the dirty jobs, once for all followers of
//! a queue, and publishes their state. The latest state counts; states in between may be skipped. Lossy like every wake-up: when
//! changes are lost or too many, the followers start over (`Resync`).

mod dirty;
mod publish;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::progress::Progress;
use outlast_core::{Job, JobId, NamespaceId, Queue, Status, Timestamp};
use outlast_store::Error;
use outlast_store::peer_bus::SignalSet;
use outlast_store::queues::QueueCounts;
use tokio::sync::Notify;
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use super::Feeds;
use dirty::DirtySet;

/// Events a follower may be behind; beyond it the follower starts over.
const BEHIND_MAX: usize = 256;

pub(crate) type QueueName = (NamespaceId, Arc<str>);

/// An event of a queue's feed.
#[derive(Clone, Debug)]
pub enum QueueEvent {
    /// The whole queue: at the beginning, after its settings changed, and after a `Resync`.
    Queue(Arc<Queue>, QueueCounts),
    /// A job has changed.
    Job(JobSummary),
    Counts(QueueCounts),
    /// Changes were missed; the queue comes next, and the follower must list its jobs again.
    Resync,
}

/// As much of a job as a row of a dashboard needs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSummary {
    pub id: JobId,
    pub status: Status,
    pub version: u64,
    pub attempt: u32,
    /// When it was read.
    pub at: Timestamp,
    pub progress: Option<Arc<Progress>>,
}

impl JobSummary {
    fn of(job: &Job, progress: Option<Arc<Progress>>, at: Timestamp) -> JobSummary {
        JobSummary { id: job.id, status: job.status(), version: job.version, attempt: job.attempt, at, progress }
    }
}

/// Marking costs one atomic read while no queue has followers here.
#[derive(Default)]
pub(crate) struct QueueFeeds {
    state: Mutex<Followed>,
    followers: AtomicUsize,
    /// Notified when something was marked, or a follower came.
    marked: Notify,
}

#[derive(Default)]
struct Followed {
    feeds: BTreeMap<QueueName, Feed>,
    /// Jobs that changed on other nodes, and whose queue is unknown.
    unplaced: DirtySet,
    is_closed: bool,
}

struct Feed {
    events: Sender<QueueEvent>,
    dirty: DirtySet,
}

impl QueueFeeds {
    pub(crate) fn job_changed(&self, namespace: NamespaceId, queue: &str, id: JobId) {
        self.mark(namespace, queue, |dirty| dirty.add_job(id));
    }

    /// A job changed whose queue is unknown here.
    pub(crate) fn unplaced_changed(&self, id: JobId) {
        if !self.has_no_listeners() {
            self.lock().unplaced.add_job(id);
            self.marked.notify_one();
        }
    }

    /// Unknown jobs of this queue changed.
    pub(crate) fn jobs_changed(&self, namespace: NamespaceId, queue: &str) {
        self.mark(namespace, queue, DirtySet::lose);
    }

    /// Its settings changed, or whether it hands out.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        self.mark(namespace, queue, |dirty| dirty.is_stale = true);
    }

    /// The same in whole namespaces.
    pub(crate) fn all_changed(&self, concerned: impl Fn(NamespaceId) -> bool) {
        self.mark_each(|(namespace, _), dirty| dirty.is_lost |= concerned(*namespace));
    }

    /// Signals of other nodes.
    pub(crate) fn hear(&self, news: &SignalSet) {
        if self.has_no_listeners() {
            return;
        }
        self.mark_each(|(namespace, queue), dirty| {
            let at_queue = news.queues.get(namespace).and_then(|queues| queues.get(&**queue));
            dirty.is_lost |= news.everything || news.all_jobs || news.namespaces.contains(namespace);
            dirty.is_stale |= at_queue.is_some_and(|at_queue| at_queue.changed);
            dirty.is_counted |= at_queue.is_some_and(|at_queue| at_queue.more > 0);
        });
        let mut state = self.lock();
        news.jobs.iter().for_each(|id| state.unplaced.add_job(*id));
    }

    /// Signals may have been lost: followers get every queue that differs from its last event.
    fn patrol(&self) {
        self.mark_each(|_, dirty| dirty.is_unsure = true);
    }

    /// The server stops: the feeds of all followers end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.feeds.clear();
    }

    fn mark(&self, namespace: NamespaceId, queue: &str, mark: impl FnOnce(&mut DirtySet)) {
        if self.has_no_listeners() {
            return;
        }
        if let Some(feed) = self.lock().feeds.get_mut(&(namespace, queue.into())) {
            mark(&mut feed.dirty);
            self.marked.notify_one();
        }
    }

    fn mark_each(&self, mark: impl Fn(&QueueName, &mut DirtySet)) {
        if self.has_no_listeners() {
            return;
        }
        for (name, feed) in &mut self.lock().feeds {
            mark(name, &mut feed.dirty);
        }
        self.marked.notify_one();
    }

    fn has_no_listeners(&self) -> bool {
        self.followers.load(Ordering::SeqCst) == 0
    }

    fn follow(&self, name: &QueueName) -> Option<Receiver<QueueEvent>> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        self.followers.fetch_add(1, Ordering::SeqCst);
        let fresh = || Feed { events: broadcast::channel(BEHIND_MAX).0, dirty: DirtySet::default() };
        let events = state.feeds.entry(name.clone()).or_insert_with(fresh).events.subscribe();
        self.marked.notify_one();
        Some(events)
    }

    /// A follower has dropped its receiver.
    fn leave(&self, name: &QueueName) {
        let mut state = self.lock();
        self.followers.fetch_sub(1, Ordering::SeqCst);
        if state.feeds.get(name).is_some_and(|feed| feed.events.receiver_count() == 0) {
            state.feeds.remove(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A follower of a queue. Dropping it leaves.
pub struct QueueFollower {
    feeds: Arc<Feeds>,
    name: QueueName,
    /// `None` only while it is dropped.
    events: Option<Receiver<QueueEvent>>,
    /// The whole queue is to be shown next.
    begins: bool,
}

impl Feeds {
    /// Follows a queue. `None` when there is no such queue, or the server stops.
    pub async fn follow_queue(
        self: &Arc<Self>,
        namespace: NamespaceId,
        name: &str,
    ) -> Result<Option<QueueFollower>, Error> {
        if self.store.queue(namespace, name).await?.is_none() {
            return Ok(None);
        }
        let name = (namespace, Arc::from(name));
        let events = self.announcer.notifier.queue_feeds().follow(&name);
        let feeds = Arc::clone(self);
        Ok(events.map(|events| QueueFollower { feeds, name, events: Some(events), begins: true }))
    }
}

impl QueueFollower {
    /// The next event. `None` when there will be no more: the queue is gone, or the server stops. Cancel-safe.
    pub async fn next(&mut self) -> Option<QueueEvent> {
        if self.begins {
            // Later changes are published as well: the subscription began before this read.
            let found = self.feeds.store.queue(self.name.0, &self.name.1).await;
            let (queue, counts) = found.ok().flatten()?;
            self.begins = false;
            return Some(QueueEvent::Queue(queue, counts));
        }
        match self.events.as_mut()?.recv().await {
            Ok(QueueEvent::Resync) | Err(RecvError::Lagged(_)) => {
                self.begins = true;
                Some(QueueEvent::Resync)
            }
            Ok(sight) => Some(sight),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for QueueFollower {
    fn drop(&mut self) {
        self.events = None;
        self.feeds.announcer.notifier.queue_feeds().leave(&self.name);
    }
}
