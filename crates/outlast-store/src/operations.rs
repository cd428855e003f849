//! Work on many jobs that outlives a call: bulk replay, purge, discard of dead letters, deletion of a queue. An operation
//! walks the jobs in order of their position; each next_step commits the jobs' changes together with the new position, so that
//! a crash in the middle leaves neither doubles nor holes.

use std::sync::Arc;

use outlast_core::state::{CancelReason, FailReason, State};
use outlast_core::{Command, Job, NamespaceId, Queue, QueueId, Refusal, Timestamp};
use serde::{Deserialize, Serialize};

use crate::queues::{QueueLock, QueueRows};
use crate::transition::{Transaction, operate};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Dead letters back to queued.
    Replay,
    /// Waiting jobs to cancelled.
    Purge,
    /// Dead letters deleted.
    Discard,
    /// Every job, then the queue itself, deleted.
    Delete,
}

impl OperationKind {
    pub fn as_str(self) -> &'static str {
        match self {
            OperationKind::Replay => "replay",
            OperationKind::Purge => "purge",
            OperationKind::Discard => "discard",
            OperationKind::Delete => "delete",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    Running,
    Done,
    Stopped,
    /// It has done what it could: the jobs that are left of a queue to be deleted cannot be read.
    Stuck,
}

impl OperationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            OperationStatus::Running => "running",
            OperationStatus::Done => "done",
            OperationStatus::Stopped => "stopped",
            OperationStatus::Stuck => "stuck",
        }
    }
}

/// Which of the candidates to take. Empty takes all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationFilter {
    pub ids: Option<Vec<String>>,
    pub tags: Vec<(String, String)>,
    pub key: Option<String>,
    pub reason: Option<String>,
    pub finished_after: Option<Timestamp>,
    pub finished_before: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewOperation {
    pub namespace: NamespaceId,
    pub queue: String,
    pub kind: OperationKind,
    pub filter: OperationFilter,
    pub limit: Option<u64>,
    pub rate_per_second: Option<u32>,
}

impl NewOperation {
    /// The operation as it begins, before the store has given it a number.
    pub(crate) fn draft(&self, queue: &Queue, now: Timestamp) -> Operation {
        Operation {
            id: OperationId(0),
            namespace: self.namespace,
            queue: queue.id,
            queue_name: queue.name.clone(),
            kind: self.kind,
            filter: self.filter.clone(),
            limit: self.limit,
            rate_per_second: self.rate_per_second,
            status: OperationStatus::Running,
            position: 0,
            processed: 0,
            skipped: 0,
            created_at: now,
            finished_at: None,
        }
    }
}

/// An operation as stored. Every field is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub id: OperationId,
    pub namespace: NamespaceId,
    pub queue: QueueId,
    pub queue_name: String,
    pub kind: OperationKind,
    pub filter: OperationFilter,
    pub limit: Option<u64>,
    pub rate_per_second: Option<u32>,
    pub status: OperationStatus,
    /// Everything up to this position has been looked at.
    pub position: u64,
    /// How many jobs it changed.
    pub processed: u64,
    /// How many jobs a replay passed over because another job has their idempotency key.
    pub skipped: u64,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

impl Operation {
    /// Counts a job. True when it was changed.
    pub fn count(&mut self, processed: Processed) -> bool {
        self.processed += u64::from(processed == Processed::Changed);
        self.skipped += u64::from(processed == Processed::Skipped);
        processed == Processed::Changed
    }

    /// Has it changed as many jobs as it may?
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.processed >= limit)
    }
}

/// The effect of an operation on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// It does not match, or there was nothing to do.
    Unmatched,
    Changed,
    /// It matches and cannot be replayed: another job has its idempotency key.
    Skipped,
}

impl Processed {
    pub fn of_refusal(refusal: Refusal) -> Processed {
        match refusal {
            Refusal::KeyTaken { .. } => Processed::Skipped,
            _ => Processed::Unmatched,
        }
    }
}

