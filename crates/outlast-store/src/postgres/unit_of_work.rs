//! The unit of work of a transaction: it loads jobs, decides on them in memory, and at the end sends all changes in a
//! few statements, each for all jobs at once, in one round trip with COMMIT.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::sync::Arc;

use outlast_core::{Queue, QueueId, Spec, Status};

use super::artifacts::ArtifactWrites;
use super::batch::WriteBatch;
use super::claim_cursor::ReadyRank;
use super::session::Session;
use crate::checked_decide::labels;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{IndexEntry, JobRecord};
use crate::jobs::NewJob;

/// A job in the hands of a transaction.
#[derive(Debug)]
pub(super) struct LoadedRow {
    pub(super) record: JobRecord,
    /// Where it stood when it was loaded; `None` for a new one.
    pub(super) before: Option<IndexEntry>,
    pub(super) fate: RowState,
}

impl LoadedRow {
    fn is_gone(&self) -> bool {
        matches!(self.fate, RowState::Deleted | RowState::Gone)
    }

    /// Its `startBy` passed, or it was cancelled, deleted or deferred.
    fn has_left_line(&self) -> bool {
        let was_in_line = self.before.is_some_and(|before| before.status == Status::Queued);
        was_in_line
            && match self.fate {
                RowState::Changed => !matches!(self.record.job.status(), Status::Queued | Status::Running),
                RowState::Deleted => true,
                RowState::Untouched | RowState::Rearmed | RowState::Gone => false,
            }
    }

