//! Loading and writing single jobs inside the writer's transaction, and keeping the memory in step with the rows.

use outlast_core::gate::{Cause, Hold, hold_without};
use outlast_core::pace::Pace;
use outlast_core::state::Phase;
use outlast_core::{Command, Effect, Event, JobId, Outcome, Queue, QueueId, Refusal, State, Status, Timestamp, Update};
use rusqlite::{OptionalExtension, params};

use super::index::{Index, Place, ready_at};
use super::long_text::Packed;
use super::publish::Form;
use super::registry::Registry;
use super::rows::{Record, overrides_json, record, tags_json};
use super::writer::{Core, Fault};
use crate::error::Error;
use crate::history::{self, PHASES, code};
use crate::progress::work_column;
use crate::rows::{UPLOAD, opened_at_column, queued_at_column, state_columns, to_json};
use crate::step::{Step, labels, step};

const PAGE_BYTES: usize = 4096;

impl Core<'_> {
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        // Open already only in the rig that answers first.
        if self.connection.is_autocommit() {
            self.hot.begin.execute([])?;
        }
        Ok(())
    }

    /// The sync happens here.
    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        self.hot.commit.execute([])?;
        Ok(())
    }

    /// The record of a row, from memory or disk. It leaves the cache: whoever takes it puts it back.
    pub(super) fn take(&mut self, seq: i64) -> Result<Option<Record>, Fault> {
        if let Some(record) = self.cache.take(seq) {
            return Ok(Some(record));
        }
        let ids = self.ids;
        let found = self.hot.select.query_row([seq], |row| Ok(record(row, ids))).optional()?;
        Ok(found.transpose()?)
    }

    /// The record an id names. `None` for ids that were never ours.
    pub(super) fn take_by_id(&mut self, id: JobId) -> Result<Option<Record>, Fault> {
        let Some(record) = self.take(self.ids.seq(id))? else {
            return Ok(None);
        };
        if record.job.id != id {
            self.keep(record);
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// Back into memory, unless it will hardly be asked for again: it is finished, or its outcome is awaited, which may take
    /// hours and would keep fresh jobs out.
    pub(super) fn keep(&mut self, record: Record) {
        let is_awaited = matches!(&record.job.state, State::Running(running) if running.phase == Phase::AwaitingAck);
        if !is_awaited && !record.job.status().is_terminal() {
            self.cache.put(record);
        }
    }

    /// Runs one command and writes what it changes. The record comes back as it is afterwards, with what happened.
    pub(super) fn transition(
        &mut self,
        record: Record,
        queue: &Queue,
        command: Command,
    ) -> Result<(Record, Transition), Fault> {
        let (now, replays) = (self.now, command.is_replay());
        let stepped = step(&record.job, queue, command, now, self.entropy.as_mut());
        if replays
            && stepped.is_ok()
            && let Some(holder) = self.blocks_replay(&record, queue)?
        {
            return Ok((record, Transition::Refused(Refusal::KeyTaken { holder })));
        }
        match stepped {
            Err(refusal) => Ok((record, Transition::Refused(refusal))),
            Ok(Step::Nothing) => Ok((record, Transition::Unchanged)),
            Ok(Step::Rearm { wake_at }) => Ok((self.rearm(record, queue, wake_at)?, Transition::Unchanged)),
            Ok(Step::Delete) => {
                self.delete(&record, queue)?;
                Ok((record, Transition::Deleted))
            }
            Ok(Step::Update { update, wake_at, frees, stalled, callback }) => {
                let record = self.update(record, queue, *update, wake_at)?;
                let has_callback = callback.is_some();
                if let Some(spec) = callback {
                    self.publish_callback(queue.namespace, *spec)?;
                }
                Ok((record, Transition::Changed { frees, stalled, callback: has_callback }))
            }
        }
    }

    pub(super) fn insert(&mut self, record: &Record, form: &Form<'_>, queue: &Queue) -> Result<(), Fault> {
        let (job, spec) = (&record.job, &record.job.spec);
        let columns = state_columns(job);
        self.stored_seq = self.stored_seq.max(record.seq + 1);
        self.hot.insert_job.execute(params![
            record.seq,
            job.queue.0,
            columns.status,
            columns.detail,
            spec.priority,
            job.created_at.as_millis(),
            job.version.cast_signed(),
            job.run,
            job.attempt,
            job.events.cast_signed(),
            record.history,
            columns.state_at,
            record.wake_at.map(Timestamp::as_millis),
            record.key_hash,
            opened_at_column(job),
            queued_at_column(job),
        ])?;
        let origin = spec.origin.as_ref().filter(|_| form.arrival.is_none()).map(to_json).transpose()?;
        self.dirty_pages += 1 + pages(form.payload.len());
        self.hot.insert_spec.execute(params![
            record.seq,
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
            form.arrival,
        ])?;
        for label in labels(job, queue.namespace) {
            self.connection.prepare_cached(INSERT_LABEL)?.execute(params![label, record.seq])?;
        }
        if let Some(hash) = record.key_hash {
            self.index.take_key(hash, record.seq);
        }
        self.index.insert(&place(record, queue));
        Ok(())
    }

    fn update(
        &mut self,
        mut record: Record,
        queue: &Queue,
        update: Update,
        wake_at: Option<Timestamp>,
    ) -> Result<Record, Fault> {
        let before = place(&record, queue);
        let payload_changed = !std::sync::Arc::ptr_eq(&record.job.spec, &update.job.spec);
        self.append_history(&mut record, &update.events)?;
        if payload_changed {
            self.give_body_back(&record)?;
        }
        record.job = update.job;
        record.wake_at = wake_at;
        self.update_row(&record)?;
        if payload_changed {
            self.connection
                .prepare_cached(UPDATE_PAYLOAD)?
                .execute(params![record.seq, Packed::new(&record.job.spec.payload)])?;
        }
        for effect in update.effects {
            self.carry_out(&record, queue, effect)?;
        }
        self.index.remove(&before);
        self.index.insert(&place(&record, queue));
        self.dirty_pages += 1;
        Ok(record)
    }

    /// Sets the alarm and nothing else.
    fn rearm(&mut self, mut record: Record, queue: &Queue, wake_at: Option<Timestamp>) -> Result<Record, Fault> {
        if record.wake_at == wake_at {
            return Ok(record);
        }
        self.index.remove(&place(&record, queue));
        record.wake_at = wake_at;
        self.connection
            .prepare_cached(UPDATE_ALARM)?
            .execute(params![record.seq, wake_at.map(Timestamp::as_millis)])?;
        self.index.insert(&place(&record, queue));
        self.dirty_pages += 1;
        Ok(record)
    }

    fn update_row(&mut self, record: &Record) -> Result<(), Fault> {
        let job = &record.job;
        let columns = state_columns(job);
        let changed = self.hot.update_job.execute(params![
            record.seq,
            columns.status,
            columns.detail,
            job.version.cast_signed(),
            job.run,
            job.attempt,
            job.epoch.cast_signed(),
            job.deferrals,
            job.events.cast_signed(),
            record.history,
            columns.state_at,
            record.wake_at.map(Timestamp::as_millis),
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
        ])?;
        match changed {
            1 => Ok(()),
            _ => Err(Fault::Unsound(Error::Corrupt(format!("job row {} is gone", record.seq)))),
        }
    }

    /// Adds events to the hot row; what no longer fits moves out.
    fn append_history(&mut self, record: &mut Record, events: &[Event]) -> Result<(), Fault> {
        let moved = history::extend(&mut record.history, record.job.events, record.job.created_at, events)?;
        if let Some((first, moved)) = moved {
            self.connection.prepare_cached(INSERT_HISTORY)?.execute(params![record.seq, first, moved])?;
        }
        Ok(())
    }

    fn carry_out(&mut self, record: &Record, queue: &Queue, effect: Effect) -> Result<(), Fault> {
        match effect {
            Effect::KeepResult(body) => {
                self.connection.prepare_cached(INSERT_RESULT)?.execute(params![record.seq, &*body])?;
                self.dirty_pages += pages(body.len());
            }
            Effect::DropResult => {
                self.connection.prepare_cached(DELETE_RESULT)?.execute([record.seq])?;
            }
            Effect::SetHold(hold) => self.set_hold(queue.id, hold)?,
            Effect::SetPace(pace) => self.set_pace(queue.id, pace)?,
            // Made from the whole step, see `transition`.
            Effect::Callback => {}
            Effect::KeepCheckpoint(checkpoint) => self.keep_checkpoint(record.seq, &checkpoint)?,
            Effect::KeepSection(section) => self.keep_section(record.seq, &section)?,
            Effect::DropCheckpoints => self.drop_checkpoints(record.seq)?,
            Effect::Expect(object) => self.put_object(record.seq, &object, false)?,
            Effect::Keep(object) => self.put_object(record.seq, &object, true)?,
            Effect::Doom(doom) => self.doom(record.seq, &doom)?,
        }
        Ok(())
    }

    pub(super) fn set_hold(&mut self, queue: QueueId, hold: Option<Hold>) -> Result<(), Fault> {
        let until = hold.map(|hold| hold.until.as_millis());
        let probe = hold.and_then(|hold| hold.probe).map(|id| self.ids.seq(id));
        let cause = hold.map_or(0, |hold| code(&Cause::ALL, hold.cause));
        let round = hold.map_or(0, |hold| hold.round);
        self.connection.prepare_cached(UPDATE_HOLD)?.execute(params![queue.0, until, probe, cause, round])?;
        if let Some(present) = self.registry.get(queue) {
            let held = Queue { hold, ..Queue::clone(present) };
            self.registry.put(held);
        }
        Ok(())
    }

    pub(super) fn set_pace(&mut self, queue: QueueId, pace: Pace) -> Result<(), Fault> {
        self.connection.prepare_cached(UPDATE_PACE)?.execute(params![queue.0, pace.0])?;
        if let Some(present) = self.registry.get(queue) {
            let paced = Queue { pace, ..Queue::clone(present) };
            self.registry.put(paced);
        }
        Ok(())
    }

    /// Removes a job and all that belongs to it.
    pub(super) fn delete(&mut self, record: &Record, queue: &Queue) -> Result<(), Fault> {
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
        self.index.remove(&place(record, queue));
        let hold = self.registry.get(queue.id).and_then(|queue| hold_without(queue, record.job.id));
        if hold.is_some() {
            self.set_hold(queue.id, hold)?;
        }
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

    /// Writes a number down under a name.
    /// Numbers that were given out before a loss are not given out again.
    pub(super) fn skip_to(&mut self, next_seq: i64) -> Result<(), Fault> {
        self.note(NEXT_SEQ, next_seq)?;
        (self.next_seq, self.noted_seq, self.stored_seq) = (next_seq, next_seq, next_seq);
        Ok(())
    }

    pub(super) fn note(&self, name: &str, value: i64) -> Result<(), Fault> {
        self.connection.prepare_cached(NOTE)?.execute(params![name, value])?;
        Ok(())
    }

    pub(super) fn noted(&self, name: &str) -> Result<Option<i64>, Error> {
        self.connection.query_row(NOTED, [name], |row| row.get(0)).optional().map_err(unreadable)
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
            let Some(record) = self.take_by_id(id)? else {
                continue;
            };
            let Some(queue) = self.registry.get(record.job.queue).cloned() else {
                continue;
            };
            let (record, _) = self.transition(record, &queue, command)?;
            self.keep(record);
        }
        Ok(())
    }

    /// Builds all memory from the rows: at start, and after a rolled-back group. Says which rows are being delivered.
    pub(super) fn rebuild(&mut self) -> Result<Vec<i64>, Error> {
        self.cache.clear();
        self.registry = Registry::load(self.connection, self.ids, self.registry.shared())?;
        let Scan { index, delivering } = self.scan()?;
        self.index = index;
        self.young_keys = self.scan_young_keys()?;
        let newest: Option<i64> = self.connection.query_row(NEWEST, [], |row| row.get(0)).map_err(unreadable)?;
        self.noted_seq = self.noted(NEXT_SEQ)?.unwrap_or(1);
        self.stored_seq = self.noted_seq.max(newest.unwrap_or(0) + 1);
        self.next_seq = self.next_seq.max(self.stored_seq);
        Ok(delivering)
    }

    /// What the rows say.
    pub(super) fn scan(&self) -> Result<Scan, Error> {
        let (mut index, mut delivering) = (Index::default(), Vec::new());
        let mut statement = self.connection.prepare(SCAN).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            let status: usize = row.get(2).map_err(unreadable)?;
            let status = *Status::ALL.get(status).ok_or_else(|| Error::Corrupt("status of a job row".to_owned()))?;
            let queue = QueueId(row.get(1).map_err(unreadable)?);
            let time =
                |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(unreadable);
            let created_at = time(4)?.unwrap_or_default();
            let namespace = self
                .registry
                .get(queue)
                .ok_or_else(|| Error::Corrupt(format!("a job of queue {} which does not exist", queue.0)))?
                .namespace;
            let place = Place {
                seq: row.get(0).map_err(unreadable)?,
                queue,
                namespace,
                status,
                priority: row.get(3).map_err(unreadable)?,
                ready_at: if status == Status::Queued { time(5)?.unwrap_or(created_at) } else { Timestamp::EPOCH },
                wake_at: time(6)?,
            };
            index.insert(&place);
            let phase = row.get::<_, i64>(8).map_err(unreadable)? % UPLOAD;
            if status == Status::Running && phase == i64::from(code(&PHASES, Phase::Delivering)) {
                delivering.push(place.seq);
            }
            if let Some(hash) = row.get::<_, Option<i64>>(7).map_err(unreadable)? {
                index.take_key(hash, place.seq);
            }
        }
        Ok(Scan { index, delivering })
    }
}

