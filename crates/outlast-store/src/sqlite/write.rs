//! Loading and writing single jobs inside the writer's transaction, and keeping the memory in step with the rows.

use outlast_core::gate::HoldCause;
use outlast_core::state::Phase;
use outlast_core::{Command, JobId, Outcome, Queue, Spec, State, Timestamp};
use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::compressed_text::CompressedText;
use super::faults::Fault;
use super::faults::is_damage;
use super::publish::SpecEncoding;
use super::row_checksums::{self, verify};
use super::rows::{overrides_json, record, tags_json};
use super::writer::WriterState;
use crate::checked_decide::labels;
use crate::checksum::Table;
use crate::codec::events::code;
use crate::codec::job_id::JobIdCodec;
use crate::codec::row::{IndexEntry, JobRecord, opened_at_column, queued_at_column, state_columns, to_json};
use crate::codec::work::work_column;
use crate::damage::Damage;
use crate::error::Error;
use crate::jobs::{JobCommand, Reach};
use crate::transition::apply;

const PAGE_BYTES: usize = 4096;

impl WriterState<'_> {
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        // Open already only in the rig that answers first.
        if self.connection.is_autocommit() {
            self.statements.begin.execute([]).map_err(|error| match Fault::from(error) {
                Fault::Busy => Fault::NotBegun,
                fault => fault,
            })?;
        }
        Ok(())
    }

    /// The sync happens here.
    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        self.statements.commit.execute([])?;
        self.index.settle();
        self.committed_seq = self.stored_seq;
        self.has_new_keys = false;
        Ok(())
    }

    /// The record of a row, from memory or disk. It leaves the cache: the caller puts it back.
    pub(super) fn take(&mut self, seq: i64) -> Result<Option<JobRecord>, Fault> {
        if let Some(record) = self.cache.take(seq) {
            return Ok(Some(record));
        }
        if self.set_aside.contains_key(&seq) {
            return Err(Fault::Unsound(Error::Corrupt(format!("job row {seq} is set aside"))));
        }
        let ids = self.ids;
        let found = self.statements.select.query_row([seq], |row| Ok(record(row, ids))).optional();
        match found.map(Option::transpose) {
            Ok(Ok(record)) => Ok(record),
            Ok(Err(error)) => Err(self.put_aside(seq, error)),
            Err(error) if is_damage(&error) => Err(self.put_aside(seq, unreadable(error))),
            Err(error) => Err(error.into()),
        }
    }

    /// A job whose row is damaged is not touched again before the next start.
    fn put_aside(&mut self, seq: i64, error: Error) -> Fault {
        let error = match error {
            Error::Corrupt(what) => Error::Corrupt(format!("job row {seq}: {what}")),
            other => return Fault::Unsound(other),
        };
        self.note_damage(&error);
        self.set_aside.insert(seq, None);
        Fault::Unsound(error)
    }

    /// The record an id names. `None` for ids that were never ours.
    pub(super) fn take_by_id(&mut self, id: JobId) -> Result<Option<JobRecord>, Fault> {
        let seq = self.ids.seq(id);
        let Some(record) = self.take(seq)? else {
            let is_lost = is_lost(self.connection, &self.damage, self.ids, id)?;
            return if is_lost {
                Err(self.put_aside(seq, Error::Corrupt("the row is lost".to_owned())))
            } else {
                Ok(None)
            };
        };
        if record.job.id != id {
            self.keep(record);
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// Back into memory, unless it will hardly be asked for again: it is finished, or its outcome is awaited, which may take
    /// hours and would keep fresh jobs out.
    pub(super) fn keep(&mut self, record: JobRecord) {
        let is_awaited = matches!(&record.job.state, State::Running(running) if running.phase == Phase::AwaitingAck);
        if !is_awaited && !record.job.status().is_terminal() {
            self.cache.put(record);
        }
    }

    pub(super) fn insert(&mut self, record: &JobRecord, form: &SpecEncoding<'_>, queue: &Queue) -> Result<(), Fault> {
        let (job, spec) = (&record.job, &record.job.spec);
        self.stored_seq = self.stored_seq.max(record.seq + 1);
        write_job(&mut self.statements.insert_job, record)?;
        self.dirty_pages += 1 + pages(form.payload.len());
        write_spec(&mut self.statements.insert_spec, record.seq, spec, form)?;
        for label in labels(job, queue.namespace) {
            self.connection.prepare_cached(INSERT_LABEL)?.execute(params![label, record.seq])?;
        }
        if let Some(hash) = record.key_hash {
            self.index.take_key(hash, record.seq);
        }
        self.index.insert(&IndexEntry::of(record), queue.namespace);
        Ok(())
    }

    /// The rest of the spec stays as it is; whether its event is still stored is read again.
    pub(super) fn update_payload(&mut self, record: &JobRecord) -> Result<(), Fault> {
        let inbound_event = self.connection.prepare_cached(ARRIVAL_OF)?.query_row([record.seq], |row| row.get(0))?;
        let payload = CompressedText::new(&record.job.spec.payload);
        let mut update = self.connection.prepare_cached(UPDATE_SPEC)?;
        write_spec(&mut update, record.seq, &record.job.spec, &SpecEncoding { payload: &payload, inbound_event })?;
        Ok(())
    }

    pub(super) fn write_hold_and_gcra(&self, queue: &Queue) -> Result<(), Fault> {
        let hold = queue.hold;
        let mut update = self.connection.prepare_cached(UPDATE_GATE)?;
        let columns = params![
            queue.id.0,
            hold.map(|hold| hold.until.as_millis()),
            hold.and_then(|hold| hold.probe).map(|id| self.ids.seq(id)),
            hold.map_or(0, |hold| code(&HoldCause::ALL, hold.cause)),
            hold.map_or(0, |hold| hold.round),
            queue.gcra.0
        ];
        row_checksums::execute(&mut update, Table::Gate, columns)?;
        Ok(())
    }

    /// Removes the rows of a job and all that belongs to it.
    pub(super) fn delete_rows(&mut self, record: &JobRecord, queue: &Queue) -> Result<(), Fault> {
        self.give_body_back(record)?;
        for statement in [DELETE_JOB, DELETE_SPEC, DELETE_RESULT, DELETE_HISTORY] {
            self.connection.prepare_cached(statement)?.execute([record.seq])?;
        }
        self.forget_kept(record.seq)?;
        for label in labels(&record.job, queue.namespace) {
            self.connection.prepare_cached(DELETE_LABEL)?.execute(params![label, record.seq])?;
        }
        if let Some(hash) = record.key_hash {
            self.index.drop_key(hash, record.seq);
        }
        self.index.remove(&IndexEntry::of(record), queue.namespace);
        self.keep_next_seq(record.seq)?;
        self.dirty_pages += 2;
        Ok(())
    }

    /// Rows tell how far numbers have been given out, as long as they are there. Before one goes that is newer than what
    /// was noted, the next number is noted: a number never comes back, else an id, a cursor or the position of an
    /// operation could mean another job after a restart.
    pub(super) fn keep_next_seq(&mut self, deleted: i64) -> Result<(), Fault> {
        if deleted >= self.noted_seq {
            self.note(NEXT_SEQ, self.next_seq)?;
            self.noted_seq = self.next_seq;
        }
        Ok(())
    }

    /// Numbers that were given out before a loss are not given out again.
    pub(super) fn skip_to(&mut self, next_seq: i64) -> Result<(), Fault> {
        self.note(NEXT_SEQ, next_seq)?;
        (self.next_seq, self.noted_seq, self.stored_seq) = (next_seq, next_seq, next_seq);
        self.committed_seq = next_seq;
        Ok(())
    }

    /// Writes a number down under a name.
    pub(super) fn note(&self, name: &str, value: i64) -> Result<(), Fault> {
        row_checksums::execute(&mut *self.connection.prepare_cached(NOTE)?, Table::Meta, params![name, value])?;
        Ok(())
    }

    pub(super) fn noted(&self, name: &str) -> Result<Option<i64>, Error> {
        let mut statement = self.connection.prepare_cached(NOTED).map_err(unreadable)?;
        let mut rows = statement.query([name]).map_err(unreadable)?;
        let Some(row) = rows.next().map_err(unreadable)? else {
            return Ok(None);
        };
        verify(Table::Meta, row, 0..2, 2)?;
        row.get(1).map(Some).map_err(unreadable)
    }

    /// Hand-outs whose receiver vanished before the answer: back at once, free.
    pub(super) fn release_orphans(&mut self) -> Result<(), Fault> {
        // Forgotten only after the commit: a group that is undone runs again.
        for (id, lease) in self.orphans.clone() {
            let command = Command::Report {
                lease: Some(lease),
                outcome: Outcome::Release,
                evidence: outlast_core::Evidence::default(),
            };
            let _ = apply(self, &JobCommand { id, reach: Reach::Everything, command })?;
        }
        Ok(())
    }
}

/// Was there a job of this number, which is gone without having been deleted? A job and its spec go together.
pub(super) fn is_lost(connection: &Connection, damage: &Damage, ids: JobIdCodec, id: JobId) -> Result<bool, Error> {
    let seq = ids.seq(id);
    if !ids.is_ours(id) {
        return Ok(false);
    }
    let spec = connection.prepare_cached(HAS_SPEC).and_then(|mut spec| spec.exists([seq])).map_err(unreadable)?;
    Ok(spec || damage.may_have_lost(seq))
}

pub(super) fn pages(bytes: usize) -> u64 {
    u64::try_from(bytes / PAGE_BYTES).unwrap_or(0)
}

/// A read that failed: because what it met is damaged, or for another reason.
pub(super) fn unreadable(error: rusqlite::Error) -> Error {
    match is_damage(&error) {
        true => Error::Corrupt(error.to_string()),
        false => Error::Unreadable(error.to_string()),
    }
}

/// Writes the statements row by a statement with the parameters of [`super::statements`].
pub(super) fn write_job(statement: &mut Statement<'_>, record: &JobRecord) -> rusqlite::Result<usize> {
    let (job, columns) = (&record.job, state_columns(&record.job));
    let row = params![
        record.seq,
        job.queue.0,
        columns.status,
        columns.detail,
        job.spec.priority,
        job.created_at.as_millis(),
        job.version.cast_signed(),
        job.replays,
        job.attempt,
        job.epoch.cast_signed(),
        job.deferrals,
        job.events.cast_signed(),
        record.history,
        columns.state_at,
        record.wake_at.map(Timestamp::as_millis),
        record.key_hash,
        opened_at_column(job),
        queued_at_column(job),
        job.started_at.map(Timestamp::as_millis),
        columns.lease,
        columns.last_how,
        columns.expires_at,
        columns.extension,
        columns.heartbeat_at,
        columns.revoke_at,
        columns.result,
        job.last_error.as_deref(),
        columns.worker,
        work_column(job),
    ];
    row_checksums::execute(statement, Table::Job, row)
}

/// Writes the spec by a statement whose parameters are its columns and its checksum.
fn write_spec(statement: &mut Statement<'_>, seq: i64, spec: &Spec, form: &SpecEncoding<'_>) -> Result<usize, Fault> {
    let origin = spec.origin.as_ref().filter(|_| form.inbound_event.is_none()).map(to_json).transpose()?;
    let row = params![
        seq,
        form.payload,
        spec.idempotency_key.as_deref(),
        spec.key.as_deref(),
        tags_json(spec),
        spec.not_before.map(Timestamp::as_millis),
        spec.start_by.map(Timestamp::as_millis),
        spec.callback_url.as_deref(),
        spec.notify_email.as_deref(),
        spec.traceparent.as_deref(),
        overrides_json(spec),
        origin,
        form.inbound_event,
    ];
    Ok(row_checksums::execute_with_digest(statement, Table::Spec, row, form.payload.digest())?)
}

const INSERT_LABEL: &str = "INSERT OR IGNORE INTO label (label, seq) VALUES (?1, ?2)";

const HAS_SPEC: &str = "SELECT 1 FROM spec WHERE seq = ?1";
const ARRIVAL_OF: &str = "SELECT inbound_event FROM spec WHERE seq = ?1";
const UPDATE_SPEC: &str = "
    UPDATE spec
    SET payload = ?2, idempotency_key = ?3, key = ?4, tags = ?5, not_before = ?6, start_by = ?7, callback_url = ?8,
        notify_email = ?9, traceparent = ?10, overrides = ?11, origin = ?12, inbound_event = ?13, checksum = ?14
    WHERE seq = ?1";
const UPDATE_GATE: &str = "
    UPDATE queue
    SET hold_until = ?2, hold_probe = ?3, hold_cause = ?4, hold_round = ?5, gcra = ?6, gate_checksum = ?7
    WHERE id = ?1";
pub(super) const INSERT_HISTORY: &str = "INSERT INTO history (job, first, events, checksum) VALUES (?1, ?2, ?3, ?4)";
pub(super) const INSERT_RESULT: &str = "INSERT OR REPLACE INTO result (seq, body, checksum) VALUES (?1, ?2, ?3)";
pub(super) const DELETE_RESULT: &str = "DELETE FROM result WHERE seq = ?1";
const DELETE_JOB: &str = "DELETE FROM job WHERE seq = ?1";
const DELETE_SPEC: &str = "DELETE FROM spec WHERE seq = ?1";
const DELETE_HISTORY: &str = "DELETE FROM history WHERE job = ?1";
const DELETE_LABEL: &str = "DELETE FROM label WHERE label = ?1 AND seq = ?2";
/// The name of the next number to be given out.
pub(super) const NEXT_SEQ: &str = "next_seq";
const NOTED: &str = "SELECT name, value, checksum FROM meta WHERE name = ?1";
const NOTE: &str = "
    INSERT INTO meta (name, value, checksum)
    VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, checksum = excluded.checksum";
