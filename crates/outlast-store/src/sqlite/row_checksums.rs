//! Checksums on the rows of SQLite: which columns each covers and in which order, how a row is written with one, and how
//! it is checked when it is read. A row without a checksum is older than they are and passes.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, Statement, ToSql, params};

use super::rows::JOB_COLUMNS;
use super::write::unreadable;
use crate::checksum::{Digest, RowSum, Table};
use crate::error::Error;

/// One checksum of a table: the columns it covers, the first of which say which row it is.
pub(super) struct ChecksumLayout {
    pub(super) table: Table,
    pub(super) name: &'static str,
    pub(super) columns: &'static str,
    checksum: &'static str,
}

const fn layout(table: Table, name: &'static str, columns: &'static str) -> ChecksumLayout {
    ChecksumLayout { table, name, columns, checksum: "checksum" }
}

/// Tables without which nothing else can be understood. They are small.
pub(super) const FOUNDATION: [ChecksumLayout; 5] = [
    layout(Table::Meta, "meta", "name, value"),
    layout(Table::Namespace, "namespace", "id, name"),
    layout(Table::Queue, "queue", "id, namespace, name, settings, paused, version, created_at, updated_at, secrets"),
    layout(Table::ApiKey, "api_key", "id, namespace, name, prefix, hash, scopes, created_at, expires_at, revoked_at"),
    ChecksumLayout { checksum: "gate_checksum", ..layout(Table::Gate, "queue", GATE_COLUMNS) },
];

/// All other tables.
pub(super) const CONTENTS: [ChecksumLayout; 10] = [
    layout(Table::Job, "job", JOB_COLUMNS),
    layout(
        Table::Spec,
        "spec",
        "seq, payload, idempotency_key, key, tags, not_before, start_by, callback_url, notify_email, traceparent, overrides,
         origin, inbound_event",
    ),
    layout(Table::Result, "result", "seq, body"),
    layout(Table::History, "history", "job, first, events"),
    layout(Table::Checkpoint, "checkpoint", "seq, schema_version, at, replays, attempt, data, object"),
    layout(Table::Section, "section", "job, name, at, body"),
    layout(Table::Object, "object", OBJECT_COLUMNS),
    layout(Table::InboundEvent, "inbound_event", "seq, namespace, at, source, kind, key, headers, jobs"),
    ChecksumLayout {
        checksum: "body_checksum",
        ..layout(
            Table::Body,
            "inbound_event",
            "seq, coalesce(body, (SELECT payload FROM spec WHERE spec.seq = inbound_event.body_of))",
        )
    },
    layout(
        Table::Operation,
        "operation",
        "id, namespace, queue, queue_name, kind, filter, take, rate_per_second, status, position, processed, created_at,
         finished_at, skipped",
    ),
];

pub(super) const GATE_COLUMNS: &str = "id, hold_until, hold_probe, hold_cause, hold_round, gcra";
pub(super) const OBJECT_COLUMNS: &str =
    "key, job, role, attached, delete_after, length, sha256, content_type, filename, upload";

/// Rows, and what is wrong with each.
pub(super) type ChecksumMismatches = Vec<(i64, String)>;

impl ChecksumLayout {
    /// Nothing can be decided without these rows. A damaged key does not work, and a damaged hold or rate is left out.
    pub(super) fn is_needed(&self) -> bool {
        matches!(self.table, Table::Meta | Table::Namespace | Table::Queue)
    }

