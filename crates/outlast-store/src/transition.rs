//! Running commands and claims around `decide`, once for all engines: a command changes a job with all its data, a
//! claim hands jobs out, an alarm or a caller gets its answer. An engine only loads, locks and writes, through
//! [`Transaction`].

use std::sync::Arc;

use outlast_core::gate::hold_without;
use outlast_core::{Command, Effect, Job, JobId, Queue, QueueId, Refusal, Status, Timestamp, Update};

use crate::checked_decide::CheckedChange;
use crate::codec::events;
use crate::codec::row::{IndexEntry, JobRecord};
use crate::damage::Damage;
use crate::error::Error;
use crate::jobs::{Applied, ClaimRequest, Claimed, Declined, EndedHandout, JobCommand, NewJob};
use crate::operations::{self, Operation, Processed};
use crate::outbox::queues_of;

/// A transaction of one engine. An engine may write at once, or gather what is written until the transaction ends.
pub(crate) trait Transaction {
    type Fault: From<Error>;
    /// A job in the caller's hands, who puts it back or has it erased.
    type Locked: LockedJob;

    /// By which it asks the rules.
    fn step_time(&self) -> Timestamp;
    /// Where broken rules are counted.
    fn damage(&self) -> &Damage;
    /// Asks the rules about a job, by the transaction's time and chance.
    fn decide_checked(&mut self, job: &Job, queue: &Queue, command: Command) -> Result<CheckedChange, Refusal>;

    fn take_job(&mut self, id: JobId) -> Result<Option<Self::Locked>, Self::Fault>;
    fn put_back(&mut self, held: Self::Locked);
    /// A queue as this transaction has left it.
    fn queue(&self, id: QueueId) -> Option<Arc<Queue>>;
    /// The job that has the idempotency key of this one and keeps it from being replayed.
    fn key_holder(&mut self, held: &Self::Locked, queue: &Queue) -> Result<Option<JobId>, Self::Fault>;
    /// A section of this name is stored already, or the job may have one more.
    fn has_section_room(&mut self, held: &Self::Locked, name: &str) -> Result<bool, Self::Fault>;
    /// The size of the data that attempts have saved for the next one, in bytes of a response.
    fn saved_bytes(&mut self, record: &JobRecord) -> Result<usize, Self::Fault>;

    /// The row of a job that has been changed.
    fn write(&mut self, held: &mut Self::Locked, rewrite: Rewrite<'_>) -> Result<(), Self::Fault>;
    /// Result, checkpoint, sections and objects: what is kept beside the row of a job.
    fn write_beside(&mut self, seq: i64, effect: Effect) -> Result<(), Self::Fault>;
    /// Hold and rate limiter of a queue.
    fn write_gate(&mut self, queue: Queue) -> Result<(), Self::Fault>;
    /// A job that a state change creates.
    fn publish_outgoing(&mut self, job: NewJob) -> Result<(), Self::Fault>;
    /// The job goes, and all that belongs to it.
    fn erase(&mut self, held: Self::Locked, queue: &Queue) -> Result<(), Self::Fault>;
}

/// The parts of a row that are written.
pub(crate) struct Rewrite<'q> {
    pub(crate) queue: &'q Queue,
    /// Where the job stood.
    pub(crate) before: IndexEntry,
    /// Nothing but the alarm has changed.
    pub(crate) is_alarm_only: bool,
    pub(crate) has_new_payload: bool,
    /// Events that no longer fit into the row, with the number of the first.
    pub(crate) moved_events: Option<(i64, Vec<u8>)>,
}

pub(crate) trait LockedJob {
    fn record(&self) -> &JobRecord;
    fn record_mut(&mut self) -> &mut JobRecord;
}

/// The effect of a command on a job.
#[derive(Debug)]
pub(crate) enum Transition {
    Refused(Refusal),
    Unchanged,
    Changed { frees: bool, stalled: bool, published: Vec<Arc<str>>, set_aside: bool },
    Deleted,
}