    /// The entry once the database has the change.
    fn sent(mut self) -> LoadedRow {
        self.before = Some(IndexEntry::of(&self.record));
        self.fate = if self.is_gone() { RowState::Gone } else { RowState::Untouched };
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowState {
    Untouched,
    /// Only its alarm moves.
    Rearmed,
    Changed,
    Deleted,
    /// Deleted, and the database knows.
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct UnitOfWork {
    entries: BTreeMap<i64, LoadedRow>,
    queues: HashMap<QueueId, Arc<Queue>>,
    /// Queues whose hold or rate limiter this transaction has decided on: newer than any reading.
    decided: BTreeSet<QueueId>,
    /// Those whose hold and rate limiter are to be written.
    pub(super) gates: BTreeMap<QueueId, Arc<Queue>>,
    /// Jobs that state changes create; published when all else has been decided.
    pub(super) outbox: Vec<NewJob>,
    pub(super) payloads: BTreeMap<i64, Arc<str>>,
    pub(super) results: BTreeMap<i64, Option<Arc<str>>>,
    pub(super) history: Vec<(i64, i64, Vec<u8>)>,
    pub(super) artifacts: ArtifactWrites,
    pub(super) labels: Vec<(i64, i64)>,
    pub(super) labels_gone: Vec<(i64, i64)>,
    /// Keys that another job took over, and keys whose job is deleted.
    pub(super) keys: Vec<(i64, i64)>,
    pub(super) keys_gone: Vec<(i64, i64)>,
    /// The first place in each line that a job came to.
    lined_up: BTreeMap<QueueId, ReadyRank>,
    /// Rows that cannot be read: they leave the line and lose their alarm.
    pub(super) set_aside: Vec<i64>,
}

impl UnitOfWork {
    /// The queues that the jobs of this transaction belong to, as they are now.
    pub(super) fn know_queue(&mut self, queue: Arc<Queue>) {
        if !self.decided.contains(&queue.id) {
            self.queues.insert(queue.id, queue);
        }
    }

    pub(super) fn queue(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(&id)
    }

    /// A job that was read under a lock.
    pub(super) fn load(&mut self, record: JobRecord) {
        let before = Some(IndexEntry::of(&record));
        match self.entries.entry(record.seq) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(LoadedRow { record, before, fate: RowState::Untouched });
            }
            // It may have been changed since; only the payload is new, if it was read without one before.
            btree_map::Entry::Occupied(mut known) => {
                let spec = &mut known.get_mut().record.job.spec;
                if spec.payload.is_empty() {
                    *spec = Arc::new(Spec { payload: Arc::clone(&record.job.spec.payload), ..Spec::clone(spec) });
                }
            }
        }
    }

    /// Was the row locked by this transaction, readable or not, whatever has become of it since?
    pub(super) fn has_in_hand(&self, seq: i64) -> bool {
        self.entries.contains_key(&seq) || self.set_aside.contains(&seq)
    }

    /// How many rows that are at most.
    pub(super) fn in_hand(&self) -> usize {
        self.entries.len() + self.set_aside.len()
    }

    pub(super) fn get(&self, seq: i64) -> Option<&JobRecord> {
        self.entries.get(&seq).filter(|entry| !entry.is_gone()).map(|entry| &entry.record)
    }

    /// A new job.
    pub(super) fn insert(&mut self, record: JobRecord, queue: &Queue, ids: JobIdCodec) {
        let hashes = labels(&record.job, queue.namespace).into_iter().map(|label| ids.label_hash(&label));
        self.labels.extend(hashes.map(|hash| (hash, record.seq)));
        self.entries.insert(record.seq, LoadedRow { record, before: None, fate: RowState::Changed });
    }

    /// Takes a job into the caller's hands, if it is here.
    pub(super) fn take(&mut self, seq: i64) -> Option<LoadedRow> {
        self.get(seq)?;
        self.entries.remove(&seq)
    }

    pub(super) fn put_back(&mut self, entry: LoadedRow) {
        self.entries.insert(entry.record.seq, entry);
    }

    /// Removes a job and all that belongs to it.
    pub(super) fn delete(&mut self, mut entry: LoadedRow, queue: &Queue, ids: JobIdCodec) {
        let (seq, job) = (entry.record.seq, &entry.record.job);
        let hashes = labels(job, queue.namespace).into_iter().map(|label| ids.label_hash(&label));
        self.labels_gone.extend(hashes.map(|hash| (hash, seq)));
        if let Some(key) = &job.spec.idempotency_key {
            self.keys_gone.push((ids.key_hash(queue.id, key), seq));
        }
        entry.fate = RowState::Deleted;
        self.put_back(entry);
    }

    pub(super) fn write_gate(&mut self, queue: Queue) {
        let queue = Arc::new(queue);
        self.decided.insert(queue.id);
        self.queues.insert(queue.id, Arc::clone(&queue));
        self.gates.insert(queue.id, queue);
    }

    /// Did a job leave its line unclaimed, which the database does not know yet?
    pub(super) fn has_left_line(&self) -> bool {
        !self.set_aside.is_empty() || self.entries.values().any(LoadedRow::has_left_line)
    }

    /// The first place in each line that this transaction puts a job to.
    pub(super) fn lined_up(&self) -> BTreeMap<QueueId, ReadyRank> {
        let mut firsts = self.lined_up.clone();
        for entry in self.entries.values().filter(|entry| entry.fate == RowState::Changed) {
            let place = IndexEntry::of(&entry.record);
            if place.status == Status::Queued && entry.before != Some(place) {
                let rank = ReadyRank::of(&place, entry.record.seq);
                firsts.entry(place.queue).and_modify(|first| *first = rank.min(*first)).or_insert(rank);
            }
        }
        firsts
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &LoadedRow> {
        self.entries.values()
    }

    /// Sends the changes so far, in the middle of a transaction. The known jobs and queues stay known: rows that were
    /// read before this are out of date.
    pub(super) async fn flush(&mut self, session: &Session, slot: i16) -> Result<(), tokio_postgres::Error> {
        let mut done = std::mem::take(self);
        let batch = WriteBatch::of(&done, slot);
        batch.ready(session).await?;
        batch.send(session).await?;
        drop(batch);
        self.lined_up = done.lined_up();
        self.outbox = std::mem::take(&mut done.outbox);
        self.queues = done.queues;
        self.decided = done.decided;
        let entries = std::mem::take(&mut done.entries);
        self.entries = entries.into_iter().map(|(seq, entry)| (seq, entry.sent())).collect();
        Ok(())
    }
}
