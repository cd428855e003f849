//! Publishing: find the key's job or make a new one, for all publishes of a group at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_core::{Job, NamespaceId, Queue, Timestamp};
use tokio_postgres::types::Type;

use super::rows::{job_columns, record, spec_json};
use super::session::Sql;
use super::transact::{Fault, Queues, Tx};
use crate::checksum::Digest;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::JobRecord;
use crate::jobs::{NewJob, Published};
use crate::publish::{Publisher, Publishing, publish};

/// Takes the free keys. Racing publishers of one key wait here for each other.
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
        SELECT queue.namespace, sum(queue_count.pending + queue_count.queued)::bigint
        FROM queue
        JOIN queue_count ON queue_count.queue = queue.id
        WHERE queue.namespace = ANY ($1)
        GROUP BY queue.namespace",
    types: &[Type::INT4_ARRAY],
};

/// The publishes of a group.
pub(super) struct PublishPart<'g> {
    jobs: Vec<&'g NewJob>,
    publisher: Publisher,
}

impl<'g> PublishPart<'g> {
    pub(super) fn new(jobs: Vec<&'g NewJob>, publisher: Publisher) -> PublishPart<'g> {
        PublishPart { jobs, publisher }
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
        let mut desk = PublishBatch { queues, holders: HashMap::new(), waiting: HashMap::new() };
        // Each with its number and the hash of its key.
        let hash = |new: &NewJob| {
            let queue = queues.get(&(new.namespace, Arc::clone(&new.queue)))?;
            let key = self.publisher.dedupe_key(&new.spec, queue)?;
            Some(tx.shared.ids.key_hash(queue.id, &key))
        };
        let drafts: Vec<(&NewJob, i64, Option<i64>)> =
            self.jobs.iter().zip(seqs).map(|(new, seq)| (*new, seq, hash(new))).collect();
        desk.take_keys(&drafts, tx).await?;
        if self.publisher == Publisher::User {
            desk.count_waiting(tx).await?;
        }
        let mut answers = Vec::with_capacity(drafts.len());
        for (new, seq, hash) in drafts {
            let mut one = One { desk: &mut desk, seq, tx };
            let published = publish(&mut one, new, self.publisher)?;
            if let (Published::QuotaReached { .. }, Some(hash)) = (&published, hash) {
                one.give_back(hash);
            }
            answers.push(published);
        }
        Ok(answers)
    }
}

/// State that the publishes of a group share.
struct PublishBatch<'q> {
    queues: &'q Queues,
    /// By hash: the jobs made with this key, newest first. A key that was free has only the number that took it.
    holders: HashMap<i64, Vec<KeyOwner>>,
    waiting: HashMap<NamespaceId, u64>,
}

enum KeyOwner {
    /// Taken in this transaction; the job may not have been made yet.
    Tentative(i64),
    Job(Box<Job>),
}

impl PublishBatch<'_> {
    /// Takes free keys and finds out who has the others.
    async fn take_keys(&mut self, drafts: &[(&NewJob, i64, Option<i64>)], tx: &mut Tx<'_>) -> Result<(), Fault> {
        let mut taken: BTreeMap<i64, i64> = BTreeMap::new();
        for (_, seq, hash) in drafts {
            if let Some(hash) = hash {
                taken.entry(*hash).or_insert(*seq);
            }
        }
        // Again for keys that were let go between the two statements.
        while !taken.is_empty() {
            let (hashes, seqs): (Vec<i64>, Vec<i64>) = taken.iter().unzip();
            let free = tx.session.query(&TAKE_NEW_KEYS, &[&hashes, &seqs]).await?;
            for row in &free {
                let hash: i64 = row.get(0);
                if let Some(seq) = taken.remove(&hash) {
                    self.holders.insert(hash, vec![KeyOwner::Tentative(seq)]);
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
            self.holders.insert(hash, newest_first.map(|job| KeyOwner::Job(Box::new(job))).collect());
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
}

/// One publish of a group.
struct One<'a, 'q, 't> {
    desk: &'a mut PublishBatch<'q>,
    seq: i64,
    tx: &'a mut Tx<'t>,
}

impl Publishing for One<'_, '_, '_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.tx.now
    }

    fn ids(&self) -> JobIdCodec {
        self.tx.shared.ids
    }

    fn find_queue(&self, namespace: NamespaceId, name: &Arc<str>) -> Option<Arc<Queue>> {
        self.desk.queues.get(&(namespace, Arc::clone(name))).cloned()
    }

    fn find_by_key(&mut self, hash: i64, holds: impl Fn(&Job) -> bool) -> Result<Option<Job>, Fault> {
        Ok(self.desk.holders.get(&hash).into_iter().flatten().find_map(|holder| match holder {
            KeyOwner::Job(job) if holds(job) => Some(Job::clone(job)),
            KeyOwner::Job(_) | KeyOwner::Tentative(_) => None,
        }))
    }

    fn quota_reached(&mut self, namespace: NamespaceId) -> Option<u64> {
        let (waiting, waiting_max) = (self.desk.waiting.get_mut(&namespace)?, self.tx.shared.quota.waiting_max);
        if *waiting >= waiting_max {
            return Some(waiting_max);
        }
        *waiting += 1;
        None
    }

    fn seq(&self) -> i64 {
        self.seq
    }

    fn insert(&mut self, mut record: JobRecord, queue: &Queue) -> Result<(), Fault> {
        record.spec_digest = spec_json(&record.job.spec).map(|json| Digest::of_text(json.as_bytes()));
        if let Some(hash) = record.key_hash {
            self.take_over(hash, &record.job);
        }
        self.tx.writes.insert(record, queue, self.tx.shared.ids);
        Ok(())
    }
}

impl One<'_, '_, '_> {
    /// The new job is the newest holder. Where the key was free, the row names it already.
    fn take_over(&mut self, hash: i64, job: &Job) {
        let (seq, holders) = (self.seq, self.desk.holders.entry(hash).or_default());
        let named = holders.iter().any(|holder| matches!(holder, KeyOwner::Tentative(taken) if *taken == seq));
        if named {
            holders.retain(|holder| matches!(holder, KeyOwner::Job(_)));
        } else {
            self.tx.writes.keys.push((hash, seq));
        }
        holders.insert(0, KeyOwner::Job(Box::new(job.clone())));
    }

    /// The job was refused after its key had been taken for it: the key is free again.
    fn give_back(&mut self, hash: i64) {
        let seq = self.seq;
        self.tx.writes.keys_gone.push((hash, seq));
        if let Some(holders) = self.desk.holders.get_mut(&hash) {
            holders.retain(|holder| !matches!(holder, KeyOwner::Tentative(taken) if *taken == seq));
        }
    }
}
