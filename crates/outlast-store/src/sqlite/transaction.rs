//! The writer's transaction as the rules see it: what is asked for is read, what is written goes to the connection at once,
//! and the memory keeps in step.

use std::sync::Arc;

use outlast_core::{Command, Effect, Job, JobId, Queue, QueueId, Refusal, Timestamp};
use rusqlite::params;

use super::faults::Fault;
use super::hot::UPDATE_ALARM;
use super::sealed;
use super::write::{DELETE_RESULT, INSERT_HISTORY, INSERT_RESULT, pages, write_job};
use super::writer::Core;
use crate::checksum::Table;
use crate::damage::Damage;
use crate::error::Error;
use crate::jobs::NewJob;
use crate::rows::{Place, Record};
use crate::step::{Around, Step, step};
use crate::transition::{Held, Rewrite, Transaction};

/// A checkpoint in the row, and the names of the sections.
const SAVED_BYTES: &str = "
    SELECT coalesce((SELECT octet_length(data) FROM checkpoint WHERE seq = ?1), 0)
        + coalesce((SELECT sum(octet_length(name) + 3) FROM section WHERE job = ?1), 0)";

impl Held for Record {
    fn record(&self) -> &Record {
        self
    }

    fn record_mut(&mut self) -> &mut Record {
        self
    }
}

impl Transaction for Core<'_> {
    type Fault = Fault;
    type Held = Record;

    fn damage(&self) -> &Damage {
        &self.damage
    }

    fn step_time(&self) -> Timestamp {
        self.now
    }

    fn step(&mut self, job: &Job, queue: &Queue, command: Command) -> Result<Step, Refusal> {
        let around = Around { now: self.now, entropy: self.entropy.as_mut(), compose: self.compose };
        step(job, queue, command, around)
    }

    fn take_job(&mut self, id: JobId) -> Result<Option<Record>, Fault> {
        self.take_by_id(id)
    }

    fn put_back(&mut self, record: Record) {
        self.keep(record);
    }

    fn queue(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.registry.get(id).cloned()
    }

    fn key_holder(&mut self, record: &Record, queue: &Queue) -> Result<Option<JobId>, Fault> {
        self.blocks_replay(record, queue)
    }

    fn saved_bytes(&mut self, record: &Record) -> Result<usize, Fault> {
        let headway = &record.job.headway;
        if !headway.has_checkpoint && !headway.has_sections {
            return Ok(0);
        }
        let bytes: i64 = self.connection.prepare_cached(SAVED_BYTES)?.query_row([record.seq], |row| row.get(0))?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    fn write(&mut self, record: &mut Record, rewrite: Rewrite<'_>) -> Result<(), Fault> {
        let written = match rewrite.is_alarm_only {
            true => write_job(&mut *self.connection.prepare_cached(UPDATE_ALARM)?, record)?,
            false => write_job(&mut self.hot.update_job, record)?,
        };
        if written != 1 {
            return Err(Error::Corrupt(format!("job row {} is gone", record.seq)).into());
        }
        if let Some((first, events)) = rewrite.moved_events {
            let mut insert = self.connection.prepare_cached(INSERT_HISTORY)?;
            sealed::execute(&mut insert, Table::History, params![record.seq, first, events])?;
        }
        if rewrite.has_new_payload {
            self.give_body_back(record)?;
            self.update_payload(record)?;
        }
        self.index.remove(&rewrite.before, rewrite.queue.namespace);
        self.index.insert(&Place::of(record), rewrite.queue.namespace);
        self.dirty_pages += 1;
        Ok(())
    }

    fn write_beside(&mut self, seq: i64, effect: Effect) -> Result<(), Fault> {
        match effect {
            Effect::KeepResult(body) => {
                let mut insert = self.connection.prepare_cached(INSERT_RESULT)?;
                sealed::execute(&mut insert, Table::Result, params![seq, &*body])?;
                self.dirty_pages += pages(body.len());
            }
            Effect::DropResult => {
                self.connection.prepare_cached(DELETE_RESULT)?.execute([seq])?;
            }
            Effect::KeepCheckpoint(checkpoint) => self.keep_checkpoint(seq, &checkpoint)?,
            Effect::KeepSection(section) => self.keep_section(seq, &section)?,
            Effect::DropCheckpoints => self.drop_checkpoints(seq)?,
            Effect::Expect(object) => self.put_object(seq, &object, false)?,
            Effect::Keep(object) => self.put_object(seq, &object, true)?,
            Effect::Doom(doom) => self.doom(seq, &doom)?,
            Effect::SetHold(_) | Effect::SetPace(_) | Effect::Publish { .. } => {}
        }
        Ok(())
    }

    fn write_gate(&mut self, queue: Queue) -> Result<(), Fault> {
        self.write_hold_and_pace(&queue)?;
        self.registry.put(queue);
        Ok(())
    }

    fn publish_outgoing(&mut self, job: NewJob) -> Result<(), Fault> {
        self.publish_exempt(&job)
    }

    fn erase(&mut self, record: Record, queue: &Queue) -> Result<(), Fault> {
        self.delete_rows(&record, queue)
    }
}
