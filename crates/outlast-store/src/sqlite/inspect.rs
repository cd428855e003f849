//! Looks for damage that no read of a row would notice: at every start for the small tables that all others hang on, and for
//! a store of moderate size for the structure of the whole file; by `outlast doctor` for everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::directory::database_path;
use super::faults::is_damage;
use super::options::OpenError;
use super::row_checksums::{CONTENTS, ChecksumLayout, FOUNDATION};
use super::scan::step_over;
use super::write::unreadable;
use crate::checksum::Table;
use crate::damage::Damage;
use crate::error::Error;

/// A store up to this size is checked as a whole before it is used, which takes about a second per 100 MiB. A larger one is
/// checked by `outlast doctor`, and row by row as it is read.
const WHOLE_BYTES_MAX: i64 = 64 << 20;
/// More lines than this say no more.
const LINES_MAX: usize = 500;
/// Rows checked at a time.
const ROWS: usize = 1000;
/// So many lost rows are named.
const LOST_MAX: i64 = 100;

/// The structure of all trees is looked at first, then the rows. Where a row cannot be read, the rest of them is not looked at.
const ABORTED: &str = "not all rows can be read:";

const SIZE: &str = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
const TREES: &str = "SELECT rootpage, type, tbl_name FROM sqlite_schema WHERE rootpage > 0";
const LOST_JOBS: &str = "
    SELECT spec.seq FROM spec LEFT JOIN job ON job.seq = spec.seq WHERE job.seq IS NULL LIMIT ?1";
const LOST_SPECS: &str = "
    SELECT job.seq FROM job NOT INDEXED LEFT JOIN spec ON spec.seq = job.seq WHERE spec.seq IS NULL LIMIT ?1";

/// The reaction to the findings of a start.
#[derive(Debug, PartialEq, Eq)]
enum InspectionVerdict {
    Sound,
    /// Only indexes are damaged, which can be rebuilt from the tables.
    Rebuild,
    /// Rows are damaged or lost, and nothing else is in danger.
    Confined,
    /// A write could destroy what is still sound.
    Refuse,
}

/// Before the writer starts.
pub(super) fn check_at_start(connection: &Connection, damage: &Damage) -> Result<(), OpenError> {
    check_foundation(connection, damage)?;
    let size: i64 = connection.query_row(SIZE, [], |row| row.get(0))?;
    if size > WHOLE_BYTES_MAX {
        return Ok(());
    }
    let (lines, trees) = (integrity(connection)?, trees(connection)?);
    let named = || lines.iter().map(|line| name_tree(line, &trees)).collect::<Vec<_>>();
    match judge(&lines, &trees) {
        InspectionVerdict::Sound => {}
        InspectionVerdict::Rebuild => {
            tracing::warn!(findings = named().join("; "), "indexes are damaged; building them anew from their tables");
            // One transaction at the end of the log. The state file speaks of less until the log is settled, which is what a kill
            // after any commit leaves; a kill in between leaves a torn transaction, which counts for nothing.
            if connection.execute_batch("VACUUM").is_err() {
                return Err(OpenError::Corrupt(named().join("; ")));
            }
            let left = integrity(connection)?;
            if judge(&left, &self::trees(connection)?) == InspectionVerdict::Refuse {
                return Err(OpenError::Corrupt(left.join("; ")));
            }
            left.iter().for_each(|line| damage.note_loss(line));
        }
        InspectionVerdict::Confined => named().iter().for_each(|line| damage.note_loss(line)),
        InspectionVerdict::Refuse => return Err(OpenError::Corrupt(named().join("; "))),
    }
    find_lost(connection, damage);
    Ok(())
}

/// Everything, whatever the size: for a start that goes on with what can be read.
pub(super) fn check_wholly(connection: &Connection) -> Result<(), OpenError> {
    check_foundation(connection, &Damage::default())?;
    let lines = integrity(connection)?;
    match lines.is_empty() {
        true => Ok(()),
        false => {
            let trees = trees(connection)?;
            Err(OpenError::Corrupt(lines.iter().map(|line| name_tree(line, &trees)).collect::<Vec<_>>().join("; ")))
        }
    }
}

/// Queues and what names them: nothing can be served without them. A key that is damaged does not work, and that is all.
fn check_foundation(connection: &Connection, damage: &Damage) -> Result<(), OpenError> {
    for layout in FOUNDATION.iter().filter(|layout| layout.table != Table::Gate) {
        let refuse = |error: rusqlite::Error| OpenError::Corrupt(format!("table {}: {error}", layout.name));
        let (_, findings) = layout.check(connection, i64::MIN, usize::MAX).map_err(refuse)?;
        let findings = findings.into_iter().map(|(_, what)| what);
        match layout.is_needed() {
            true if findings.len() > 0 => return Err(OpenError::Corrupt(findings.collect::<Vec<_>>().join("; "))),
            true => {}
            false => findings.for_each(|what| damage.note(&what)),
        }
    }
    Ok(())
}

