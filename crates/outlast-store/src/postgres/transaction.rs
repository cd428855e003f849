//! A transaction as the rules see it: jobs have been loaded under their locks, and what is written is gathered.

use std::sync::Arc;

use outlast_core::{Command, Effect, Job, JobId, Queue, QueueId, Refusal, Timestamp};

use super::transact::{Fault, Tx};
use super::unit_of_work::{LoadedRow, RowState, UnitOfWork};
use crate::checked_decide::{CheckedChange, DecideContext, decide_checked};
use crate::codec::row::JobRecord;
use crate::damage::Damage;
use crate::jobs::NewJob;
use crate::transition::{LockedJob, Rewrite, Transaction};

impl LockedJob for LoadedRow {
    fn record(&self) -> &JobRecord {
        &self.record
    }

    fn record_mut(&mut self) -> &mut JobRecord {
        &mut self.record
    }
}

impl Transaction for Tx<'_> {
    type Fault = Fault;
    type Locked = LoadedRow;

    fn damage(&self) -> &Damage {
        &self.shared.damage
    }

    fn step_time(&self) -> Timestamp {
        self.now
    }

    fn decide_checked(&mut self, job: &Job, queue: &Queue, command: Command) -> Result<CheckedChange, Refusal> {
        let mut entropy = self.shared.entropy();
        decide_checked(
            job,
            queue,
            command,
            DecideContext { now: self.now, entropy: entropy.as_mut(), compose: self.shared.compose },
        )
    }

    fn take_job(&mut self, id: JobId) -> Result<Option<LoadedRow>, Fault> {
        let seq = self.shared.ids.seq(id);
        let is_meant = self.writes.get(seq).is_some_and(|record| record.job.id == id);
        Ok(is_meant.then(|| self.writes.take(seq)).flatten())
    }

    fn put_back(&mut self, entry: LoadedRow) {
        self.writes.put_back(entry);
    }

    fn queue(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.writes.queue(id).cloned()
    }

    fn key_holder(&mut self, entry: &LoadedRow, _: &Queue) -> Result<Option<JobId>, Fault> {
        Ok(self.key_holders.blocks_replay(&entry.record.job, &self.writes, self.shared.ids, self.now))
    }

    fn has_section_room(&mut self, entry: &LoadedRow, name: &str) -> Result<bool, Fault> {
        let pending = self.writes.artifacts.section_names(entry.record.seq);
        Ok(self.stored_sections.has_room(entry.record.seq, name, pending))
    }

    fn saved_bytes(&mut self, record: &JobRecord) -> Result<usize, Fault> {
        Ok(self.saved_bytes.get(&record.seq).copied().unwrap_or(0))
    }

    fn write(&mut self, entry: &mut LoadedRow, rewrite: Rewrite<'_>) -> Result<(), Fault> {
        let (seq, writes) = (entry.record.seq, &mut self.writes);
        match (rewrite.is_alarm_only, entry.fate) {
            (false, _) => entry.fate = RowState::Changed,
            (true, RowState::Untouched) => entry.fate = RowState::Rearmed,
            (true, _) => {}
        }
        writes.history.extend(rewrite.moved_events.map(|(first, events)| (seq, first, events)));
        // A new job brings its payload with it.
        if rewrite.has_new_payload && entry.before.is_some() {
            writes.payloads.insert(seq, Arc::clone(&entry.record.job.spec.payload));
        }
        Ok(())
    }

    fn write_beside(&mut self, seq: i64, effect: Effect) -> Result<(), Fault> {
        let UnitOfWork { artifacts, results, .. } = &mut self.writes;
        match effect {
            Effect::KeepResult(body) => drop(results.insert(seq, Some(body))),
            Effect::DropResult => drop(results.insert(seq, None)),
            Effect::KeepCheckpoint(checkpoint) => artifacts.keep_checkpoint(seq, checkpoint),
            Effect::KeepSection(section) => artifacts.keep_section(seq, section),
            Effect::DropCheckpoints => artifacts.drop_checkpoints(seq),
            Effect::Expect(object) => artifacts.put_object(seq, object, false),
            Effect::Keep(object) => artifacts.put_object(seq, object, true),
            Effect::ScheduleDelete(schedule_delete) => artifacts.schedule_delete(seq, schedule_delete),
            Effect::SetHold(_) | Effect::SetGcra(_) | Effect::Publish { .. } => {}
        }
        Ok(())
    }

    fn write_gate(&mut self, queue: Queue) -> Result<(), Fault> {
        self.writes.write_gate(queue);
        Ok(())
    }

    fn publish_outgoing(&mut self, job: NewJob) -> Result<(), Fault> {
        self.writes.outbox.push(job);
        Ok(())
    }

    fn erase(&mut self, entry: LoadedRow, queue: &Queue) -> Result<(), Fault> {
        self.writes.delete(entry, queue, self.shared.ids);
        Ok(())
    }
}
