//! Wake-ups: who waits for work of a queue, who watches a job. Lossy by design: a waiter looks at the store after every
//! wake-up, and nothing here is needed for correctness. What happens here is also told to the other nodes; what they tell
//! only rings here.
//!
//! A ring is *exact* when so many jobs came, or *blind* when there may be any number. A blind ring wakes one waiter of a
//! queue; whoever finds something wakes two more, until one finds nothing. So a thousand waiters cost a few looks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::{JobId, NamespaceId, Progress};
use outlast_store::live::{HandOut, Live, News, Signal};
use tokio::sync::Notify;

use crate::boards::Boards;
use crate::progress_feed::ProgressFeed;
use crate::tail::Tail;

/// The rounds of the patrol visit a bell once in so many, so that not all are rung in the same moment.
pub(crate) const SLICES: usize = 10;

pub(crate) struct Wakes {
    live: Arc<dyn Live>,
    queues: Arc<Bells<(NamespaceId, Arc<str>)>>,
    jobs: Arc<Bells<JobId>>,
    boards: Boards,
}

impl Wakes {
    pub(crate) fn new(live: Arc<dyn Live>) -> Wakes {
        Wakes { live, queues: Arc::default(), jobs: Arc::default(), boards: Boards::default() }
    }

    /// Rings for those who wait for work of this queue.
    pub(crate) fn wait_for_queue(&self, namespace: NamespaceId, queue: &Arc<str>) -> Bell<(NamespaceId, Arc<str>)> {
        self.queues.listen((namespace, Arc::clone(queue)))
    }

    /// `namespace` is that of the watcher, and so of the job, unless the watcher reaches all of them.
    pub(crate) fn watch_job(&self, id: JobId, namespace: Option<NamespaceId>) -> Bell<JobId> {
        self.jobs.listen_in(id, namespace)
    }

    /// For those who follow whole queues.
    pub(crate) fn boards(&self) -> &Boards {
        &self.boards
    }

    /// `count` jobs have become eligible: as many waiters look.
    pub(crate) fn queue_has(&self, namespace: NamespaceId, queue: &str, count: u32) {
        self.live.tell(Signal::QueueHas { namespace, queue, count });
        self.ring_queue(namespace, queue, count);
    }