/// SQLite's findings about the structure of the file; none if it is sound.
fn integrity(connection: &Connection) -> Result<Vec<String>, OpenError> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({LINES_MAX})"))?;
    let mut rows = statement.query([])?;
    let mut lines = Vec::new();
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                let text: String = row.get(0)?;
                lines.extend(text.lines().filter(|line| *line != "ok" && !line.starts_with("***")).map(str::to_owned));
            }
            Ok(None) => return Ok(lines),
            Err(error) if is_damage(&error) => {
                lines.push(format!("{ABORTED} {error}"));
                return Ok(lines);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The trees of the file by their root: kind and table.
type Trees = BTreeMap<u64, (String, String)>;

fn trees(connection: &Connection) -> Result<Trees, OpenError> {
    let mut statement = connection.prepare(TREES)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    let mut trees: Trees = rows.collect::<Result<_, _>>()?;
    trees.insert(1, ("schema".to_owned(), "sqlite_schema".to_owned()));
    Ok(trees)
}

/// SQLite names a tree by its number; people know tables.
fn name_tree(line: &str, trees: &Trees) -> String {
    let root = line.strip_prefix("Tree ").and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    match root.and_then(|root: u64| trees.get(&root)) {
        Some((kind, table)) if kind == "index" => format!("an index of table {table}: {line}"),
        Some((_, table)) => format!("table {table}: {line}"),
        None => line.to_owned(),
    }
}

fn judge(lines: &[String], trees: &Trees) -> InspectionVerdict {
    if lines.is_empty() {
        return InspectionVerdict::Sound;
    }
    if lines.len() >= LINES_MAX {
        return InspectionVerdict::Refuse;
    }
    let kinds: BTreeSet<InspectionKind> = lines.iter().map(|line| kind(line, trees)).collect();
    let has = |kind: InspectionKind| kinds.contains(&kind);
    match () {
        () if has(InspectionKind::Unknown) || has(InspectionKind::TwoOwners) => InspectionVerdict::Refuse,
        () if has(InspectionKind::Table) && has(InspectionKind::FreePages) => InspectionVerdict::Refuse,
        // Rebuilding the index would help and cannot be done while a table is damaged.
        () if (has(InspectionKind::Table) || has(InspectionKind::Value)) && has(InspectionKind::SharedByIndex) => {
            InspectionVerdict::Refuse
        }
        () if has(InspectionKind::Table) || has(InspectionKind::Value) => InspectionVerdict::Confined,
        () if has(InspectionKind::Index) || has(InspectionKind::SharedByIndex) || has(InspectionKind::FreePages) => {
            InspectionVerdict::Rebuild
        }
        () => InspectionVerdict::Confined,
    }
}

/// The subject of a line of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InspectionKind {
    /// A page of a table.
    Table,
    /// A value that its column does not allow.
    Value,
    /// A page or an entry of an index.
    Index,
    /// The list of free pages.
    FreePages,
    /// A page that nothing leads to.
    Unused,
    /// A page that two others lead to, one of them of a table: what is written by one way shows on the other.
    TwoOwners,
    /// The same with a page of an index.
    SharedByIndex,
    /// A row that cannot be read at all.
    Aborted,
    Unknown,
}

fn kind(line: &str, trees: &Trees) -> InspectionKind {
    if line.starts_with("Freelist") {
        return InspectionKind::FreePages;
    }
    if line.starts_with(ABORTED) {
        return InspectionKind::Aborted;
    }
    // It does not say of which tree.
    if line.starts_with("Fragmentation of") {
        return InspectionKind::Table;
    }
    if line.starts_with("Page ") && line.ends_with("never used") {
        return InspectionKind::Unused;
    }
    if let Some(rest) = line.strip_prefix("Tree ") {
        let root = rest.split_whitespace().next().and_then(|root| root.trim_end_matches(':').parse().ok());
        return match root.and_then(|root: u64| trees.get(&root)) {
            Some((kind, _)) if kind == "index" && line.contains("2nd reference") => InspectionKind::SharedByIndex,
            Some((kind, _)) if kind == "index" => InspectionKind::Index,
            // The rows of this table are found by another way than its tree.
            Some((_, table)) if table == "inbound_event_key" => InspectionKind::Index,
            Some((kind, _)) if kind == "table" && line.contains("2nd reference") => InspectionKind::TwoOwners,
            Some((kind, _)) if kind == "table" => InspectionKind::Table,
            _ => InspectionKind::Unknown,
        };
    }
    let about_index = ["missing from index", "wrong # of entries in index", "non-unique entry in index", "of index"];
    if about_index.iter().any(|words| line.contains(words)) || line.contains("values differ from index") {
        return InspectionKind::Index;
    }
    let about_value = [" value in ", "CHECK constraint failed in", "row not in PRIMARY KEY order"];
    match about_value.iter().any(|words| line.contains(words)) {
        true => InspectionKind::Value,
        false => InspectionKind::Unknown,
    }
}

