//! Goes on with what can be read, where an operator asked for it with `--accept-loss`: copies every readable row of a damaged
//! database into a new file and puts that in its place. The damaged files are kept. Rows that fail their checksum are
//! copied as they are and stay set aside, except those that nothing can be decided without: they are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Row, Statement, params, params_from_iter};

use super::directory::{database_path, make_private, wal_index_path, wal_path};
use super::faults::is_damage;
use super::migrate::{MIGRATIONS, migrate};
use super::options::OpenError;
use super::row_checksums::FOUNDATION;
use super::scan::step_over;
use super::startup::keep;
use crate::checksum::Table;
use crate::damage::Damage;

const FRESH: &str = "outlast.db.new";
/// Rebuilt from the table of inbound events, and so is the note of how far it goes.
const REMADE: &str = "inbound_event_key";
const REMADE_NOTE: &str = "arrival_keys";

/// `WITHOUT ROWID` is left out: there is one such table, which is rebuilt.
const TABLES: &str = "
    SELECT name, (SELECT group_concat(name, ', ') FROM pragma_table_info(sqlite_schema.name))
    FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> ?1
    ORDER BY name
    LIMIT 100";
const HAS_SECRET: &str = "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'secret')";
/// From the index alone: nothing is read of the rows.
const INDEXED_NAMES: &str = "SELECT id, name FROM namespace INDEXED BY sqlite_autoindex_namespace_1 LIMIT 1000000";
const LOST_NAMESPACES: &str = "
    SELECT namespace FROM queue WHERE namespace NOT IN (SELECT id FROM namespace)
    UNION
    SELECT namespace FROM api_key WHERE namespace NOT IN (SELECT id FROM namespace)
    LIMIT 1000000";
/// Does nothing where the number or the name is taken.
const ADD_NAMESPACE: &str = "INSERT OR IGNORE INTO namespace (id, name) VALUES (?1, ?2)";
const FORGET_NOTE: &str = "DELETE FROM meta WHERE name = ?1";
const SEQUENCES: &str = "SELECT name, seq FROM sqlite_sequence LIMIT 100";
const NEWEST_QUEUE: &str = "SELECT 'queue', coalesce(max(queue), 0) FROM job";
const RAISE_SEQUENCE: &str = "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = ?1";
const ADD_SEQUENCE: &str = "
    INSERT INTO sqlite_sequence (name, seq)
    SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)";

/// Replaces the database in `directory`, which `source` has open. Gives the names under which the damaged files are kept. Until
/// the new file is whole nothing else is changed.
pub(super) fn salvage(
    directory: &Path,
    source: Connection,
    incarnation: u32,
    damage: &Damage,
) -> Result<Vec<String>, OpenError> {
    let failed = |source: io::Error| OpenError::Directory { directory: directory.to_owned(), source };
    let path = directory.join(FRESH);
    remove_if_there(&path).map_err(failed)?;
    make_private(&path).map_err(failed)?;
    let copied = copy(&source, &path, damage);
    drop(source);
    if let Err(error) = copied {
        remove_if_there(&path).map_err(failed)?;
        return Err(error);
    }
    replace(directory, &path, incarnation).map_err(failed)
}

/// The log goes first: a database under the log of another one would be destroyed by it.
fn replace(directory: &Path, fresh: &Path, incarnation: u32) -> io::Result<Vec<String>> {
    File::open(fresh)?.sync_all()?;
    let mut kept = Vec::new();
    kept.extend(keep(&wal_path(directory), incarnation, true)?);
    kept.extend(keep(&database_path(directory), incarnation, true)?);
    remove_if_there(&wal_index_path(directory))?;
    fs::rename(fresh, database_path(directory))?;
    File::open(directory)?.sync_all()?;
    Ok(kept)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn copy(source: &Connection, path: &Path, damage: &Damage) -> Result<(), OpenError> {
    let beyond_help = OpenError::BeyondHelp;
    let known = MIGRATIONS.last().map_or(0, |(number, _, _)| *number);
    let found: u32 = source
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| beyond_help(error.to_string()))?;
    if found != known {
        return Err(beyond_help(format!("it is of another release (schema {found}, not {known})")));
    }
    let mut fresh = Connection::open(path)?;
    fresh.pragma_update(None, "page_size", 4096)?;
    // A journal beside the file could outlive it.
    fresh.query_row("PRAGMA journal_mode = MEMORY", [], |_| Ok(()))?;
    migrate(&mut fresh)?;
    let transaction = fresh.transaction()?;
    for (table, columns) in tables(&transaction)? {
        Copying { source, fresh: &transaction, table: &table, damage }.run(&columns)?;
    }
    if !transaction.query_row(HAS_SECRET, [], |row| row.get::<_, bool>(0))? {
        return Err(beyond_help("the number that all ids are made with is lost".to_owned()));
    }
    transaction.execute(FORGET_NOTE, [REMADE_NOTE])?;
    restore_namespaces(source, &transaction, damage)?;
    raise_sequences(source, &transaction)?;
    transaction.commit()?;
    fresh.close().map_err(|(_, error)| error.into())
}

