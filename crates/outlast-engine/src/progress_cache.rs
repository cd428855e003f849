//! Write-back cache of the progress of jobs whose workers report to this node: a report every second or two costs no write.
//! Lossy; `work` persists a part of it at intervals. An entry is valid only for the hand-out in which it was reported.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::{JobId, Lease, NamespaceId, Progress, Queue, Timestamp};
use outlast_store::peer_bus::LeaseDigest;
use outlast_store::peer_bus::signals::ReportedProgress;

/// Jobs in the cache; beyond it every report is checked against the store and persisted.
const JOBS_MAX: usize = 200_000;
/// Locks of the map, so that reports do not wait for each other; also the granularity of invalidation.
const SHARDS: usize = 64;

pub(crate) struct ProgressCache {
    shards: Vec<Mutex<HashMap<JobId, Entry>>>,
    /// Grows when leases of the shard's jobs may have changed.
    generation: Vec<AtomicU64>,
}

/// The state of a job that is being worked on.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) lease: Lease,
    pub(crate) queue: Arc<Queue>,
    pub(crate) progress: Arc<Progress>,
    /// When work last moved.
    pub(crate) moved_at: Timestamp,
    /// When that was last persisted.
    pub(crate) noted_at: Timestamp,
    /// How far the persisted state may be behind.
    pub(crate) lag: Duration,
    /// When the store last confirmed the lease.
    pub(crate) checked_at: Timestamp,
    /// No change was announced since.
    pub(crate) is_certain: bool,
}

impl Entry {
    /// The union of two entries of the same hand-out.
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

    /// To be read before the store is: the store's answer is certain only if the generation is the same afterwards.
    pub(crate) fn generation(&self, id: JobId) -> u64 {
        self.generation.get(shard_of(id)).map_or(0, |generation| generation.load(Ordering::SeqCst))
    }

    /// Stores an entry. `generation` is the value of [`ProgressCache::generation`] from before the store was read.
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

    /// Another node received a report of a job whose worker reports to this node as well.
    pub(crate) fn merge_peer(&self, id: JobId, told: &ReportedProgress) {
        if let Some(entry) = self.shard(id).get_mut(&id)
            && told.hand_out == LeaseDigest::of(entry.lease)
        {
            let joined = entry.progress.joined(&told.progress);
            if joined.has_moved_since(&entry.progress) {
                entry.moved_at = entry.moved_at.max(told.progress.at);
            }
            entry.progress = Arc::new(joined);
        }
    }

    /// The job is not worked on any more, or by another worker.
    pub(crate) fn forget(&self, id: JobId) {
        if let Some(generation) = self.generation.get(shard_of(id)) {
            generation.fetch_add(1, Ordering::SeqCst);
        }
        self.shard(id).remove(&id);
    }

    /// Leases of these jobs may have changed on other nodes.
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

    /// The lease of any job may have changed.
    pub(crate) fn invalidate_all(&self) {
        self.invalidate_where(|_| true);
    }

    /// The lease of any job of this queue may have changed.
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

    /// Drops entries without a report for so long.
    pub(crate) fn prune(&self, now: Timestamp, silence: Duration) {
        for shard in &self.shards {
            lock(shard).retain(|_, entry| now.since(entry.progress.at) < silence);
        }
    }

    fn shard(&self, id: JobId) -> MutexGuard<'_, HashMap<JobId, Entry>> {
        // `shard_of` is below the number of shards.
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