/// Runs one command and writes what it changes. The job comes back as it is afterwards, unless it was deleted.
pub(crate) fn transition<T: Transaction>(
    tx: &mut T,
    mut held: T::Locked,
    queue: &Queue,
    command: Command,
) -> Result<(Option<T::Locked>, Transition), T::Fault> {
    let replays = command.is_replay();
    let section = match &command {
        Command::Section { section, .. } => Some(Arc::clone(section)),
        _ => None,
    };
    let step = match tx.decide_checked(&held.record().job, queue, command) {
        Ok(step) => step,
        Err(refusal) => return Ok((Some(held), Transition::Refused(refusal))),
    };
    if replays && let Some(holder) = tx.key_holder(&held, queue)? {
        return Ok((Some(held), Transition::Refused(Refusal::KeyTaken { holder })));
    }
    if let Some(section) = section
        && !tx.has_section_room(&held, &section.name)?
    {
        return Ok((Some(held), Transition::Refused(Refusal::SectionsFull)));
    }
    let done = match step {
        CheckedChange::Nothing => Transition::Unchanged,
        CheckedChange::Rearm { wake_at } => {
            rearm(tx, &mut held, queue, wake_at)?;
            Transition::Unchanged
        }
        CheckedChange::Silence(violation) => {
            tx.damage().note_violation(&violation);
            rearm(tx, &mut held, queue, None)?;
            Transition::Refused(Refusal::SetAside)
        }
        CheckedChange::Delete => {
            delete(tx, held, queue)?;
            return Ok((None, Transition::Deleted));
        }
        CheckedChange::Update { update, wake_at, frees, stalled, outbox, set_aside } => {
            set_aside.iter().for_each(|violation| tx.damage().note_violation(violation));
            write_update(tx, &mut held, queue, *update, wake_at)?;
            let published = queues_of(&outbox);
            outbox.into_iter().try_for_each(|job| tx.publish_outgoing(job))?;
            Transition::Changed { frees, stalled, published, set_aside: set_aside.is_some() }
        }
    };
    Ok((Some(held), done))
}

/// Sets the alarm and nothing else.
fn rearm<T: Transaction>(
    tx: &mut T,
    held: &mut T::Locked,
    queue: &Queue,
    wake_at: Option<Timestamp>,
) -> Result<(), T::Fault> {
    let before = IndexEntry::of(held.record());
    if before.wake_at == wake_at {
        return Ok(());
    }
    held.record_mut().wake_at = wake_at;
    tx.write(held, Rewrite { queue, before, is_alarm_only: true, has_new_payload: false, moved_events: None })
}

fn write_update<T: Transaction>(
    tx: &mut T,
    held: &mut T::Locked,
    queue: &Queue,
    update: Update,
    wake_at: Option<Timestamp>,
) -> Result<(), T::Fault> {
    let record = held.record_mut();
    let (seq, before) = (record.seq, IndexEntry::of(record));
    let moved_events = events::extend(&mut record.history, record.job.events, record.job.created_at, &update.events)?;
    let has_new_payload = !Arc::ptr_eq(&record.job.spec, &update.job.spec);
    (record.job, record.wake_at) = (update.job, wake_at);
    tx.write(held, Rewrite { queue, before, is_alarm_only: false, has_new_payload, moved_events })?;
    for effect in update.effects {
        match effect {
            Effect::SetHold(hold) => change_gate(tx, queue.id, |queue| queue.hold = hold)?,
            Effect::SetGcra(gcra) => change_gate(tx, queue.id, |queue| queue.gcra = gcra)?,
            // Composed from the whole step, see `transition`.
            Effect::Publish { .. } => {}
            beside => tx.write_beside(seq, beside)?,
        }
    }
    Ok(())
}

fn change_gate<T: Transaction>(tx: &mut T, queue: QueueId, change: impl FnOnce(&mut Queue)) -> Result<(), T::Fault> {
    let Some(present) = tx.queue(queue) else {
        return Ok(());
    };
    let mut changed = Queue::clone(&present);
    change(&mut changed);
    tx.write_gate(changed)
}

/// Removes a job and all that belongs to it. If it was the probe of a held queue, another one must try.
pub(crate) fn delete<T: Transaction>(tx: &mut T, held: T::Locked, queue: &Queue) -> Result<(), T::Fault> {
    let id = held.record().job.id;
    tx.erase(held, queue)?;
    match tx.queue(queue.id).and_then(|queue| hold_without(&queue, id)) {
        Some(hold) => change_gate(tx, queue.id, |queue| queue.hold = Some(hold)),
        None => Ok(()),
    }
}

