//! Wake-ups: waiting consumers of a queue, and readers that watch a job, listen to a topic. Lossy by design: a listener reads
//! the store after every wake-up, and correctness never depends on one. Changes made here are also signalled to other nodes;
//! signals of other nodes only wake listeners here.
//!
//! A wake-up is *exact* when the number of new jobs is known, or *blind* when it is not. A blind wake-up wakes one listener of
//! a queue; a listener that finds a job wakes two more, until one finds nothing. So a thousand listeners cost a few reads.

pub(crate) mod job_listeners;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use outlast_core::{JobId, NamespaceId, Progress};
use outlast_store::peer_bus::{LeaseDigest, PeerBus, Signal, SignalSet};
use tokio::sync::Notify;

use crate::feeds::log_tail::SharedTail;
use crate::feeds::progress_feed::ProgressFeed;
use crate::feeds::queue_feed::QueueFeeds;

/// The polling loop wakes a topic once in so many rounds, so that it does not wake all of them at the same moment.
pub(crate) const SLICES: usize = 10;

pub(crate) struct Notifier {
    peer_bus: Arc<dyn PeerBus>,
    queues: Arc<Topics<(NamespaceId, Arc<str>)>>,
    jobs: Arc<Topics<JobId>>,
    feeds: QueueFeeds,
}

impl Notifier {
    pub(crate) fn new(peer_bus: Arc<dyn PeerBus>) -> Notifier {
        Notifier { peer_bus, queues: Arc::default(), jobs: Arc::default(), feeds: QueueFeeds::default() }
    }

    /// For consumers that wait for jobs of this queue.
    pub(crate) fn listen_queue(&self, namespace: NamespaceId, queue: &Arc<str>) -> Listener<(NamespaceId, Arc<str>)> {
        self.queues.listen((namespace, Arc::clone(queue)))
    }

    /// `namespace` is that of the watcher, and so of the job, unless the watcher reaches all of them.
    pub(crate) fn listen_job(&self, id: JobId, namespace: Option<NamespaceId>) -> Listener<JobId> {
        self.jobs.listen_in(id, namespace)
    }

    /// For readers that follow whole queues.
    pub(crate) fn queue_feeds(&self) -> &QueueFeeds {
        &self.feeds
    }

    /// `count` jobs have become eligible: wakes as many consumers.
    pub(crate) fn jobs_ready(&self, namespace: NamespaceId, queue: &str, count: u32) {
        self.peer_bus.publish(Signal::QueueHas { namespace, queue, count });
        self.wake_queue(namespace, queue, count);
    }

