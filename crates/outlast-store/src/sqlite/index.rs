//! The scheduling indexes, in memory and owned by the writer: ready jobs in claim order, the next alarm, the holders of
//! keys, counts. Built from the job rows by one scan at start; `equals` lets a test compare the live index with a
//! rebuilt one at any moment. A rolled-back transaction is undone in them at the cost of what it did.

use std::collections::{BTreeSet, HashMap};

use outlast_core::{NamespaceId, QueueId, Status, Timestamp};

use crate::codec::row::IndexEntry;
use crate::queues::QueueCounts;

/// Priority, then age, then row: packed into one number that sorts so. The time has 48 bits, good for 8,900 years.
fn rank(place: &IndexEntry) -> u128 {
    let priority = u128::from((100i16 - i16::from(place.priority)).unsigned_abs());
    let ready_at = u128::from(place.ready_at.as_millis().unsigned_abs());
    priority << 112 | ready_at << 64 | u128::from(place.seq.unsigned_abs())
}

fn seq_of_rank(rank: u128) -> i64 {
    i64::try_from(rank & u128::from(u64::MAX)).unwrap_or(i64::MAX)
}

#[derive(Debug, Default, PartialEq)]
struct QueueIndex {
    ready: BTreeSet<u128>,
    counts: QueueCounts,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    queues: HashMap<QueueId, QueueIndex>,
    alarms: BTreeSet<(Timestamp, i64)>,
    /// Newest job by the hash of its key; the stored key is compared on a hit.
    keys: HashMap<i64, i64>,
    /// Older jobs with the same hash, which take the key back when the newest is deleted. Few: a key makes a second job
    /// only after the first has lost it.
    older_keys: BTreeSet<(i64, i64)>,
    waiting: HashMap<NamespaceId, u64>,
    /// Since the last commit.
    changes: Vec<IndexChange>,
    /// There were more of them than are remembered.
    has_forgotten: bool,
}

/// More changes than this are not remembered; then an undone transaction has all rows read again. About half a mebibyte.
const CHANGES_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug)]
enum IndexChange {
    Inserted(IndexEntry, NamespaceId),
    Removed(IndexEntry, NamespaceId),
    TookKey(i64, i64),
    DroppedKey(i64, i64),
}

impl Index {
    /// The changes have been committed.
    pub(super) fn settle(&mut self) {
        self.changes.clear();
        self.has_forgotten = false;
    }

    /// Undoes all changes since the last commit. False: there were too many, and the index must be rebuilt.
    pub(super) fn undo(&mut self) -> bool {
        if self.has_forgotten {
            return false;
        }
        for change in std::mem::take(&mut self.changes).into_iter().rev() {
            match change {
                IndexChange::Inserted(place, namespace) => self.remove(&place, namespace),
                IndexChange::Removed(place, namespace) => self.insert(&place, namespace),
                IndexChange::TookKey(hash, seq) => self.drop_key(hash, seq),
                IndexChange::DroppedKey(hash, seq) => self.take_key(hash, seq),
            }
        }
        self.settle();
        true
    }

    fn remember(&mut self, change: IndexChange) {
        match self.changes.len() < CHANGES_MAX {
            true => self.changes.push(change),
            false => self.has_forgotten = true,
        }
    }