    /// Something about the queue changed: all its waiters look.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        self.live.tell(Signal::QueueChanged { namespace, queue });
        self.boards.queue_changed(namespace, queue);
        if let Some(chime) = self.queues.get(&(namespace, queue.into())) {
            chime.notify.notify_waiters();
        }
    }

    /// The same for all queues of this namespace; `None` stands for all there are.
    pub(crate) fn namespace_changed(&self, changed: Option<NamespaceId>) {
        self.live.tell(changed.map_or(Signal::Everything, Signal::NamespaceChanged));
        let concerned = |namespace: NamespaceId| changed.is_none_or(|changed| changed == namespace);
        self.queues.each(|(namespace, _), chime| {
            if concerned(*namespace) {
                chime.notify.notify_waiters();
            }
        });
        self.boards.all_changed(concerned);
    }

    pub(crate) fn job_changed(&self, namespace: NamespaceId, queue: &str, id: JobId) {
        self.live.tell(Signal::JobChanged(id));
        self.boards.job_changed(namespace, queue, id);
        self.ring_job(id);
    }

    /// The same of a job whose queue is not known here.
    pub(crate) fn job_changed_somewhere(&self, id: JobId) {
        self.live.tell(Signal::JobChanged(id));
        self.boards.stray_changed(id);
        self.ring_job(id);
    }

    /// A worker has said how far it is: those who watch the job here hear of it.
    pub(crate) fn progressed(&self, id: JobId, hand_out: HandOut, progress: &Arc<Progress>) {
        if self.jobs.is_silent() {
            return;
        }
        if let Some(chime) = self.jobs.get(&id) {
            chime.progress.publish(hand_out, progress);
        }
    }

    /// Jobs of this namespace changed that nobody can name: all who watch one here look. Those elsewhere have the patrol.
    pub(crate) fn jobs_changed(&self, namespace: NamespaceId) {
        self.jobs.each_listened(|_, listened| {
            if listened.namespace.is_none_or(|known| known == namespace) {
                listened.chime.ring_all();
            }
        });
    }

    fn all_jobs_changed(&self) {
        self.jobs.each(|_, chime| chime.ring_all());
    }

    /// For everybody here, and nobody elsewhere.
    pub(crate) fn wake_everyone(&self) {
        self.queues.each(|_, chime| chime.notify.notify_waiters());
        self.all_jobs_changed();
    }

    /// Rings for what other nodes told. Changes of queues ring blind: nobody here knows how much there is.
    pub(crate) fn ring_for(&self, news: &News) {
        self.boards.hear(news);
        if news.everything || !news.namespaces.is_empty() {
            self.queues.each(|(namespace, _), chime| {
                if news.everything || news.namespaces.contains(namespace) {
                    chime.ring_blind();
                }
            });
        }
        for (namespace, queues) in &news.queues {
            for (queue, at_queue) in queues {
                if at_queue.changed {
                    self.ring_queue_blind(*namespace, queue);
                }
                self.ring_queue(*namespace, queue, at_queue.more);
            }
        }
        if news.everything || news.all_jobs {
            self.all_jobs_changed();
        }
        for id in &news.jobs {
            self.ring_job(*id);
        }
    }

    /// Wakes those of one slice who may have missed something: one waiter of each queue, and all who watch a job.
    pub(crate) fn patrol(&self, slice: usize) {
        self.queues.each(|_, chime| {
            if chime.slice == slice {
                chime.ring_blind();
            }
        });
        self.jobs.each(|_, chime| {
            if chime.slice == slice {
                chime.ring_all();
            }
        });
    }

    fn ring_queue(&self, namespace: NamespaceId, queue: &str, count: u32) {
        if count == 0 || self.queues.is_silent() {
            return;
        }
        if let Some((listeners, chime)) = self.queues.find(&(namespace, queue.into())) {
            // More rings than listeners do nothing, and the number may come from elsewhere.
            for _ in 0..usize::try_from(count).unwrap_or(usize::MAX).min(listeners) {
                chime.notify.notify_one();
            }
        }
    }

    fn ring_queue_blind(&self, namespace: NamespaceId, queue: &str) {
        if let Some(chime) = self.queues.get(&(namespace, queue.into())) {
            chime.ring_blind();
        }
    }

    fn ring_job(&self, id: JobId) {
        if self.jobs.is_silent() {
            return;
        }
        if let Some(chime) = self.jobs.get(&id) {
            chime.ring_all();
        }
    }
}

/// What the listeners of one thing share.
pub(crate) struct Chime {
    notify: Notify,
    /// The last ring was blind, and nobody has found nothing since.
    is_blind: AtomicBool,
    /// Grows with each blind ring and each ring for all: a look that began before says nothing about what came since.
    epoch: AtomicU64,
    slice: usize,
    /// What those who follow a job's log share.
    tail: Tail,
    /// How far the job has come.
    progress: ProgressFeed,
}

impl Chime {
    fn ring_blind(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.is_blind.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    fn ring_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_waiters();
    }
}

/// A bell with those who listen to it.
struct Listened {
    listeners: usize,
    /// Where all listeners are of one.
    namespace: Option<NamespaceId>,
    chime: Arc<Chime>,
}

/// One bell per thing somebody waits for; it is gone when the last listener is. In order, so that they ring in the same
/// order on every run.
struct Bells<K> {
    bells: Mutex<BTreeMap<K, Listened>>,
    /// Listeners in all, so that ringing costs nothing while nobody listens.
    listeners: AtomicUsize,
    /// Bells made so far; gives each its slice.
    made: AtomicUsize,
}

