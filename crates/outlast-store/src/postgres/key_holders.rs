//! The other jobs that have the idempotency key of a job to be replayed. The key's row is locked, as publishers lock it: of
//! a replay and a publish that race, the second one sees what the first has done.

use std::collections::{BTreeSet, HashMap};

use outlast_core::dedupe::blocks_replay;
use outlast_core::{Job, JobId, Timestamp};
use tokio_postgres::types::Type;

use super::publish::KEYS_HELD;
use super::rows::{job_columns, record};
use super::session::Sql;
use super::transact::{Fault, Tx};
use super::unit_of_work::UnitOfWork;
use crate::codec::job_id::JobIdCodec;

static JOBS: Sql = Sql {
    text: concat!("SELECT ", job_columns!(), ", NULL::text FROM job WHERE job.seq = ANY ($1)"),
    types: &[Type::INT8_ARRAY],
};

/// By hash of their key, all jobs that were made with it, as the database has them.
#[derive(Debug, Default)]
pub(super) struct KeyHolders(HashMap<i64, Vec<KeyHolder>>);

#[derive(Debug)]
struct KeyHolder {
    seq: i64,
    id: JobId,
    /// `None` when its row cannot be read. Then it counts as live: a second live job would be worse.
    job: Option<Job>,
}

/// Locks the keys of jobs which this transaction holds and is about to replay, and reads who has them.
pub(super) async fn load(seqs: &[i64], tx: &mut Tx<'_>) -> Result<(), Fault> {
    let ids = tx.shared.ids;
    let hashes: BTreeSet<i64> = seqs.iter().filter_map(|seq| key_hash(&tx.writes.get(*seq)?.job, ids)).collect();
    if hashes.is_empty() {
        return Ok(());
    }
    let hashes: Vec<i64> = hashes.into_iter().collect();
    let held = tx.session.query(&KEYS_HELD, &[&hashes]).await?;
    let lists: Vec<(i64, Vec<i64>)> = held.iter().map(|row| (row.get(0), row.get(1))).collect();
    let wanted: Vec<i64> = lists.iter().flat_map(|(_, seqs)| seqs).copied().collect();
    let mut found: HashMap<i64, KeyHolder> = HashMap::new();
    for row in &tx.session.query(&JOBS, &[&wanted]).await? {
        let seq: i64 = row.get(0);
        let id = ids.id(seq, Timestamp::from_millis(row.get(3)));
        let job = record(row, ids).map(|record| record.job);
        if let Err(error) = &job {
            tracing::error!(row = seq, %error, "cannot read a job; jobs of its idempotency key cannot be replayed");
        }
        found.insert(seq, KeyHolder { seq, id, job: job.ok() });
    }
    for (hash, seqs) in lists {
        tx.key_holders.0.insert(hash, seqs.iter().rev().filter_map(|seq| found.remove(seq)).collect());
    }
    Ok(())
}

impl KeyHolders {
    /// The job that prevents a replay of `job`. Changes of this transaction count.
    pub(super) fn blocks_replay(
        &self,
        job: &Job,
        writes: &UnitOfWork,
        ids: JobIdCodec,
        now: Timestamp,
    ) -> Option<JobId> {
        let holders = self.0.get(&key_hash(job, ids)?)?;
        let queue = writes.queue(job.queue)?;
        let blocks = |holder: &&KeyHolder| {
            let present = match writes.has_in_hand(holder.seq) {
                true => writes.get(holder.seq).map(|record| &record.job),
                false => holder.job.as_ref(),
            };
            match present {
                Some(other) => blocks_replay(other, job, queue, now),
                // Deleted by this transaction, or unreadable.
                None => holder.job.is_none() && holder.id != job.id,
            }
        };
        holders.iter().find(blocks).map(|holder| holder.id)
    }
}

fn key_hash(job: &Job, ids: JobIdCodec) -> Option<i64> {
    job.spec.idempotency_key.as_ref().map(|key| ids.key_hash(job.queue, key))
}