    pub(super) fn insert(&mut self, place: &IndexEntry, namespace: NamespaceId) {
        self.remember(IndexChange::Inserted(*place, namespace));
        let queue = self.queues.entry(place.queue).or_default();
        queue.counts.add(place.status);
        if place.status == Status::Queued {
            queue.ready.insert(rank(place));
        }
        if let Some(wake_at) = place.wake_at {
            self.alarms.insert((wake_at, place.seq));
        }
        if is_waiting(place.status) {
            *self.waiting.entry(namespace).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, place: &IndexEntry, namespace: NamespaceId) {
        self.remember(IndexChange::Removed(*place, namespace));
        if let Some(queue) = self.queues.get_mut(&place.queue) {
            queue.counts.remove(place.status);
            if place.status == Status::Queued {
                queue.ready.remove(&rank(place));
            }
        }
        if let Some(wake_at) = place.wake_at {
            self.alarms.remove(&(wake_at, place.seq));
        }
        if is_waiting(place.status)
            && let Some(waiting) = self.waiting.get_mut(&namespace)
        {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// A job that is only counted: it can be neither handed out nor woken.
    pub(super) fn count(&mut self, place: &IndexEntry) {
        self.queues.entry(place.queue).or_default().counts.add(place.status);
    }

    /// The next job of a queue to hand out.
    pub(super) fn first(&self, queue: QueueId) -> Option<i64> {
        self.queues.get(&queue)?.ready.first().copied().map(seq_of_rank)
    }

    /// Since when the oldest queued job of each queue is eligible. Looks at one job of each priority that a queue has.
    pub(super) fn oldest(&self) -> Vec<(QueueId, Timestamp)> {
        let mut oldest = Vec::new();
        for (id, queue) in &self.queues {
            let (mut earliest, mut from) = (None, 0_u128);
            while let Some(rank) = queue.ready.range(from..).next() {
                let ready_at = i64::try_from(*rank >> 64 & ((1 << 48) - 1)).unwrap_or(i64::MAX);
                earliest = Some(earliest.map_or(ready_at, |known: i64| known.min(ready_at)));
                from = ((*rank >> 112) + 1) << 112;
            }
            oldest.extend(earliest.map(|millis| (*id, Timestamp::from_millis(millis))));
        }
        oldest
    }

    pub(super) fn counts(&self, queue: QueueId) -> QueueCounts {
        self.queues.get(&queue).map(|queue| queue.counts).unwrap_or_default()
    }

    pub(super) fn forget_queue(&mut self, queue: QueueId) {
        self.queues.remove(&queue);
    }

    pub(super) fn waiting(&self, namespace: NamespaceId) -> u64 {
        self.waiting.get(&namespace).copied().unwrap_or(0)
    }

    /// Rows whose alarm has rung by `now`, in order, and the first alarm after them.
    pub(super) fn due(&self, now: Timestamp, limit: usize) -> (Vec<i64>, Option<Timestamp>) {
        let mut rows = Vec::new();
        for (at, seq) in &self.alarms {
            if *at > now || rows.len() >= limit {
                return (rows, Some(*at));
            }
            rows.push(*seq);
        }
        (rows, None)
    }

    /// A row that cannot be read: its alarm is silenced, so that it does not keep all others from being served.
    pub(super) fn silence(&mut self, seq: i64) {
        self.alarms.retain(|(_, known)| *known != seq);
    }

    /// A row that cannot be read: it leaves the line, so that those behind it can go out.
    pub(super) fn skip_first(&mut self, queue: QueueId) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.ready.pop_first();
        }
    }

    /// Jobs whose key has this hash, newest first.
    pub(super) fn keyed(&self, hash: i64) -> Vec<i64> {
        let Some(newest) = self.keys.get(&hash) else {
            return Vec::new();
        };
        let older = self.older_keys.range((hash, i64::MIN)..=(hash, i64::MAX)).rev().map(|(_, seq)| *seq);
        std::iter::once(*newest).chain(older).collect()
    }

    /// The newest job takes the key over.
    pub(super) fn take_key(&mut self, hash: i64, seq: i64) {
        self.remember(IndexChange::TookKey(hash, seq));
        let Some(held) = self.keys.insert(hash, seq).filter(|held| *held != seq) else {
            return;
        };
        self.keys.insert(hash, seq.max(held));
        self.older_keys.insert((hash, seq.min(held)));
    }

    pub(super) fn drop_key(&mut self, hash: i64, seq: i64) {
        self.remember(IndexChange::DroppedKey(hash, seq));
        if self.keys.get(&hash) != Some(&seq) {
            self.older_keys.remove(&(hash, seq));
            return;
        }
        match self.older_keys.range((hash, i64::MIN)..=(hash, i64::MAX)).next_back().copied() {
            Some(previous) => {
                self.older_keys.remove(&previous);
                self.keys.insert(hash, previous.1);
            }
            None => {
                self.keys.remove(&hash);
            }
        }
    }

    /// Equal but for entries that hold nothing, which a rebuilt index does not have.
    pub(super) fn equals(&self, other: &Index) -> bool {
        let live = |index: &Index| {
            let mut queues: Vec<QueueId> =
                index.queues.iter().filter(|(_, queue)| queue.counts.total() > 0).map(|(id, _)| *id).collect();
            queues.sort();
            queues
        };
        let same_queues =
            live(self) == live(other) && live(self).iter().all(|id| self.queues.get(id) == other.queues.get(id));
        let waiting = |index: &Index| index.waiting.values().sum::<u64>();
        let same_keys = self.keys == other.keys && self.older_keys == other.older_keys;
        same_queues && self.alarms == other.alarms && same_keys && waiting(self) == waiting(other)
    }
}

fn is_waiting(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(seq: i64, priority: i8, ready_at: i64) -> IndexEntry {
        IndexEntry {
            seq,
            queue: QueueId(1),
            status: Status::Queued,
            priority,
            ready_at: Timestamp::from_millis(ready_at),
            wake_at: None,
        }
    }

    #[test]
    fn jobs_come_out_by_priority_then_age_then_row() {
        let mut index = Index::default();
        let places = [queued(1, 0, 50), queued(2, 0, 40), queued(3, 100, 90), queued(4, -100, 1), queued(5, 0, 40)];
        for place in &places {
            index.insert(place, NamespaceId(1));
        }

        let mut order = Vec::new();
        while let Some(seq) = index.first(QueueId(1)) {
            order.push(seq);
            index.remove(places.iter().find(|place| place.seq == seq).unwrap(), NamespaceId(1));
        }

        assert_eq!(order, [3, 2, 5, 1, 4]);
        assert_eq!(index.waiting(NamespaceId(1)), 0);
    }

    #[test]
    fn what_is_undone_leaves_no_trace() {
        let ours = NamespaceId(1);
        let build = |more: bool| {
            let mut index = Index::default();
            for seq in 1..50 {
                index.insert(&queued(seq, 0, seq), ours);
                index.take_key(seq % 7, seq);
            }
            index.settle();
            if more {
                for seq in 20..30 {
                    index.remove(&queued(seq, 0, seq), ours);
                    index.drop_key(seq % 7, seq);
                    let wake_at = Some(Timestamp::EPOCH);
                    index.insert(&IndexEntry { status: Status::Running, wake_at, ..queued(seq, 0, seq) }, ours);
                }
                for seq in 60..70 {
                    index.insert(&queued(seq, 1, seq), ours);
                    index.take_key(seq % 7, seq);
                }
            }
            index
        };
        let mut changed = build(true);
        assert!(!changed.equals(&build(false)));

        assert!(changed.undo());

        assert!(changed.equals(&build(false)));
    }

    #[test]
    fn too_many_changes_are_not_undone() {
        let (mut index, ours) = (Index::default(), NamespaceId(1));
        for seq in 0..=i64::try_from(CHANGES_MAX).unwrap() {
            index.insert(&queued(seq, 0, seq), ours);
        }

        assert!(!index.undo());
        index.settle();
        assert!(index.undo());
    }
}
