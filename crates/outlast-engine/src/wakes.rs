//! Wake-ups inside this process: who waits for work of a queue, who watches a job. Lossy by design: a waiter looks at the
//! store after every wake-up, and nothing here is needed for correctness.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::{JobId, NamespaceId};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Wakes {
    queues: Bells<(NamespaceId, Arc<str>)>,
    jobs: Bells<JobId>,
}

impl Wakes {
    /// Rings for those who wait for work of this queue.
    pub(crate) fn wait_for_queue(&self, namespace: NamespaceId, queue: &Arc<str>) -> Bell<'_, (NamespaceId, Arc<str>)> {
        self.queues.listen((namespace, Arc::clone(queue)))
    }

    pub(crate) fn watch_job(&self, id: JobId) -> Bell<'_, JobId> {
        self.jobs.listen(id)
    }

    /// `count` jobs have become eligible: as many waiters look.
    pub(crate) fn queue_has(&self, namespace: NamespaceId, queue: &str, count: usize) {
        if self.queues.is_silent() {
            return;
        }
        if let Some(bell) = self.queues.get(&(namespace, queue.into())) {
            for _ in 0..count {
                bell.notify_one();
            }
        }
    }

    /// Something about the queue changed: all its waiters look.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        if let Some(bell) = self.queues.get(&(namespace, queue.into())) {
            bell.notify_waiters();
        }
    }

    /// The same for all queues that `concerned` names.
    pub(crate) fn queues_changed(&self, concerned: impl Fn(&(NamespaceId, Arc<str>)) -> bool) {
        self.queues.ring_where(concerned);
    }

    pub(crate) fn job_changed(&self, id: JobId) {
        if self.jobs.is_silent() {
            return;
        }
        if let Some(bell) = self.jobs.get(&id) {
            bell.notify_waiters();
        }
    }

    pub(crate) fn wake_everyone(&self) {
        self.queues.ring_where(|_| true);
        self.jobs.ring_where(|_| true);
    }
}

/// One bell per thing somebody waits for; it is gone when the last listener is.
struct Bells<K> {
    bells: Mutex<HashMap<K, (usize, Arc<Notify>)>>,
    /// Listeners in all, so that ringing costs nothing while nobody listens.
    listeners: AtomicUsize,
}

impl<K> Default for Bells<K> {
    fn default() -> Bells<K> {
        Bells { bells: Mutex::new(HashMap::new()), listeners: AtomicUsize::new(0) }
    }
}

impl<K: Hash + Eq + Clone> Bells<K> {
    fn listen(&self, key: K) -> Bell<'_, K> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        let mut bells = self.lock();
        let (count, notify) = bells.entry(key.clone()).or_insert_with(|| (0, Arc::new(Notify::new())));
        *count += 1;
        Bell { notify: Arc::clone(notify), bells: self, key }
    }

    fn is_silent(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) == 0
    }

    fn get(&self, key: &K) -> Option<Arc<Notify>> {
        self.lock().get(key).map(|(_, notify)| Arc::clone(notify))
    }

    fn ring_where(&self, concerned: impl Fn(&K) -> bool) {
        for (_, (_, notify)) in self.lock().iter().filter(|(key, _)| concerned(key)) {
            notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, (usize, Arc<Notify>)>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place to listen. Dropping it leaves.
pub(crate) struct Bell<'a, K: Hash + Eq + Clone> {
    pub(crate) notify: Arc<Notify>,
    bells: &'a Bells<K>,
    key: K,
}

impl<K: Hash + Eq + Clone> Drop for Bell<'_, K> {
    fn drop(&mut self) {
        let mut bells = self.bells.lock();
        if let Some((count, _)) = bells.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                bells.remove(&self.key);
            }
        }
        self.bells.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