/// The next step of an operation for a job it has found.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationStep {
    Skip,
    Command(Command),
    Delete,
}

/// The rule of all operations, the same for every engine. A replay takes only what had failed before it was asked for:
/// a job that fails again behind its position is not replayed twice.
pub fn next_step(operation: &Operation, job: &Job) -> OperationStep {
    let waiting = matches!(job.state, State::Pending { .. } | State::Queued { .. });
    match operation.kind {
        OperationKind::Delete => OperationStep::Delete,
        OperationKind::Purge if waiting => OperationStep::Command(Command::Cancel { reason: CancelReason::User }),
        OperationKind::Purge => OperationStep::Skip,
        OperationKind::Replay if matches(operation, job) => {
            OperationStep::Command(Command::Replay { fresh: false, payload: None })
        }
        OperationKind::Discard if matches(operation, job) => OperationStep::Delete,
        OperationKind::Replay | OperationKind::Discard => OperationStep::Skip,
    }
}

fn matches(operation: &Operation, job: &Job) -> bool {
    let State::Failed { at, reason } = &job.state else {
        return false;
    };
    let filter = &operation.filter;
    let tagged =
        |tag: &(String, String)| job.spec.tags.iter().any(|(name, value)| **name == *tag.0 && **value == *tag.1);
    *at <= operation.created_at
        && filter.ids.as_ref().is_none_or(|ids| ids.contains(&job.id.to_string()))
        && filter.tags.iter().all(tagged)
        && filter.key.as_ref().is_none_or(|key| job.spec.key.as_deref() == Some(key))
        && filter.reason.as_ref().is_none_or(|wanted| FailReason::as_str(*reason) == wanted)
        && filter.finished_after.is_none_or(|after| *at >= after)
        && filter.finished_before.is_none_or(|before| *at < before)
}

/// The rows of operations and of their jobs in a transaction of an engine. One that never has to wait answers at once.
pub(crate) trait OperationRows: Transaction + QueueRows<Fault = <Self as Transaction>::Fault> {
    /// Jobs one next_step looks at, whether they match or not: what bounds its time and its locks.
    const LOOK_MAX: usize;

    async fn insert_operation(&mut self, draft: Operation) -> RowResult<Self, Operation>;
    async fn save_operation(&mut self, operation: &Operation) -> RowResult<Self, ()>;
    /// Locks it, and says whether that was possible: who does not wait may find another node at it.
    async fn lock_operation(&mut self, id: OperationId, waits: bool) -> RowResult<Self, (Option<Operation>, bool)>;
    async fn queue_of(&mut self, operation: &Operation) -> RowResult<Self, Option<Arc<Queue>>>;
    /// The next jobs to look at, up to [`OperationRows::LOOK_MAX`], ready to be taken.
    async fn load_candidates(&mut self, operation: &Operation) -> RowResult<Self, Vec<i64>>;
    /// `None` for a job that is gone or cannot be read, which must not stop the rest.
    fn take_row(&mut self, seq: i64) -> RowResult<Self, Option<Self::Locked>>;
    /// A replay could not read what it needs, and has written nothing. `Ok` leaves the job as it is.
    fn pass_over(&mut self, _seq: i64, fault: <Self as Transaction>::Fault) -> RowResult<Self, ()> {
        Err(fault)
    }
    /// The first job that came into a queue behind the position of its deletion.
    async fn first_readable(&mut self, queue: &Queue) -> RowResult<Self, Option<i64>>;
}

pub(crate) type RowResult<T, R> = Result<R, <T as Transaction>::Fault>;

/// `None` when there is no such queue.
pub(crate) async fn start<T: OperationRows>(tx: &mut T, new: &NewOperation) -> RowResult<T, Option<Operation>> {
    match tx.lock_queue(new.namespace, &new.queue, QueueLock::Changes).await? {
        Some(queue) => tx.insert_operation(new.draft(&queue, tx.now())).await.map(Some),
        None => Ok(None),
    }
}