/// What is built from all rows.
pub(super) struct Scan {
    pub(super) index: Index,
    /// Rows of jobs that are being delivered.
    delivering: Vec<i64>,
}

/// What a command did to a record.
#[derive(Debug)]
pub(super) enum Transition {
    Refused(Refusal),
    Unchanged,
    Changed { frees: bool, stalled: bool, callback: bool },
    Deleted,
}

fn place(record: &Record, queue: &Queue) -> Place {
    Place {
        seq: record.seq,
        queue: queue.id,
        namespace: queue.namespace,
        status: record.job.status(),
        priority: record.job.spec.priority,
        ready_at: ready_at(&record.job.state),
        wake_at: record.wake_at,
    }
}

pub(super) fn pages(bytes: usize) -> u64 {
    u64::try_from(bytes / PAGE_BYTES).unwrap_or(0)
}

pub(super) fn unreadable(error: rusqlite::Error) -> Error {
    Error::Unreadable(error.to_string())
}

const INSERT_LABEL: &str = "INSERT OR IGNORE INTO label (label, seq) VALUES (?1, ?2)";

const UPDATE_PAYLOAD: &str = "UPDATE spec SET payload = ?2 WHERE seq = ?1";
const UPDATE_ALARM: &str = "UPDATE job SET wake_at = ?2 WHERE seq = ?1";
const UPDATE_HOLD: &str = "
    UPDATE queue
    SET hold_until = ?2, hold_probe = ?3, hold_cause = ?4, hold_round = ?5
    WHERE id = ?1";