/// Each with its columns.
fn tables(fresh: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = fresh.prepare(TABLES)?;
    let rows = statement.query_map([REMADE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Queues and keys belong to namespaces. A lost one gets its name back from the index, or one that tells what happened.
fn restore_namespaces(source: &Connection, fresh: &Connection, damage: &Damage) -> rusqlite::Result<()> {
    let names = source.prepare(INDEXED_NAMES).and_then(|mut statement| {
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<BTreeMap<i64, String>, _>>()
    });
    let names = names.unwrap_or_default();
    let mut orphaned = fresh.prepare(LOST_NAMESPACES)?;
    let ids: Vec<i64> = orphaned.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for id in ids {
        let indexed = names.get(&id).cloned();
        let name = indexed.unwrap_or_else(|| format!("lost-{id}"));
        damage.note_loss(&format!("namespace row {id}: restored as {name:?}"));
        fresh.execute(ADD_NAMESPACE, params![id, name])?;
        fresh.execute(ADD_NAMESPACE, params![id, format!("lost-{id}")])?;
    }
    for layout in FOUNDATION.iter().filter(|layout| layout.table == Table::Namespace) {
        layout.seal(fresh)?;
    }
    Ok(())
}

/// A number that was given to a lost row is not given again: jobs may still name it.
fn raise_sequences(source: &Connection, fresh: &Connection) -> rusqlite::Result<()> {
    for (connection, sql) in [(source, SEQUENCES), (fresh, NEWEST_QUEUE)] {
        let read = connection.prepare(sql).and_then(|mut statement| {
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<Vec<(String, i64)>, _>>()
        });
        // Where the source cannot say, its rows do.
        for (name, seq) in read.unwrap_or_default() {
            fresh.execute(ADD_SEQUENCE, params![name, seq])?;
            fresh.execute(RAISE_SEQUENCE, params![name, seq])?;
        }
    }
    Ok(())
}

struct Copying<'c> {
    source: &'c Connection,
    fresh: &'c Connection,
    table: &'c str,
    damage: &'c Damage,
}

impl Copying<'_> {
    fn run(&self, columns: &str) -> Result<(), OpenError> {
        let Copying { source, fresh, table, damage } = self;
        let left_out = self.left_out();
        let select = format!("SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid");
        let places: Vec<String> = (1..=columns.split(',').count()).map(|number| format!("?{number}")).collect();
        let insert = format!("INSERT INTO {table} ({columns}) VALUES ({})", places.join(", "));
        let mut insert = fresh.prepare(&insert)?;
        // The name of the table, or the description of its columns, is damaged.
        if let Err(error) = source.prepare(&select) {
            damage.note_loss(&format!("table {table}: {error}"));
            return Ok(());
        }
        let mut from = i64::MIN;
        loop {
            match self.rows_from(&select, &mut insert, &mut from, &left_out) {
                Ok(()) => return Ok(()),
                Err(SalvageStop::Fresh(error)) => return Err(error.into()),
                Err(SalvageStop::Source(error)) if is_damage(&error) => {
                    match step_over(source, table, "rowid", from.max(0), damage) {
                        Ok(next) => from = next,
                        Err(error) => {
                            damage.note_loss(&error.what());
                            return Ok(());
                        }
                    }
                }
                Err(SalvageStop::Source(error)) => return Err(error.into()),
            }
        }
    }

    /// Copies until the end or until a row cannot be read; `from` is the first that was not looked at.
    fn rows_from(
        &self,
        select: &str,
        insert: &mut Statement<'_>,
        from: &mut i64,
        left_out: &BTreeSet<i64>,
    ) -> Result<(), SalvageStop> {
        let mut statement = self.source.prepare_cached(select).map_err(SalvageStop::Source)?;
        let mut rows = statement.query([*from]).map_err(SalvageStop::Source)?;
        while let Some(row) = rows.next().map_err(SalvageStop::Source)? {
            let rowid: i64 = row.get(0).map_err(SalvageStop::Source)?;
            if rowid < *from {
                self.damage.note_loss(&format!("table {}: row {rowid} stands behind row {from}", self.table));
                continue;
            }
            *from = rowid.saturating_add(1);
            if left_out.contains(&rowid) {
                continue;
            }
            match insert_row(row, insert) {
                Ok(()) => {}
                // It clashes with another row, or a column has what it may not have.
                Err(error) if is_damage(&error) => {
                    self.damage.note_loss(&format!("table {}: row {rowid}: {error}", self.table));
                }
                Err(error) => return Err(SalvageStop::Fresh(error)),
            }
            if rowid == i64::MAX {
                break;
            }
        }
        Ok(())
    }

    /// Rows that a start is refused for, and keys: a damaged one does not work, and would be in the way of a new one. Where rows
    /// cannot be read, neither can they be copied.
    fn left_out(&self) -> BTreeSet<i64> {
        let mut rows = BTreeSet::new();
        let layouts = FOUNDATION.iter().filter(|layout| layout.name == self.table && layout.table != Table::Gate);
        for layout in layouts {
            let mut from = i64::MIN;
            while let Ok((Some(last), findings)) = layout.check(self.source, from, 1) {
                for (row, what) in findings {
                    self.damage.note_loss(&what);
                    rows.insert(row);
                }
                from = last.saturating_add(1);
            }
        }
        rows
    }
}

/// Which side failed.
enum SalvageStop {
    Source(rusqlite::Error),
    Fresh(rusqlite::Error),
}

/// The values as they are, whatever they are.
fn insert_row(row: &Row<'_>, insert: &mut Statement<'_>) -> rusqlite::Result<()> {
    let width = row.as_ref().column_count();
    let values: Vec<ToSqlOutput<'_>> =
        (1..width).map(|at| row.get_ref(at).map(ToSqlOutput::Borrowed)).collect::<Result<_, _>>()?;
    insert.execute(params_from_iter(values)).map(|_| ())
}
