//! How far the jobs have come whose workers report to this node, in memory: a report every second or two costs no write.
//! What is here is lossy and may be gone; a part of it is written down now and then, see `work`. Nothing of it is believed
//! for another hand-out than the one it was said in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::{JobId, Lease, NamespaceId, Progress, Queue, Timestamp};
use outlast_store::live::HandOut;
use outlast_store::live::news::Told;

/// Jobs whose reports are held; beyond it every report is checked against the store, and written down.
const JOBS_MAX: usize = 200_000;
/// Doors to the map, so that reports do not wait for each other; also how finely doubt is told apart.
const SHARDS: usize = 64;

pub(crate) struct ProgressCache {
    shards: Vec<Mutex<HashMap<JobId, Entry>>>,
    /// Grows when jobs of the shard may have changed hands.
    generation: Vec<AtomicU64>,
}

/// What is known of a job that is being worked on.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) lease: Lease,
    pub(crate) queue: Arc<Queue>,
    pub(crate) progress: Arc<Progress>,
    /// When work last moved.
    pub(crate) moved_at: Timestamp,
    /// When that was last written down.
    pub(crate) noted_at: Timestamp,
    /// How far what is written down may be behind.
    pub(crate) lag: Duration,
    /// When the store last said that the lease holds.
    pub(crate) checked_at: Timestamp,
    /// No change was announced since.
    pub(crate) is_certain: bool,
}

impl Entry {
    /// What both know of the same hand-out.
    fn joined(self, known: &Entry) -> Entry {
        let progress = match self.progress.has_moved_since(&known.progress) && self.progress.at >= known.progress.at {
            true => self.progress,
            false => Arc::new(self.progress.joined(&known.progress)),
        };
        Entry {
            progress,
            moved_at: self.moved_at.max(known.moved_at),
            noted_at: self.noted_at.max(known.noted_at),
            ..self
        }
    }
}

impl Default for ProgressCache {
    fn default() -> ProgressCache {
        ProgressCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            generation: (0..SHARDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl ProgressCache {
    pub(crate) fn get(&self, id: JobId) -> Option<Entry> {
        self.shard(id).get(&id).cloned()
    }

    /// To be asked before the store is: what it says is certain only if nobody generation in between.
    pub(crate) fn generation(&self, id: JobId) -> u64 {
        self.generation.get(shard_of(id)).map_or(0, |generation| generation.load(Ordering::SeqCst))
    }

    /// Keeps what is known. `generation` is what [`ProgressCache::generation`] said before the store was asked.
    pub(crate) fn put(&self, id: JobId, entry: Entry, generation: u64) {
        let is_certain = entry.is_certain && self.generation(id) == generation;
        let mut shard = self.shard(id);
        // A worker may have several calls under way: the furthest counts.
        let entry = match shard.get(&id).filter(|known| known.lease == entry.lease) {
            Some(known) => entry.joined(known),
            None => entry,
        };
        if shard.len() < JOBS_MAX / SHARDS || shard.contains_key(&id) {
            shard.insert(id, Entry { is_certain, ..entry });
        }
    }

    /// Another node was told how far a job is whose worker reports to this one as well.
    pub(crate) fn merge_peer(&self, id: JobId, told: &Told) {
        if let Some(entry) = self.shard(id).get_mut(&id)
            && told.hand_out == HandOut::of(entry.lease)
        {
            let joined = entry.progress.joined(&told.progress);
            if joined.has_moved_since(&entry.progress) {
                entry.moved_at = entry.moved_at.max(told.progress.at);
            }
            entry.progress = Arc::new(joined);
        }
    }

    /// The job is not worked on any more, or by somebody else.
    pub(crate) fn forget(&self, id: JobId) {
        if let Some(generation) = self.generation.get(shard_of(id)) {
            generation.fetch_add(1, Ordering::SeqCst);
        }
        self.shard(id).remove(&id);
    }

    /// These may have changed hands elsewhere.
    pub(crate) fn invalidate<'a>(&self, jobs: impl IntoIterator<Item = &'a JobId>) {
        for id in jobs {
            if let Some(generation) = self.generation.get(shard_of(*id)) {
                generation.fetch_add(1, Ordering::SeqCst);
            }
            if let Some(entry) = self.shard(*id).get_mut(id) {
                entry.is_certain = false;
            }
        }
    }

    /// Any job may have changed hands.
    pub(crate) fn invalidate_all(&self) {
        self.invalidate_where(|_| true);
    }

    /// Any job of this queue may have.
    pub(crate) fn invalidate_queue(&self, namespace: NamespaceId, name: &str) {
        self.invalidate_where(|queue| queue.namespace == namespace && queue.name == name);
    }

    fn invalidate_where(&self, is_concerned: impl Fn(&Queue) -> bool) {
        for (shard, generation) in self.shards.iter().zip(&self.generation) {
            generation.fetch_add(1, Ordering::SeqCst);
            let mut shard = lock(shard);
            let concerned = shard.values_mut().filter(|entry| is_concerned(&entry.queue));
            concerned.for_each(|entry| entry.is_certain = false);
        }
    }

    /// Drops what has not been heard of for so long.
    pub(crate) fn prune(&self, now: Timestamp, silence: Duration) {
        for shard in &self.shards {
            lock(shard).retain(|_, entry| now.since(entry.progress.at) < silence);
        }
    }

    fn shard(&self, id: JobId) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        // There are as many shards as places.
        self.shards.get(shard_of(id)).map(lock).expect("a place names a shard")
    }
}

fn lock(shard: &Mutex<HashMap<JobId, Entry>>) -> MutexGuard<'_, HashMap<JobId, Entry>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The low bits of an id are spread evenly.
fn shard_of(id: JobId) -> usize {
    usize::try_from(id.as_u128() % 64).unwrap_or(0)
}
