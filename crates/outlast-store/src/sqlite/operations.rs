//! Operations inside the writer: each next_step changes some jobs and the position in one transaction.

use std::sync::Arc;

use outlast_core::{NamespaceId, Queue, QueueId, Timestamp};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::faults::Fault;
use super::row_checksums::{self, verify};
use super::write::unreadable;
use super::writer::WriterState;
use crate::checksum::Table;
use crate::codec::row::{JobRecord, to_json};
use crate::error::Error;
use crate::operations::{NewOperation, Operation, OperationId, OperationKind, OperationRows, OperationStep, next_step};

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
    "SELECT seq FROM job INDEXED BY job_dead_letter WHERE queue = ?1 AND status = 4 AND seq > ?2 ORDER BY seq LIMIT ?3";
const NEXT_OF_QUEUE: &str =
    "SELECT seq FROM job INDEXED BY job_queue WHERE queue = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";

impl OperationRows for WriterState<'_> {
    const LOOK_MAX: usize = LOOK_MAX;

    async fn insert_operation(&mut self, mut draft: Operation) -> Result<Operation, Fault> {
        self.connection.prepare_cached(INSERT)?.execute(params![
            draft.namespace.0,
            draft.queue.0,
            draft.queue_name,
            word(&draft.kind)?,
            to_json(&draft.filter)?,
            draft.limit.map(u64::cast_signed),
            draft.rate_per_second,
            draft.created_at.as_millis(),
        ])?;
        let id = u32::try_from(self.connection.last_insert_rowid())
            .map_err(|_| Error::Corrupt("too many operations were made".to_owned()))?;
        draft.id = OperationId(id);
        self.write_operation(&draft)?;
        Ok(draft)
    }

    async fn save_operation(&mut self, operation: &Operation) -> Result<(), Fault> {
        self.write_operation(operation)
    }

    async fn lock_operation(&mut self, id: OperationId, _: bool) -> Result<(Option<Operation>, bool), Fault> {
        Ok((self.operation(id)?, true))
    }

    async fn queue_of(&mut self, operation: &Operation) -> Result<Option<Arc<Queue>>, Fault> {
        Ok(self.registry.get(operation.queue).cloned())
    }

    async fn load_candidates(&mut self, operation: &Operation) -> Result<Vec<i64>, Fault> {
        self.candidates(operation, LOOK_MAX)
    }

    fn take_row(&mut self, seq: i64) -> Result<Option<JobRecord>, Fault> {
        match self.take(seq) {
            // It is listed already.
            Err(Fault::Unsound(_)) => Ok(None),
            taken => taken,
        }
    }

    fn pass_over(&mut self, seq: i64, fault: Fault) -> Result<(), Fault> {
        let Fault::Unsound(error) = fault else {
            return Err(fault);
        };
        tracing::error!(row = seq, %error, "replay skipped a job: cannot read what it needs");
        Ok(())
    }

    /// Numbers are given out in order, by one writer.
    async fn first_readable(&mut self, _: &Queue) -> Result<Option<i64>, Fault> {
        Ok(None)
    }
}

impl WriterState<'_> {
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
                count += u64::from(next_step(&operation, &record.job) != OperationStep::Skip);
                self.keep(record);
                if count >= u64::try_from(limit).unwrap_or(u64::MAX) {
                    return Ok(count);
                }
            }
        }
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

    fn write_operation(&mut self, operation: &Operation) -> Result<(), Fault> {
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
        row_checksums::execute(&mut *self.connection.prepare_cached(UPDATE)?, Table::Operation, columns)?;
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