    /// Something about the queue changed: wakes all its consumers.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        self.peer_bus.publish(Signal::QueueChanged { namespace, queue });
        self.feeds.queue_changed(namespace, queue);
        if let Some(topic) = self.queues.get(&(namespace, queue.into())) {
            topic.notify.notify_waiters();
        }
    }

    /// The same for all queues of this namespace; `None` stands for all there are.
    pub(crate) fn namespace_changed(&self, changed: Option<NamespaceId>) {
        self.peer_bus.publish(changed.map_or(Signal::Everything, Signal::NamespaceChanged));
        let concerned = |namespace: NamespaceId| changed.is_none_or(|changed| changed == namespace);
        self.queues.each(|(namespace, _), topic| {
            if concerned(*namespace) {
                topic.notify.notify_waiters();
            }
        });
        self.feeds.all_changed(concerned);
    }

    /// Wakes the sweeps of other nodes.
    pub(crate) fn operation_started(&self) {
        self.peer_bus.publish(Signal::OperationStarted);
    }

    pub(crate) fn job_changed(&self, namespace: NamespaceId, queue: &str, id: JobId) {
        self.peer_bus.publish(Signal::JobChanged(id));
        self.feeds.job_changed(namespace, queue, id);
        self.wake_job(id);
    }

    /// The same for a job whose queue is unknown here.
    pub(crate) fn job_changed_somewhere(&self, id: JobId) {
        self.peer_bus.publish(Signal::JobChanged(id));
        self.feeds.unplaced_changed(id);
        self.wake_job(id);
    }

    /// A worker has reported progress: passes it on to the readers that watch the job here.
    pub(crate) fn publish_progress(&self, id: JobId, hand_out: LeaseDigest, progress: &Arc<Progress>) {
        if self.jobs.has_no_listeners() {
            return;
        }
        if let Some(topic) = self.jobs.get(&id) {
            topic.progress.publish(hand_out, progress);
        }
    }

    /// Unknown jobs of this namespace changed: wakes every local watcher. Watchers on other nodes poll.
    pub(crate) fn jobs_changed(&self, namespace: NamespaceId) {
        self.jobs.each_entry(|_, entry| {
            if entry.namespace.is_none_or(|known| known == namespace) {
                entry.topic.wake_all();
            }
        });
    }

    fn all_jobs_changed(&self) {
        self.jobs.each(|_, topic| topic.wake_all());
    }

    /// Wakes all listeners of this node, and none elsewhere.
    pub(crate) fn wake_everyone(&self) {
        self.queues.each(|_, topic| topic.notify.notify_waiters());
        self.all_jobs_changed();
    }

    /// Wakes the listeners that signals of other nodes concern. Changes of queues wake blind: the number of jobs is unknown.
    pub(crate) fn wake_for_peers(&self, news: &SignalSet) {
        self.feeds.hear(news);
        if news.everything || !news.namespaces.is_empty() {
            self.queues.each(|(namespace, _), topic| {
                if news.everything || news.namespaces.contains(namespace) {
                    topic.wake_blind();
                }
            });
        }
        for (namespace, queues) in &news.queues {
            for (queue, at_queue) in queues {
                if at_queue.changed {
                    self.wake_queue_blind(*namespace, queue);
                }
                self.wake_queue(*namespace, queue, at_queue.more);
            }
        }
        if news.everything || news.all_jobs {
            self.all_jobs_changed();
        }
        for id in &news.jobs {
            self.wake_job(*id);
        }
    }

    /// Wakes the listeners of one slice, since signals may have been lost: one consumer of each queue, and all watchers.
    pub(crate) fn wake_slice(&self, slice: usize) {
        self.queues.each(|_, topic| {
            if topic.slice == slice {
                topic.wake_blind();
            }
        });
        self.jobs.each(|_, topic| {
            if topic.slice == slice {
                topic.wake_all();
            }
        });
    }

    fn wake_queue(&self, namespace: NamespaceId, queue: &str, count: u32) {
        if count == 0 || self.queues.has_no_listeners() {
            return;
        }
        if let Some((listeners, topic)) = self.queues.find(&(namespace, queue.into())) {
            // More wake-ups than listeners do nothing, and the number may come from another node.
            for _ in 0..usize::try_from(count).unwrap_or(usize::MAX).min(listeners) {
                topic.notify.notify_one();
            }
        }
    }

    fn wake_queue_blind(&self, namespace: NamespaceId, queue: &str) {
        if let Some(topic) = self.queues.get(&(namespace, queue.into())) {
            topic.wake_blind();
        }
    }

    fn wake_job(&self, id: JobId) {
        if self.jobs.has_no_listeners() {
            return;
        }
        if let Some(topic) = self.jobs.get(&id) {
            topic.wake_all();
        }
    }
}

/// The state that the listeners of a queue or a job share.
pub(crate) struct Topic {
    notify: Notify,
    /// Set by a blind wake-up; cleared by the first listener that finds nothing.
    is_blind: AtomicBool,
    /// Grows with each blind wake-up and each wake-up of all: a read that began before says nothing about later changes.
    epoch: AtomicU64,
    slice: usize,
    /// For followers of a job's log.
    tail: SharedTail,
    /// The latest progress of a job.
    progress: ProgressFeed,
}

impl Topic {
    fn wake_blind(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.is_blind.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    fn wake_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_waiters();
    }
}

/// A topic with its number of listeners.
struct Entry {
    listeners: usize,
    /// If all listeners are of one namespace.
    namespace: Option<NamespaceId>,
    topic: Arc<Topic>,
}

/// One topic for each queue or job with listeners; it is dropped with its last listener. Ordered, so that wake-ups happen in
/// the same order on every run.
struct Topics<K> {
    topics: Mutex<BTreeMap<K, Entry>>,
    /// Number of all listeners, so that a wake-up costs nothing while there is none.
    listeners: AtomicUsize,
    /// Topics made so far; gives each its slice.
    made: AtomicUsize,
}

impl<K> Default for Topics<K> {
    fn default() -> Topics<K> {
        Topics { topics: Mutex::new(BTreeMap::new()), listeners: AtomicUsize::new(0), made: AtomicUsize::new(0) }
    }
}

impl<K: Ord + Clone> Topics<K> {
    fn listen(self: &Arc<Self>, key: K) -> Listener<K> {
        self.listen_in(key, None)
    }