pub(crate) async fn stop<T: OperationRows>(
    tx: &mut T,
    namespace: NamespaceId,
    id: OperationId,
) -> RowResult<T, Option<Operation>> {
    let (found, _) = tx.lock_operation(id, true).await?;
    let Some(mut operation) = found.filter(|operation| operation.namespace == namespace) else {
        return Ok(None);
    };
    if operation.status == OperationStatus::Running {
        operation.status = OperationStatus::Stopped;
        operation.finished_at = Some(tx.now());
        tx.save_operation(&operation).await?;
    }
    Ok(Some(operation))
}

/// Does up to `limit` jobs and remembers how far it came. `None` when there is no such operation.
pub(crate) async fn advance<T: OperationRows>(
    tx: &mut T,
    id: OperationId,
    limit: usize,
) -> RowResult<T, Option<Operation>> {
    let (found, is_locked) = tx.lock_operation(id, false).await?;
    let Some(mut operation) = found else {
        return Ok(None);
    };
    if !is_locked || operation.status != OperationStatus::Running {
        return Ok(Some(operation));
    }
    let queue = tx.queue_of(&operation).await?;
    let is_exhausted = match &queue {
        Some(queue) => walk(tx, &mut operation, queue, limit).await?,
        None => true,
    };
    if is_exhausted || operation.is_full() {
        operation.status = match queue {
            Some(queue) if operation.kind == OperationKind::Delete => end_deletion(tx, &mut operation, &queue).await?,
            _ => OperationStatus::Done,
        };
        operation.finished_at = (operation.status != OperationStatus::Running).then(|| tx.now());
    }
    tx.save_operation(&operation).await?;
    Ok(Some(operation))
}

/// True when there is nothing left to look at.
async fn walk<T: OperationRows>(
    tx: &mut T,
    operation: &mut Operation,
    queue: &Queue,
    limit: usize,
) -> RowResult<T, bool> {
    let rows = tx.load_candidates(operation).await?;
    let mut done = 0;
    for seq in &rows {
        if done >= limit || operation.is_full() {
            return Ok(false);
        }
        if let Some(held) = tx.take_row(*seq)? {
            // Its hold may name one of these jobs.
            let queue = tx.queue(queue.id);
            let processed = match queue.map(|queue| operate(tx, held, operation, &queue)) {
                None => Processed::Unmatched,
                Some(Err(fault)) if operation.kind == OperationKind::Replay => {
                    tx.pass_over(*seq, fault)?;
                    Processed::Skipped
                }
                Some(processed) => processed?,
            };
            done += usize::from(operation.count(processed));
        }
        operation.position = seq.cast_unsigned();
    }
    Ok(rows.len() < T::LOOK_MAX)
}

/// Removes the queue if nothing is left of it, or else says how it goes on.
async fn end_deletion<T: OperationRows>(
    tx: &mut T,
    operation: &mut Operation,
    queue: &Queue,
) -> RowResult<T, OperationStatus> {
    let locked = tx.lock_queue(queue.namespace, &queue.name, QueueLock::Publishers).await?;
    if locked.is_none_or(|locked| locked.id != queue.id) {
        return Ok(OperationStatus::Done);
    }
    if !tx.has_jobs(queue).await? {
        tx.remove_queue(queue).await?;
        return Ok(OperationStatus::Done);
    }
    if operation.is_full() {
        return Ok(OperationStatus::Done);
    }
    if let Some(seq) = tx.first_readable(queue).await? {
        operation.position = seq.saturating_sub(1).cast_unsigned();
        return Ok(OperationStatus::Running);
    }
    tracing::error!(operation = operation.id.0, queue = queue.name, "a queue stays: jobs that are left cannot be read");
    Ok(OperationStatus::Stuck)
}
