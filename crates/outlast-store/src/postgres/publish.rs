//! Publishing: find the key's job or make a new one, for all publishes of a group at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_core::alarm::alarm;
use outlast_core::dedupe::holds_key;
use outlast_core::{Job, NamespaceId, Queue, Spec};
use tokio_postgres::types::Type;

use super::rows::{Record, job_columns, record, spec_json};
use super::session::Sql;
use super::transact::{Fault, Queues, Tx};
use crate::checksum::Digest;
use crate::history;
use crate::jobs::{NewJob, Published};
use crate::outbox::Publisher;
use crate::step::{birth, same_json};

/// Takes the keys that nobody has. Racing publishers of one key wait here for each other.
pub(super) static TAKE_NEW_KEYS: Sql = Sql {
    text: "
        INSERT INTO dedupe (hash, seqs)
        SELECT hash, ARRAY[seq] FROM unnest($1, $2) AS taken (hash, seq) ORDER BY hash
        ON CONFLICT (hash) DO NOTHING
        RETURNING hash",
    types: &[Type::INT8_ARRAY, Type::INT8_ARRAY],
};
pub(super) static KEYS_HELD: Sql = Sql {
    text: "SELECT hash, seqs FROM dedupe WHERE hash = ANY ($1) ORDER BY hash FOR UPDATE",
    types: &[Type::INT8_ARRAY],
};
static HOLDERS: Sql = Sql {
    text: concat!("SELECT ", job_columns!(), ", job.payload FROM job WHERE job.seq = ANY ($1)"),
    types: &[Type::INT8_ARRAY],
};
static WAITING: Sql = Sql {
    text: "
        SELECT queue.namespace, sum(tally.pending + tally.queued)::bigint
        FROM queue
        JOIN tally ON tally.queue = queue.id
        WHERE queue.namespace = ANY ($1)
        GROUP BY queue.namespace",
    types: &[Type::INT4_ARRAY],
};

/// The publishes of a group.
pub(super) struct Part<'g> {
    jobs: Vec<&'g NewJob>,
    publisher: Publisher,
}

impl<'g> Part<'g> {
    pub(super) fn new(jobs: Vec<&'g NewJob>, publisher: Publisher) -> Part<'g> {
        Part { jobs, publisher }
    }

    /// How many numbers it needs.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// The queues it is about.
    pub(super) fn queues(&self) -> impl Iterator<Item = (NamespaceId, &str)> {
        self.jobs.iter().map(|job| (job.namespace, &*job.queue))
    }

    /// One answer per job, in order.
    pub(super) async fn finish(
        self,
        queues: &Queues,
        seqs: Vec<i64>,
        tx: &mut Tx<'_>,
    ) -> Result<Vec<Published>, Fault> {
        if self.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let seqs = seqs.into_iter();
        let mut desk = Desk { queues, seqs, holders: HashMap::new(), waiting: HashMap::new() };
        let mut drafts: Vec<Draft<'_>> = Vec::with_capacity(self.jobs.len());
        for new in self.jobs {
            drafts.push(desk.draft(new, self.publisher, tx));
        }
        desk.take_keys(&drafts, tx).await?;
        if self.publisher == Publisher::User {
            desk.count_waiting(tx).await?;
        }
        Ok(drafts.into_iter().map(|draft| desk.publish(draft, tx)).collect())
    }
}

/// A publish with what is known before anything is decided.
struct Draft<'g> {
    new: &'g NewJob,
    queue: Option<Arc<Queue>>,
    /// The key with its hash.
    key: Option<(String, i64)>,
    /// The number it gets if it becomes a job.
    seq: i64,
}

/// What the publishes of a group share.
struct Desk<'q> {
    queues: &'q Queues,
    seqs: std::vec::IntoIter<i64>,
    /// By hash: the jobs made with this key, newest first. A key that was free has only the number that took it.
    holders: HashMap<i64, Vec<Holder>>,
    waiting: HashMap<NamespaceId, u64>,
}