const UPDATE_PACE: &str = "UPDATE queue SET pace = ?2 WHERE id = ?1";
const INSERT_HISTORY: &str = "INSERT INTO history (job, first, events) VALUES (?1, ?2, ?3)";
const INSERT_RESULT: &str = "INSERT OR REPLACE INTO result (seq, body) VALUES (?1, ?2)";
const DELETE_RESULT: &str = "DELETE FROM result WHERE seq = ?1";
const DELETE_JOB: &str = "DELETE FROM job WHERE seq = ?1";
const DELETE_SPEC: &str = "DELETE FROM spec WHERE seq = ?1";
const DELETE_HISTORY: &str = "DELETE FROM history WHERE job = ?1";
const DELETE_LABEL: &str = "DELETE FROM label WHERE label = ?1 AND seq = ?2";
const NEWEST: &str = "SELECT max((SELECT coalesce(max(seq), 0) FROM job), (SELECT coalesce(max(seq), 0) FROM arrival))";
/// The name of the next number to be given out.
const NEXT_SEQ: &str = "next_seq";
const NOTED: &str = "SELECT value FROM meta WHERE name = ?1";
const NOTE: &str = "
    INSERT INTO meta (name, value)
    VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";
const SCAN: &str = "
    SELECT seq, queue, status, priority, created_at, state_at, wake_at, key_hash, detail
    FROM job NOT INDEXED";