/// A job is two rows. Where one of them is left alone, the other is lost.
fn find_lost(connection: &Connection, damage: &Damage) {
    for (sql, what) in [(LOST_JOBS, "the row is lost"), (LOST_SPECS, "its spec is lost")] {
        let found = connection.prepare(sql).and_then(|mut statement| {
            let rows = statement.query_map([LOST_MAX], |row| row.get::<_, i64>(0))?;
            rows.collect::<Result<Vec<_>, _>>()
        });
        // Where a page is in the way, the scan steps over it and says so.
        for seq in found.unwrap_or_default() {
            damage.note(&format!("job row {seq}: {what}"));
        }
    }
}

/// Everything that can be found wrong with the store in this directory, without changing it. For `outlast doctor`.
pub fn inspect(directory: &Path) -> Result<Vec<String>, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database_path(directory), flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    let damage = Damage::default();
    integrity(&connection)?.iter().for_each(|line| {
        damage.record(line);
    });
    for layout in FOUNDATION.iter().chain(&CONTENTS) {
        if let Err(error) = check_rows(&connection, layout, &damage) {
            damage.record(&error.what());
        }
    }
    find_lost(&connection, &damage);
    Ok(damage.list())
}

fn check_rows(connection: &Connection, layout: &ChecksumLayout, damage: &Damage) -> Result<(), Error> {
    let mut from = i64::MIN;
    loop {
        match layout.check(connection, from, ROWS) {
            Ok((last, findings)) => {
                findings.iter().for_each(|(_, what)| {
                    damage.record(what);
                });
                match last {
                    Some(last) => from = last.saturating_add(1),
                    None => return Ok(()),
                }
            }
            Err(error) if is_damage(&error) => {
                from = step_over(connection, layout.name, "rowid", from.max(0), damage)?;
            }
            Err(error) => return Err(unreadable(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(lines: &[&str]) -> InspectionVerdict {
        let of = |kind: &str, table: &str| (kind.to_owned(), table.to_owned());
        let trees =
            BTreeMap::from([(1, of("schema", "sqlite_schema")), (2, of("table", "job")), (3, of("index", "job"))]);
        judge(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), &trees)
    }

    #[test]
    fn a_start_is_refused_only_where_a_write_could_spread_the_damage() {
        for (lines, expected) in [
            (vec![], InspectionVerdict::Sound),
            (vec!["wrong # of entries in index job_queue"], InspectionVerdict::Rebuild),
            (vec!["Tree 3 page 9 cell 2: 2nd reference to page 12", "Page 14: never used"], InspectionVerdict::Rebuild),
            (vec!["Freelist: 2nd reference to page 7"], InspectionVerdict::Rebuild),
            (vec!["Tree 2 page 9: btreeInitPage() returns error code 11"], InspectionVerdict::Confined),
            (vec!["Tree 2 page 9 cell 3: Rowid 7 out of order"], InspectionVerdict::Confined),
            (vec!["NULL value in job.queue", "row 3 missing from index job_queue"], InspectionVerdict::Confined),
            (vec!["Page 14: never used"], InspectionVerdict::Confined),
            (vec!["not all rows can be read: malformed"], InspectionVerdict::Confined),
            (vec!["Fragmentation of 256 bytes reported as 0 on page 33"], InspectionVerdict::Confined),
            (
                vec!["Tree 2 page 9: btreeInitPage() returns error code 11", "Freelist: size is 0"],
                InspectionVerdict::Refuse,
            ),
            (
                vec!["Tree 2 page 9 cell 2: 2nd reference to page 12", "Tree 2 page 8 cell 1: Rowid 9 out of order"],
                InspectionVerdict::Refuse,
            ),
            (
                vec!["Tree 2 page 9 cell 2: 2nd reference to page 12", "NULL value in job.queue"],
                InspectionVerdict::Refuse,
            ),
            (
                vec!["Tree 3 page 9 cell 2: 2nd reference to page 12", "NULL value in job.queue"],
                InspectionVerdict::Refuse,
            ),
            (vec!["Tree 1 page 1: free space corruption"], InspectionVerdict::Refuse),
            (vec!["something new"], InspectionVerdict::Refuse),
        ] {
            assert_eq!(verdict(&lines), expected, "{lines:?}");
        }
    }
}