    /// Reads up to `limit` rows from `from` on, in order. Gives the last one read and those that fail their check.
    pub(super) fn check(
        &self,
        connection: &Connection,
        from: i64,
        limit: usize,
    ) -> rusqlite::Result<(Option<i64>, ChecksumMismatches)> {
        let ChecksumLayout { name, columns, checksum, .. } = self;
        let sql = format!("SELECT rowid, {checksum}, {columns} FROM {name} WHERE rowid >= ?1 ORDER BY rowid LIMIT ?2");
        let mut statement = connection.prepare_cached(&sql)?;
        let width = statement.column_count();
        let mut rows = statement.query(params![from, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let (mut last, mut findings) = (None, Vec::new());
        while let Some(row) = rows.next()? {
            let rowid: i64 = row.get(0)?;
            if let Err(error) = verify(self.table, row, 2..width, 1) {
                findings.push((rowid, error.what()));
            }
            last = Some(rowid);
        }
        Ok((last, findings))
    }

    /// Gives a checksum to every row that has none. For small tables.
    pub(super) fn seal(&self, connection: &Connection) -> rusqlite::Result<()> {
        let ChecksumLayout { name, columns, checksum, .. } = self;
        let sql = format!("SELECT rowid, {columns} FROM {name} WHERE {checksum} IS NULL");
        let mut statement = connection.prepare(&sql)?;
        let width = statement.column_count();
        let mut rows = statement.query([])?;
        let mut sums: Vec<(i64, i32)> = Vec::new();
        while let Some(row) = rows.next()? {
            let mut sum = RowSum::of(self.table);
            for at in 1..width {
                add(&mut sum, row.get_ref(at)?);
            }
            sums.push((row.get(0)?, sum.finish()));
        }
        for (rowid, sum) in sums {
            connection.execute(&format!("UPDATE {name} SET {checksum} = ?2 WHERE rowid = ?1"), params![rowid, sum])?;
        }
        Ok(())
    }
}

/// The checksum of a row with these columns, which stand in the order of its [`ChecksumLayout`].
pub(super) fn sum(table: Table, columns: &[&dyn ToSql]) -> rusqlite::Result<i32> {
    let mut sum = RowSum::of(table);
    add_all(&mut sum, columns)?;
    Ok(sum.finish())
}

/// The same where the second column is long and its digest is known.
pub(super) fn sum_with_digest(table: Table, row: i64, digest: Digest, columns: &[&dyn ToSql]) -> rusqlite::Result<i32> {
    let mut sum = RowSum::of(table);
    sum.integer(row);
    sum.digest(digest);
    add_all(&mut sum, columns)?;
    Ok(sum.finish())
}

/// Runs a statement whose parameters are the columns of a row and, after them, its checksum.
pub(super) fn execute(statement: &mut Statement<'_>, table: Table, columns: &[&dyn ToSql]) -> rusqlite::Result<usize> {
    bind_and_execute(statement, table, columns, None)
}

/// The same where the second column is long and its digest is known.
pub(super) fn execute_with_digest(
    statement: &mut Statement<'_>,
    table: Table,
    columns: &[&dyn ToSql],
    digest: Digest,
) -> rusqlite::Result<usize> {
    bind_and_execute(statement, table, columns, Some(digest))
}

/// One pass: each column is added to the checksum and bound. Unbound columns are null, as most columns of a new row
/// are.
fn bind_and_execute(
    statement: &mut Statement<'_>,
    table: Table,
    columns: &[&dyn ToSql],
    digest_of_second: Option<Digest>,
) -> rusqlite::Result<usize> {
    let mut sum = RowSum::of(table);
    statement.clear_bindings();
    for (place, column) in columns.iter().enumerate() {
        let output = column.to_sql()?;
        let value = borrowed(&output)?;
        match digest_of_second.filter(|_| place == 1) {
            Some(digest) => sum.digest(digest),
            None => add(&mut sum, value),
        }
        match value {
            ValueRef::Null => {}
            // Most columns. The output itself would be moved through memory once more.
            ValueRef::Integer(number) => statement.raw_bind_parameter(place + 1, number)?,
            _ => statement.raw_bind_parameter(place + 1, output)?,
        }
    }
    statement.raw_bind_parameter(columns.len() + 1, sum.finish())?;
    statement.raw_execute()
}

/// Checks the row in `columns` against the checksum in column `stored`.
pub(super) fn verify(
    table: Table,
    row: &Row<'_>,
    columns: impl Iterator<Item = usize> + Clone,
    stored: usize,
) -> Result<(), Error> {
    let Some(stored) = row.get::<_, Option<i64>>(stored).map_err(unreadable)? else {
        return Ok(());
    };
    let mut sum = RowSum::of(table);
    for at in columns.clone() {
        add(&mut sum, row.get_ref(at).map_err(unreadable)?);
    }
    match i64::from(sum.finish()) == stored {
        true => Ok(()),
        false => Err(Error::Corrupt(format!("{} fails its checksum", identity(table, row, columns)))),
    }
}

/// The row as messages name it.
fn identity(table: Table, row: &Row<'_>, mut columns: impl Iterator<Item = usize>) -> String {
    let first = columns.next().and_then(|at| row.get_ref(at).ok());
    let shown = match first {
        Some(ValueRef::Integer(number)) => number.to_string(),
        Some(ValueRef::Text(text)) => format!("{:?}", String::from_utf8_lossy(text)),
        _ => "of an unreadable number".to_owned(),
    };
    format!("{} row {shown}", table.name())
}

fn add_all(sum: &mut RowSum, columns: &[&dyn ToSql]) -> rusqlite::Result<()> {
    for column in columns {
        add(sum, borrowed(&column.to_sql()?)?);
    }
    Ok(())
}

fn borrowed<'a>(output: &'a ToSqlOutput<'a>) -> rusqlite::Result<ValueRef<'a>> {
    match output {
        ToSqlOutput::Borrowed(value) => Ok(*value),
        ToSqlOutput::Owned(value) => Ok(value.into()),
        _ => Err(rusqlite::Error::InvalidQuery),
    }
}

fn add(sum: &mut RowSum, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => sum.null(),
        ValueRef::Integer(number) => sum.integer(number),
        // No column holds one; as a blob it equals nothing that was written.
        ValueRef::Real(number) => sum.blob(&number.to_le_bytes()),
        ValueRef::Text(bytes) => sum.text(bytes),
        ValueRef::Blob(bytes) => sum.blob(bytes),
    }
}