    fn listen_in(self: &Arc<Self>, key: K, namespace: Option<NamespaceId>) -> Listener<K> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let mut topics = self.lock();
        let fresh = || Entry { listeners: 0, namespace, topic: Arc::new(self.new_topic()) };
        let entry = topics.entry(key.clone()).or_insert_with(fresh);
        entry.listeners += 1;
        if entry.namespace != namespace {
            entry.namespace = None;
        }
        Listener { topic: Arc::clone(&entry.topic), topics: Arc::clone(self), key }
    }

    fn new_topic(&self) -> Topic {
        Topic {
            notify: Notify::new(),
            is_blind: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            slice: self.made.fetch_add(1, Ordering::Relaxed) % SLICES,
            tail: SharedTail::default(),
            progress: ProgressFeed::default(),
        }
    }

    fn has_no_listeners(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) == 0
    }

    fn get(&self, key: &K) -> Option<Arc<Topic>> {
        self.find(key).map(|(_, topic)| topic)
    }

    fn find(&self, key: &K) -> Option<(usize, Arc<Topic>)> {
        self.lock().get(key).map(|entry| (entry.listeners, Arc::clone(&entry.topic)))
    }

    fn each(&self, mut visit: impl FnMut(&K, &Topic)) {
        self.each_entry(|key, entry| visit(key, &entry.topic));
    }

    fn each_entry(&self, mut visit: impl FnMut(&K, &Entry)) {
        if self.has_no_listeners() {
            return;
        }
        for (key, entry) in self.lock().iter() {
            visit(key, entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Entry>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription to a topic. Dropping it ends it.
pub(crate) struct Listener<K: Ord + Clone> {
    topic: Arc<Topic>,
    topics: Arc<Topics<K>>,
    key: K,
}

impl<K: Ord + Clone> Listener<K> {
    pub(crate) fn notify(&self) -> &Notify {
        &self.topic.notify
    }

    pub(crate) fn tail(&self) -> &SharedTail {
        &self.topic.tail
    }

    pub(crate) fn progress(&self) -> &ProgressFeed {
        &self.topic.progress
    }

    /// A read begins; its result is reported with this number.
    pub(crate) fn look(&self) -> u64 {
        self.topic.epoch.load(Ordering::SeqCst)
    }

    /// Ends when all listeners were woken since that read began. Cancel-safe.
    pub(crate) async fn notified_since(&self, look: u64) {
        let mut notified = std::pin::pin!(self.topic.notify.notified());
        notified.as_mut().enable();
        if self.look() == look {
            notified.await;
        }
    }

    /// The same as a future of its own, without the listener.
    pub(crate) fn changed_since(&self, look: u64) -> impl Future<Output = ()> + Send + use<K> {
        let topic = Arc::clone(&self.topic);
        async move {
            let mut notified = std::pin::pin!(topic.notify.notified());
            notified.as_mut().enable();
            if topic.epoch.load(Ordering::SeqCst) == look {
                notified.await;
            }
        }
    }

    /// The next wake-up of this listener as a future of its own, which gives `place`. It listens from its first poll on. One
    /// that is dropped after its wake-up passes it on to the next listener.
    pub(crate) fn woken(&self, place: usize) -> BoxFuture<'static, usize> {
        let topic = Arc::clone(&self.topic);
        async move {
            topic.notify.notified().await;
            place
        }
        .boxed()
    }

    /// This listener was woken and did not look: another one may.
    pub(crate) fn pass_on(&self) {
        self.topic.notify.notify_one();
    }

    /// This listener found something: after a blind wake-up there may be more.
    pub(crate) fn found(&self) {
        if self.topic.is_blind.load(Ordering::SeqCst) {
            self.topic.notify.notify_one();
            self.topic.notify.notify_one();
        }
    }

    /// This listener found nothing: the others would not either.
    pub(crate) fn found_nothing(&self, look: u64) {
        if self.topic.epoch.load(Ordering::SeqCst) == look {
            self.topic.is_blind.store(false, Ordering::SeqCst);
        }
    }
}

impl<K: Ord + Clone> Drop for Listener<K> {
    fn drop(&mut self) {
        let mut topics = self.topics.lock();
        if let Some(entry) = topics.get_mut(&self.key) {
            entry.listeners -= 1;
            if entry.listeners == 0 {
                topics.remove(&self.key);
            }
        }
        self.topics.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
