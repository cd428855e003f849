//! The writer's transaction as the rules see it: what is asked for is read, what is written goes to the connection at once,
//! and the memory keeps in decide_checked.

use std::sync::Arc;

use outlast_core::checkpoint::SECTIONS_MAX;
use outlast_core::{Command, Effect, Job, JobId, Queue, QueueId, Refusal, Timestamp};
use rusqlite::params;

use super::faults::Fault;
use super::row_checksums;
use super::statements::UPDATE_ALARM;
use super::write::{DELETE_RESULT, INSERT_HISTORY, INSERT_RESULT, pages, write_job};
use super::writer::WriterState;
use crate::checked_decide::{CheckedChange, DecideContext, decide_checked};
use crate::checksum::Table;
use crate::codec::row::{IndexEntry, JobRecord};
use crate::damage::Damage;
use crate::error::Error;
use crate::jobs::NewJob;
use crate::transition::{LockedJob, Rewrite, Transaction};

/// A checkpoint in the row, and the names of the sections.
const SAVED_BYTES: &str = "
    SELECT coalesce((SELECT octet_length(data) FROM checkpoint WHERE seq = ?1), 0)
        + coalesce((SELECT sum(octet_length(name) + 3) FROM section WHERE job = ?1), 0)";

const HAS_SECTION_ROOM: &str = "
    SELECT EXISTS (SELECT 1 FROM section WHERE job = ?1 AND name = ?2)
        OR (SELECT count(*) FROM section WHERE job = ?1) < ?3";

impl LockedJob for JobRecord {
    fn record(&self) -> &JobRecord {
        self
    }

    fn record_mut(&mut self) -> &mut JobRecord {
        self
    }
}

impl Transaction for WriterState<'_> {
    type Fault = Fault;
    type Locked = JobRecord;

    fn damage(&self) -> &Damage {
        &self.damage
    }

    fn step_time(&self) -> Timestamp {
        self.now
    }

    fn decide_checked(&mut self, job: &Job, queue: &Queue, command: Command) -> Result<CheckedChange, Refusal> {
        let around = DecideContext { now: self.now, entropy: self.entropy.as_mut(), compose: self.compose };
        decide_checked(job, queue, command, around)
    }

    fn take_job(&mut self, id: JobId) -> Result<Option<JobRecord>, Fault> {
        self.take_by_id(id)
    }

    fn put_back(&mut self, record: JobRecord) {
        self.keep(record);
    }

    fn queue(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.registry.get(id).cloned()
    }

    fn key_holder(&mut self, record: &JobRecord, queue: &Queue) -> Result<Option<JobId>, Fault> {
        self.blocks_replay(record, queue)
    }

    fn has_section_room(&mut self, record: &JobRecord, name: &str) -> Result<bool, Fault> {
        if !record.job.work_summary.has_sections {
            return Ok(true);
        }
        let mut statement = self.connection.prepare_cached(HAS_SECTION_ROOM)?;
        Ok(statement.query_row(params![record.seq, name, SECTIONS_MAX], |row| row.get(0))?)
    }

    fn saved_bytes(&mut self, record: &JobRecord) -> Result<usize, Fault> {
        let work_summary = &record.job.work_summary;
        if !work_summary.has_checkpoint && !work_summary.has_sections {
            return Ok(0);
        }
        let bytes: i64 = self.connection.prepare_cached(SAVED_BYTES)?.query_row([record.seq], |row| row.get(0))?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    fn write(&mut self, record: &mut JobRecord, rewrite: Rewrite<'_>) -> Result<(), Fault> {
        let written = match rewrite.is_alarm_only {
            true => write_job(&mut *self.connection.prepare_cached(UPDATE_ALARM)?, record)?,
            false => write_job(&mut self.statements.update_job, record)?,
        };
        if written != 1 {
            return Err(Error::Corrupt(format!("job row {} is gone", record.seq)).into());
        }
        if let Some((first, events)) = rewrite.moved_events {
            let mut insert = self.connection.prepare_cached(INSERT_HISTORY)?;
            row_checksums::execute(&mut insert, Table::History, params![record.seq, first, events])?;
        }
        if rewrite.has_new_payload {
            self.give_body_back(record)?;
            self.update_payload(record)?;
        }
        self.index.remove(&rewrite.before, rewrite.queue.namespace);
        self.index.insert(&IndexEntry::of(record), rewrite.queue.namespace);
        self.dirty_pages += 1;
        Ok(())
    }

    fn write_beside(&mut self, seq: i64, effect: Effect) -> Result<(), Fault> {
        match effect {
            Effect::KeepResult(body) => {
                let mut insert = self.connection.prepare_cached(INSERT_RESULT)?;
                row_checksums::execute(&mut insert, Table::Result, params![seq, &*body])?;
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
            Effect::ScheduleDelete(schedule_delete) => self.schedule_delete(seq, &schedule_delete)?,
            Effect::SetHold(_) | Effect::SetGcra(_) | Effect::Publish { .. } => {}
        }
        Ok(())
    }

    fn write_gate(&mut self, queue: Queue) -> Result<(), Fault> {
        self.write_hold_and_gcra(&queue)?;
        self.registry.put(queue);
        Ok(())
    }

    fn publish_outgoing(&mut self, job: NewJob) -> Result<(), Fault> {
        self.publish_exempt(&job)
    }

    fn erase(&mut self, record: JobRecord, queue: &Queue) -> Result<(), Fault> {
        self.delete_rows(&record, queue)
    }
}