enum Holder {
    /// Taken in this transaction; the job may not have been made yet.
    Tentative(i64),
    Job(Box<Job>),
}

impl Desk<'_> {
    fn draft<'g>(&mut self, new: &'g NewJob, publisher: Publisher, tx: &Tx<'_>) -> Draft<'g> {
        let queue = self.queues.get(&(new.namespace, Arc::clone(&new.queue))).cloned();
        let key = queue.as_ref().and_then(|queue| {
            let key = publisher.dedupe_key(&new.spec, queue)?;
            Some((key.to_string(), tx.shared.ids.key_hash(queue.id, &key)))
        });
        let seq = self.seqs.next().unwrap_or(0);
        Draft { new, queue, key, seq }
    }

    /// Takes free keys and finds out who has the others.
    async fn take_keys(&mut self, drafts: &[Draft<'_>], tx: &mut Tx<'_>) -> Result<(), Fault> {
        let mut taken: BTreeMap<i64, i64> = BTreeMap::new();
        for draft in drafts {
            if let Some((_, hash)) = &draft.key {
                taken.entry(*hash).or_insert(draft.seq);
            }
        }
        // Again for keys that were let go between the two statements.
        while !taken.is_empty() {
            let (hashes, seqs): (Vec<i64>, Vec<i64>) = taken.iter().unzip();
            let free = tx.session.query(&TAKE_NEW_KEYS, &[&hashes, &seqs]).await?;
            for row in &free {
                let hash: i64 = row.get(0);
                if let Some(seq) = taken.remove(&hash) {
                    self.holders.insert(hash, vec![Holder::Tentative(seq)]);
                }
            }
            if !taken.is_empty() {
                let held: Vec<i64> = taken.keys().copied().collect();
                self.read_holders(&held, tx).await?;
                taken.retain(|hash, _| !self.holders.contains_key(hash));
            }
        }
        Ok(())
    }

    async fn read_holders(&mut self, hashes: &[i64], tx: &mut Tx<'_>) -> Result<(), Fault> {
        let held = tx.session.query(&KEYS_HELD, &[&hashes]).await?;
        let lists: Vec<(i64, Vec<i64>)> = held.iter().map(|row| (row.get(0), row.get(1))).collect();
        let seqs: Vec<i64> = lists.iter().flat_map(|(_, seqs)| seqs).copied().collect();
        let mut jobs: HashMap<i64, Job> = HashMap::new();
        for row in &tx.session.query(&HOLDERS, &[&seqs]).await? {
            let record = record(row, tx.shared.ids)?;
            // Another call of this group may have replayed it, which the database does not know yet.
            if !tx.writes.has_in_hand(record.seq) {
                jobs.insert(record.seq, record.job);
                continue;
            }
            let seq = record.seq;
            tx.writes.load(record);
            jobs.extend(tx.writes.get(seq).map(|present| (seq, present.job.clone())));
        }
        for (hash, seqs) in lists {
            let newest_first = seqs.iter().rev().filter_map(|seq| jobs.remove(seq));
            self.holders.insert(hash, newest_first.map(|job| Holder::Job(Box::new(job))).collect());
        }
        Ok(())
    }

    async fn count_waiting(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let mut wanted: HashMap<NamespaceId, usize> = HashMap::new();
        for (namespace, _) in self.queues.keys() {
            *wanted.entry(*namespace).or_default() += 1000;
        }
        wanted.retain(|namespace, more| tx.shared.quota.must_count(*namespace, *more));
        if wanted.is_empty() {
            return Ok(());
        }
        let namespaces: Vec<i32> = wanted.keys().map(|namespace| namespace.0.cast_signed()).collect();
        for namespace in wanted.into_keys() {
            self.waiting.insert(namespace, 0);
        }
        for row in &tx.session.query(&WAITING, &[&namespaces]).await? {
            let namespace = NamespaceId(row.get::<_, i32>(0).cast_unsigned());
            self.waiting.insert(namespace, u64::try_from(row.get::<_, i64>(1)).unwrap_or(0));
        }
        for (namespace, waiting) in &self.waiting {
            tx.shared.quota.learn(*namespace, *waiting);
        }
        Ok(())
    }

    fn publish(&mut self, draft: Draft<'_>, tx: &mut Tx<'_>) -> Published {
        let Some(queue) = draft.queue else {
            return Published::QueueNotFound;
        };
        if let Some(existing) = self.holder(&queue, draft.key.as_ref(), tx) {
            let payload_mismatch = !same_json(&existing.spec.payload, &draft.new.spec.payload);
            return Published::Existing { job: existing, payload_mismatch };
        }
        let waiting_max = tx.shared.quota.waiting_max;
        if let Some(waiting) = self.waiting.get_mut(&draft.new.namespace) {
            if *waiting >= waiting_max {
                self.give_back(draft.key.as_ref(), draft.seq, tx);
                return Published::QuotaReached { waiting_max };
            }
            *waiting += 1;
        }
        let spec = match (&draft.new.spec.idempotency_key, &draft.key) {
            (None, Some((key, _))) => {
                Arc::new(Spec { idempotency_key: Some(key.as_str().into()), ..Spec::clone(&draft.new.spec) })
            }
            _ => Arc::clone(&draft.new.spec),
        };
        let (job, wake_at) = create(&queue, spec, draft.seq, tx);
        if let Some((_, hash)) = draft.key {
            self.take_over(hash, draft.seq, &job, tx);
        }
        Published::Created { job, wake_at }
    }

    /// The job that holds the key now, if any. A hash is only a hint; the stored key decides.
    fn holder(&self, queue: &Queue, key: Option<&(String, i64)>, tx: &Tx<'_>) -> Option<Job> {
        let (key, hash) = key?;
        let holds = |job: &Job| {
            job.queue == queue.id && job.spec.idempotency_key.as_deref() == Some(key) && holds_key(job, queue, tx.now)
        };
        self.holders.get(hash)?.iter().find_map(|holder| match holder {
            Holder::Job(job) if holds(job) => Some(Job::clone(job)),
            Holder::Job(_) | Holder::Tentative(_) => None,
        })
    }

    /// The new job is the newest holder. Where the key was free, the row names it already.
    fn take_over(&mut self, hash: i64, seq: i64, job: &Job, tx: &mut Tx<'_>) {
        let holders = self.holders.entry(hash).or_default();
        let named = holders.iter().any(|holder| matches!(holder, Holder::Tentative(taken) if *taken == seq));
        if named {
            holders.retain(|holder| matches!(holder, Holder::Job(_)));
        } else {
            tx.writes.keys.push((hash, seq));
        }
        holders.insert(0, Holder::Job(Box::new(job.clone())));
    }

    /// The job was refused after its key had been taken for it: the key is free again.
    fn give_back(&mut self, key: Option<&(String, i64)>, seq: i64, tx: &mut Tx<'_>) {
        let Some((_, hash)) = key else {
            return;
        };
        tx.writes.keys_gone.push((*hash, seq));
        if let Some(holders) = self.holders.get_mut(hash) {
            holders.retain(|holder| !matches!(holder, Holder::Tentative(taken) if *taken == seq));
        }
    }
}

fn create(queue: &Queue, spec: Arc<Spec>, seq: i64, tx: &mut Tx<'_>) -> (Job, Option<outlast_core::Timestamp>) {
    let ids = tx.shared.ids;
    let mut job = Job::admit(ids.id(seq, tx.now), queue.id, spec, tx.now);
    let event = birth(&mut job);
    let mut bytes = Vec::with_capacity(16);
    history::append(&mut bytes, job.created_at, &event);
    let wake_at = alarm(&job, queue);
    let spec_digest = spec_json(&job.spec).map(|json| Digest::of_text(json.as_bytes()));
    let record = Record { seq, job: job.clone(), history: bytes, wake_at, spec_digest };
    tx.writes.insert(record, queue, ids);
    (job, wake_at)
}