/// Carries out one command of a caller.
pub(crate) fn apply<T: Transaction>(tx: &mut T, order: &JobCommand) -> Result<Result<Applied, Declined>, T::Fault> {
    let Some(held) = tx.take_job(order.id)? else {
        return Ok(Err(Declined::NotFound));
    };
    let Some(queue) = tx.queue(held.record().job.queue).filter(|queue| order.reach.covers(queue)) else {
        tx.put_back(held);
        return Ok(Err(Declined::NotFound));
    };
    let before = (held.record().job.status(), held.record().job.version);
    let began_at = held.record().job.running().map(|running| running.began_at);
    let (held, done) = transition(tx, held, &queue, order.command.clone())?;
    let record = held.as_ref().map(LockedJob::record);
    let (status, version) = record.map_or(before, |record| (record.job.status(), record.job.version));
    let wake_at = record.and_then(|record| record.wake_at);
    let ended = record.and_then(|record| EndedHandout::between(began_at, &record.job, tx.step_time()));
    let running = record.map(|record| &record.job).filter(|job| job.status() == Status::Running);
    let running = running.map(|job| Box::new(job.clone()));
    let (changed, deleted) = (!matches!(done, Transition::Unchanged), held.is_none());
    held.into_iter().for_each(|held| tx.put_back(held));
    let (frees, stalled, published, set_aside) = match done {
        Transition::Refused(refusal) => return Ok(Err(Declined::Refused(refusal))),
        Transition::Unchanged | Transition::Deleted => (false, false, Vec::new(), false),
        Transition::Changed { frees, stalled, published, set_aside } => (frees, stalled, published, set_aside),
    };
    let id = order.id;
    let applied = Applied {
        id,
        queue,
        status,
        version,
        changed,
        deleted,
        frees,
        stalled,
        published,
        set_aside,
        wake_at,
        ended,
        running,
    };
    Ok(Ok(applied))
}

/// Hands out the next ready job. A job whose `startBy` has passed is cancelled instead.
pub(crate) fn hand_out<T: Transaction>(
    tx: &mut T,
    held: T::Locked,
    want: &ClaimRequest,
    claimed: &mut Claimed,
) -> Result<(), T::Fault> {
    let seq = held.record().seq;
    let command = Command::Claim { phase: want.phase, visibility: want.visibility, worker: want.worker.clone() };
    // With each hand-out the queue's rate is used a little more.
    let queue = tx.queue(claimed.queue.id).unwrap_or_else(|| Arc::clone(&claimed.queue));
    let (held, done) = transition(tx, held, &queue, command)?;
    match done {
        Transition::Refused(refusal) => {
            return Err(Error::Corrupt(format!("job row {seq} stands in line as queued: {refusal}")).into());
        }
        Transition::Changed { published, .. } => claimed.published.extend(published),
        Transition::Unchanged | Transition::Deleted => {}
    }
    let Some(held) = held else {
        return Ok(());
    };
    let record = held.record();
    if record.job.status() == Status::Running {
        claimed.wake_at = claimed.wake_at.into_iter().chain(record.wake_at).min();
        claimed.add(record.job.clone(), tx.saved_bytes(record)?);
    } else {
        claimed.ended.push(record.job.id);
    }
    tx.put_back(held);
    Ok(())
}

/// Does to one job what an operation is for.
pub(crate) fn operate<T: Transaction>(
    tx: &mut T,
    held: T::Locked,
    operation: &Operation,
    queue: &Queue,
) -> Result<Processed, T::Fault> {
    let command = match operations::next_step(operation, &held.record().job) {
        operations::OperationStep::Skip => {
            tx.put_back(held);
            return Ok(Processed::Unmatched);
        }
        operations::OperationStep::Delete => {
            delete(tx, held, queue)?;
            return Ok(Processed::Changed);
        }
        operations::OperationStep::Command(command) => command,
    };
    let (held, done) = transition(tx, held, queue, command)?;
    held.into_iter().for_each(|held| tx.put_back(held));
    Ok(match done {
        Transition::Changed { .. } => Processed::Changed,
        Transition::Refused(refusal) => Processed::of_refusal(refusal),
        Transition::Unchanged | Transition::Deleted => Processed::Unmatched,
    })
}
