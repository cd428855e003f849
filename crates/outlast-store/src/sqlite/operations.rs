//! Operations inside the writer: each step changes some jobs and the position in one transaction.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueId, Timestamp};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::faults::Fault;
use super::sealed::{self, verify};
use super::write::unreadable;
use super::writer::Core;
use crate::checksum::Table;
use crate::error::Error;
use crate::operations::{NewOperation, Operation, OperationId, OperationKind, OperationStatus, Processed, Step, step};
use crate::rows::to_json;
use crate::transition::operate;

/// Rows one step looks at, whether they match or not: what bounds its time.
const LOOK_MAX: usize = 2000;

const COLUMNS: &str = "
    SELECT id, namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position, processed, created_at,
           finished_at, skipped, checksum
    FROM operation";
const CHECKSUM: usize = 14;

const INSERT: &str = "
    INSERT INTO operation (namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position, processed,
                           created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running', 0, 0, ?8)";

/// Its parameters are all columns, and the checksum.
const UPDATE: &str = "
    UPDATE operation
    SET kind = ?5, filter = ?6, status = ?9, position = ?10, processed = ?11, finished_at = ?13, skipped = ?14,
        checksum = ?15
    WHERE id = ?1";

const NEXT_DEAD: &str =
    "SELECT seq FROM job INDEXED BY job_dead WHERE queue = ?1 AND status = 4 AND seq > ?2 ORDER BY seq LIMIT ?3";
const NEXT_OF_QUEUE: &str =
    "SELECT seq FROM job INDEXED BY job_queue WHERE queue = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

impl Core<'_> {
    /// `None` when there is no such queue.
    pub(super) fn start_operation(&mut self, new: &NewOperation) -> Result<Option<Operation>, Fault> {
        let Some(queue) = self.registry.find(new.namespace, &new.queue).cloned() else {
            return Ok(None);
        };
        self.connection.prepare_cached(INSERT)?.execute(params![
            new.namespace.0,
            queue.id.0,
            queue.name,
            word(&new.kind)?,
            to_json(&new.filter)?,
            new.limit.map(u64::cast_signed),
            new.rate_per_second,
            self.now.as_millis(),
        ])?;
        let id = u32::try_from(self.connection.last_insert_rowid())
            .map_err(|_| Error::Corrupt("too many operations were made".to_owned()))?;
        let started = self.operation(OperationId(id))?;
        if let Some(operation) = &started {
            self.save_operation(operation)?;
        }
        Ok(started)
    }

    pub(super) fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        let mut found = self.select_operations(&format!("{COLUMNS} WHERE id = ?1 LIMIT ?2"), i64::from(id.0), 1)?;
        Ok(found.pop())
    }

    pub(super) fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error> {
        self.select_operations(
            &format!("{COLUMNS} WHERE namespace = ?1 ORDER BY id DESC LIMIT ?2"),
            i64::from(namespace.0),
            limit,
        )
    }

    pub(super) fn open_operations(&self) -> Result<Vec<Operation>, Error> {
        self.select_operations(
            &format!("{COLUMNS} WHERE status = 'running' AND id > ?1 ORDER BY id LIMIT ?2"),
            0,
            10_000,
        )
    }

    pub(super) fn stop_operation(
        &mut self,
        namespace: NamespaceId,
        id: OperationId,
    ) -> Result<Option<Operation>, Fault> {
        let Some(mut operation) = self.operation(id)?.filter(|operation| operation.namespace == namespace) else {
            return Ok(None);
        };
        if operation.status == OperationStatus::Running {
            operation.status = OperationStatus::Stopped;
            operation.finished_at = Some(self.now);
            self.save_operation(&operation)?;
        }
        Ok(Some(operation))
    }

    /// Does up to `limit` jobs. `None` when there is no such operation.
    pub(super) fn advance_operation(&mut self, id: OperationId, limit: usize) -> Result<Option<Operation>, Fault> {
        let Some(mut operation) = self.operation(id)? else {
            return Ok(None);
        };
        if operation.status != OperationStatus::Running {
            return Ok(Some(operation));
        }
        let queue = self.registry.get(operation.queue).cloned();
        let exhausted = match &queue {
            Some(queue) => self.walk(&mut operation, queue, limit)?,
            None => true,
        };
        if exhausted || operation.is_full() {
            operation.status = match queue {
                Some(queue) if operation.kind == OperationKind::Delete => self.end_deletion(&operation, &queue)?,
                _ => OperationStatus::Done,
            };
            operation.finished_at = Some(self.now);
        }
        self.save_operation(&operation)?;
        Ok(Some(operation))
    }

    /// Removes the queue if nothing is left of it.
    fn end_deletion(&mut self, operation: &Operation, queue: &Arc<Queue>) -> Result<OperationStatus, Fault> {
        if self.index.counts(queue.id).total() == 0 {
            self.remove_queue(queue)?;
            return Ok(OperationStatus::Done);
        }
        if operation.is_full() {
            return Ok(OperationStatus::Done);
        }
        let name = &queue.name;
        tracing::error!(operation = operation.id.0, queue = name, "a queue stays: jobs that are left cannot be read");
        Ok(OperationStatus::Stuck)
    }

    /// How many jobs it would touch, counting at most `limit`.
    pub(super) fn count_operation(&mut self, new: &NewOperation, limit: usize) -> Result<u64, Fault> {
        let Some(queue) = self.registry.find(new.namespace, &new.queue).cloned() else {
            return Ok(0);
        };
        let mut operation = new.draft(&queue, self.now);
        let mut count = 0;
        loop {
            let rows = self.candidates(&operation, LOOK_MAX)?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            operation.position = last.cast_unsigned();
            for seq in rows {
                let Some(record) = self.take(seq)? else {
                    continue;
                };
                count += u64::from(step(&operation, &record.job) != Step::Skip);
                self.keep(record);
                if count >= u64::try_from(limit).unwrap_or(u64::MAX) {
                    return Ok(count);
                }
            }
        }
    }

    /// True when there is nothing left to look at.
    fn walk(&mut self, operation: &mut Operation, queue: &Arc<Queue>, limit: usize) -> Result<bool, Fault> {
        let rows = self.candidates(operation, LOOK_MAX)?;
        let mut done = 0;
        for seq in &rows {
            if done >= limit || operation.is_full() {
                return Ok(false);
            }
            match self.take(*seq) {
                Ok(Some(record)) => {
                    let processed = match operate(self, record, operation, queue) {
                        // A replay reads the other jobs of its key before it writes anything. Without them the job stays.
                        Err(Fault::Unsound(error)) if operation.kind == OperationKind::Replay => {
                            tracing::error!(row = seq, %error, "replay skipped a job: cannot read what it needs");
                            Processed::Skipped
                        }
                        processed => processed?,
                    };
                    done += usize::from(operation.count(processed));
                }
                Ok(None) => {}
                // One damaged row must not stop the rest; it is listed already.
                Err(Fault::Unsound(_)) => {}
                Err(fault) => return Err(fault),
            }
            operation.position = seq.cast_unsigned();
        }
        Ok(rows.len() < LOOK_MAX)
    }

    fn candidates(&self, operation: &Operation, limit: usize) -> Result<Vec<i64>, Fault> {
        let statement = match operation.kind {
            OperationKind::Replay | OperationKind::Discard => NEXT_DEAD,
            OperationKind::Purge | OperationKind::Delete => NEXT_OF_QUEUE,
        };
        let mut statement = self.connection.prepare_cached(statement)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = statement
            .query_map(params![operation.queue.0, operation.position.cast_signed(), limit], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn save_operation(&mut self, operation: &Operation) -> Result<(), Fault> {
        let columns = params![
            operation.id.0,
            operation.namespace.0,
            operation.queue.0,
            operation.queue_name,
            word(&operation.kind)?,
            to_json(&operation.filter)?,
            operation.limit.map(u64::cast_signed),
            operation.rate_per_second,
            word(&operation.status)?,
            operation.position.cast_signed(),
            operation.processed.cast_signed(),
            operation.created_at.as_millis(),
            operation.finished_at.map(Timestamp::as_millis),
            operation.skipped.cast_signed(),
        ];
        sealed::execute(&mut *self.connection.prepare_cached(UPDATE)?, Table::Operation, columns)?;
        Ok(())
    }

    fn select_operations(&self, statement: &str, argument: i64, limit: usize) -> Result<Vec<Operation>, Error> {
        let mut statement = self.connection.prepare_cached(statement).map_err(unreadable)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![argument, limit]).map_err(unreadable)?;
        let mut operations = Vec::new();
        while let Some(row) = rows.next().optional().map_err(unreadable)?.flatten() {
            match operation(row) {
                Ok(operation) => operations.push(operation),
                // A damaged operation is not carried on, and does not keep the others from being.
                Err(error @ Error::Corrupt(_)) => self.note_damage(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(operations)
    }
}

fn operation(row: &Row<'_>) -> Result<Operation, Error> {
    verify(Table::Operation, row, 0..CHECKSUM, CHECKSUM)?;
    let corrupt = |error: rusqlite::Error| Error::Corrupt(format!("operation: {error}"));
    let time = |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(corrupt);
    let text = |at: usize| row.get::<_, String>(at).map_err(corrupt);
    Ok(Operation {
        id: OperationId(row.get(0).map_err(corrupt)?),
        namespace: NamespaceId(row.get(1).map_err(corrupt)?),
        queue: QueueId(row.get(2).map_err(corrupt)?),
        queue_name: text(3)?,
        kind: from_json(&format!("\"{}\"", text(4)?))?,
        filter: from_json(&text(5)?)?,
        limit: row.get::<_, Option<i64>>(6).map_err(corrupt)?.map(i64::cast_unsigned),
        rate_per_second: row.get(7).map_err(corrupt)?,
        status: from_json(&format!("\"{}\"", text(8)?))?,
        position: row.get::<_, i64>(9).map_err(corrupt)?.cast_unsigned(),
        processed: row.get::<_, i64>(10).map_err(corrupt)?.cast_unsigned(),
        skipped: row.get::<_, i64>(13).map_err(corrupt)?.cast_unsigned(),
        created_at: time(11)?.unwrap_or_default(),
        finished_at: time(12)?,
    })
}

/// A plain enum's name, without the quotes of JSON.
fn word(value: &impl Serialize) -> Result<String, Error> {
    to_json(value).map(|json| json.trim_matches('"').to_owned())
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Corrupt(format!("operation: {error}")))
}
