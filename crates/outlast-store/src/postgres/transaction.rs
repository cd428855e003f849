//! A transaction as the rules see it: jobs have been loaded under their locks, and what is written is gathered.

use std::sync::Arc;

use outlast_core::{Command, Effect, Job, JobId, Queue, QueueId, Refusal, Timestamp};

use super::transact::{Fault, Tx};
use super::write::{Entry, Fate, Writes};
use crate::damage::Damage;
use crate::jobs::NewJob;
use crate::rows::Record;
use crate::step::{Around, Step, step};
use crate::transition::{Held, Rewrite, Transaction};

impl Held for Entry {
    fn record(&self) -> &Record {
        &self.record
    }

    fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }
}

impl Transaction for Tx<'_> {
    type Fault = Fault;
    type Held = Entry;

    fn damage(&self) -> &Damage {
        &self.shared.damage
    }

    fn step_time(&self) -> Timestamp {
        self.now
    }

    fn step(&mut self, job: &Job, queue: &Queue, command: Command) -> Result<Step, Refusal> {
        let mut entropy = self.shared.entropy();
        step(job, queue, command, Around { now: self.now, entropy: entropy.as_mut(), compose: self.shared.compose })
    }

    fn take_job(&mut self, id: JobId) -> Result<Option<Entry>, Fault> {
        let seq = self.shared.ids.seq(id);
        let is_meant = self.writes.get(seq).is_some_and(|record| record.job.id == id);
        Ok(is_meant.then(|| self.writes.take(seq)).flatten())
    }

    fn put_back(&mut self, entry: Entry) {
        self.writes.put_back(entry);
    }

    fn queue(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.writes.queue(id).cloned()
    }

    fn key_holder(&mut self, entry: &Entry, _: &Queue) -> Result<Option<JobId>, Fault> {
        Ok(self.key_holders.blocks_replay(&entry.record.job, &self.writes, self.shared.ids, self.now))
    }

    fn saved_bytes(&mut self, record: &Record) -> Result<usize, Fault> {
        Ok(self.saved_bytes.get(&record.seq).copied().unwrap_or(0))
    }

    fn write(&mut self, entry: &mut Entry, rewrite: Rewrite<'_>) -> Result<(), Fault> {
        let (seq, writes) = (entry.record.seq, &mut self.writes);
        match (rewrite.is_alarm_only, entry.fate) {
            (false, _) => entry.fate = Fate::Changed,
            (true, Fate::Untouched) => entry.fate = Fate::Rearmed,
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
        let Writes { kept, results, .. } = &mut self.writes;
        match effect {
            Effect::KeepResult(body) => drop(results.insert(seq, Some(body))),
            Effect::DropResult => drop(results.insert(seq, None)),
            Effect::KeepCheckpoint(checkpoint) => kept.keep_checkpoint(seq, checkpoint),
            Effect::KeepSection(section) => kept.keep_section(seq, section),
            Effect::DropCheckpoints => kept.drop_checkpoints(seq),
            Effect::Expect(object) => kept.put_object(seq, object, false),
            Effect::Keep(object) => kept.put_object(seq, object, true),
            Effect::Doom(doom) => kept.doom(seq, doom),
            Effect::SetHold(_) | Effect::SetPace(_) | Effect::Publish { .. } => {}
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

    fn erase(&mut self, entry: Entry, queue: &Queue) -> Result<(), Fault> {
        self.writes.delete(entry, queue, self.shared.ids);
        Ok(())
    }
}