impl<K> Default for Bells<K> {
    fn default() -> Bells<K> {
        Bells { bells: Mutex::new(BTreeMap::new()), listeners: AtomicUsize::new(0), made: AtomicUsize::new(0) }
    }
}

impl<K: Ord + Clone> Bells<K> {
    fn listen(self: &Arc<Self>, key: K) -> Bell<K> {
        self.listen_in(key, None)
    }

    fn listen_in(self: &Arc<Self>, key: K, namespace: Option<NamespaceId>) -> Bell<K> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let mut bells = self.lock();
        let fresh = || Listened { listeners: 0, namespace, chime: Arc::new(self.new_chime()) };
        let listened = bells.entry(key.clone()).or_insert_with(fresh);
        listened.listeners += 1;
        if listened.namespace != namespace {
            listened.namespace = None;
        }
        Bell { chime: Arc::clone(&listened.chime), bells: Arc::clone(self), key }
    }

    fn new_chime(&self) -> Chime {
        Chime {
            notify: Notify::new(),
            is_blind: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            slice: self.made.fetch_add(1, Ordering::Relaxed) % SLICES,
            tail: Tail::default(),
            progress: ProgressFeed::default(),
        }
    }

    fn is_silent(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) == 0
    }

    fn get(&self, key: &K) -> Option<Arc<Chime>> {
        self.find(key).map(|(_, chime)| chime)
    }

    fn find(&self, key: &K) -> Option<(usize, Arc<Chime>)> {
        self.lock().get(key).map(|listened| (listened.listeners, Arc::clone(&listened.chime)))
    }

    fn each(&self, mut visit: impl FnMut(&K, &Chime)) {
        self.each_listened(|key, listened| visit(key, &listened.chime));
    }

    fn each_listened(&self, mut visit: impl FnMut(&K, &Listened)) {
        if self.is_silent() {
            return;
        }
        for (key, listened) in self.lock().iter() {
            visit(key, listened);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Listened>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place to listen. Dropping it leaves.
pub(crate) struct Bell<K: Ord + Clone> {
    chime: Arc<Chime>,
    bells: Arc<Bells<K>>,
    key: K,
}

impl<K: Ord + Clone> Bell<K> {
    pub(crate) fn notify(&self) -> &Notify {
        &self.chime.notify
    }

    pub(crate) fn tail(&self) -> &Tail {
        &self.chime.tail
    }

    pub(crate) fn progress(&self) -> &ProgressFeed {
        &self.chime.progress
    }

    /// A look begins; its result is told with the number it gets.
    pub(crate) fn look(&self) -> u64 {
        self.chime.epoch.load(Ordering::SeqCst)
    }

    /// Ends when it was rung for all since that look began. Cancel-safe.
    pub(crate) async fn rung_since(&self, look: u64) {
        let mut rung = std::pin::pin!(self.chime.notify.notified());
        rung.as_mut().enable();
        if self.look() == look {
            rung.await;
        }
    }

    /// This listener looked and found something: after a blind ring there may be more.
    pub(crate) fn found(&self) {
        if self.chime.is_blind.load(Ordering::SeqCst) {
            self.chime.notify.notify_one();
            self.chime.notify.notify_one();
        }
    }

    /// This listener looked in vain: the others would, too.
    pub(crate) fn found_nothing(&self, look: u64) {
        if self.chime.epoch.load(Ordering::SeqCst) == look {
            self.chime.is_blind.store(false, Ordering::SeqCst);
        }
    }
}

impl<K: Ord + Clone> Drop for Bell<K> {
    fn drop(&mut self) {
        let mut bells = self.bells.lock();
        if let Some(listened) = bells.get_mut(&self.key) {
            listened.listeners -= 1;
            if listened.listeners == 0 {
                bells.remove(&self.key);
            }
        }
        self.bells.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
