//! Boards: what those who follow a whole queue see of it. Whoever changes a job marks it here; one loop looks at what was
//! marked, once for all followers of a queue, and tells them how it is. The latest state counts, those between may be
//! skipped. Lossy like every wake-up: when marks are lost or too many, the followers are told to begin again.

mod marks;
mod show;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::progress::Progress;
use outlast_core::{Job, JobId, NamespaceId, Queue, Status, Timestamp};
use outlast_store::Error;
use outlast_store::live::News;
use outlast_store::queues::Counts;
use tokio::sync::Notify;
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use crate::engine::Engine;
use marks::Marks;

/// Sights a follower may be behind; beyond it he begins again.
const BEHIND_MAX: usize = 256;

pub(crate) type Place = (NamespaceId, Arc<str>);

/// What a follower is shown.
#[derive(Clone, Debug)]
pub enum Sight {
    /// The whole queue: at the beginning, after its settings changed, and after a `Resync`.
    Queue(Arc<Queue>, Counts),
    /// A job has changed.
    Job(JobSight),
    Counts(Counts),
    /// Changes were missed; the queue comes next, its jobs have to be listed again.
    Resync,
}

/// As much of a job as a line of a dashboard needs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSight {
    pub id: JobId,
    pub status: Status,
    pub version: u64,
    pub attempt: u32,
    /// When it was looked at.
    pub at: Timestamp,
    pub progress: Option<Arc<Progress>>,
}

impl JobSight {
    fn of(job: &Job, progress: Option<Arc<Progress>>, at: Timestamp) -> JobSight {
        JobSight { id: job.id, status: job.status(), version: job.version, attempt: job.attempt, at, progress }
    }
}

/// Marks cost one look at a number while nobody follows a queue here.
#[derive(Default)]
pub(crate) struct Boards {
    state: Mutex<Followed>,
    followers: AtomicUsize,
    /// Rung when something was marked, or somebody began to follow.
    marked: Notify,
}

#[derive(Default)]
struct Followed {
    boards: BTreeMap<Place, Board>,
    /// Jobs of other nodes, of which nobody has said the queue.
    strays: Marks,
    is_closed: bool,
}

struct Board {
    sights: Sender<Sight>,
    marks: Marks,
}

impl Boards {
    pub(crate) fn job_changed(&self, namespace: NamespaceId, queue: &str, id: JobId) {
        self.mark(namespace, queue, |marks| marks.add_job(id));
    }

    /// A job changed whose queue is not known here.
    pub(crate) fn stray_changed(&self, id: JobId) {
        if !self.is_silent() {
            self.lock().strays.add_job(id);
            self.marked.notify_one();
        }
    }

    /// Jobs of this queue changed that nobody can name.
    pub(crate) fn jobs_changed(&self, namespace: NamespaceId, queue: &str) {
        self.mark(namespace, queue, Marks::lose);
    }

    /// Its settings, or whether it hands out.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        self.mark(namespace, queue, |marks| marks.is_stale = true);
    }

    /// The same in whole namespaces.
    pub(crate) fn all_changed(&self, concerned: impl Fn(NamespaceId) -> bool) {
        self.mark_each(|(namespace, _), marks| marks.is_lost |= concerned(*namespace));
    }

    /// What other nodes told.
    pub(crate) fn hear(&self, news: &News) {
        if self.is_silent() {
            return;
        }
        self.mark_each(|(namespace, queue), marks| {
            let at_queue = news.queues.get(namespace).and_then(|queues| queues.get(&**queue));
            marks.is_lost |= news.everything || news.all_jobs || news.namespaces.contains(namespace);
            marks.is_stale |= at_queue.is_some_and(|at_queue| at_queue.changed);
            marks.is_counted |= at_queue.is_some_and(|at_queue| at_queue.more > 0);
        });
        let mut state = self.lock();
        news.jobs.iter().for_each(|id| state.strays.add_job(*id));
    }

    /// Something may have been missed: whoever was shown anything else than what is there gets it afresh.
    fn patrol(&self) {
        self.mark_each(|_, marks| marks.is_unsure = true);
    }

    /// The server stops: all followers see the end.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.boards.clear();
    }

    fn mark(&self, namespace: NamespaceId, queue: &str, mark: impl FnOnce(&mut Marks)) {
        if self.is_silent() {
            return;
        }
        if let Some(board) = self.lock().boards.get_mut(&(namespace, queue.into())) {
            mark(&mut board.marks);
            self.marked.notify_one();
        }
    }

    fn mark_each(&self, mark: impl Fn(&Place, &mut Marks)) {
        if self.is_silent() {
            return;
        }
        for (place, board) in &mut self.lock().boards {
            mark(place, &mut board.marks);
        }
        self.marked.notify_one();
    }

    fn is_silent(&self) -> bool {
        self.followers.load(Ordering::SeqCst) == 0
    }

    fn follow(&self, place: &Place) -> Option<Receiver<Sight>> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        self.followers.fetch_add(1, Ordering::SeqCst);
        let fresh = || Board { sights: broadcast::channel(BEHIND_MAX).0, marks: Marks::default() };
        let sights = state.boards.entry(place.clone()).or_insert_with(fresh).sights.subscribe();
        self.marked.notify_one();
        Some(sights)
    }

    /// A follower has dropped his end.
    fn leave(&self, place: &Place) {
        let mut state = self.lock();
        self.followers.fetch_sub(1, Ordering::SeqCst);
        if state.boards.get(place).is_some_and(|board| board.sights.receiver_count() == 0) {
            state.boards.remove(place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who follows a queue. Dropping it leaves.
pub struct QueueFollower {
    engine: Engine,
    place: Place,
    /// `None` only while it is dropped.
    sights: Option<Receiver<Sight>>,
    /// The whole queue is to be shown next.
    begins: bool,
}

impl Engine {
    /// Follows a queue. `None` when there is no such queue, or the server stops.
    pub async fn follow_queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<QueueFollower>, Error> {
        if self.shared.store.queue(namespace, name).await?.is_none() {
            return Ok(None);
        }
        let place = (namespace, Arc::from(name));
        let sights = self.shared.wakes.boards().follow(&place);
        let engine = self.clone();
        Ok(sights.map(|sights| QueueFollower { engine, place, sights: Some(sights), begins: true }))
    }
}

impl QueueFollower {
    /// What there is to see next. `None` when there will be no more: the queue is gone, or the server stops. Cancel-safe.
    pub async fn next(&mut self) -> Option<Sight> {
        if self.begins {
            // What changes from here on is told as well: following has begun before this look.
            let found = self.engine.shared.store.queue(self.place.0, &self.place.1).await;
            let (queue, counts) = found.ok().flatten()?;
            self.begins = false;
            return Some(Sight::Queue(queue, counts));
        }
        match self.sights.as_mut()?.recv().await {
            Ok(Sight::Resync) | Err(RecvError::Lagged(_)) => {
                self.begins = true;
                Some(Sight::Resync)
            }
            Ok(sight) => Some(sight),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for QueueFollower {
    fn drop(&mut self) {
        self.sights = None;
        self.engine.shared.wakes.boards().leave(&self.place);
    }
}
