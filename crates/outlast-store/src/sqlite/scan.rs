//! Builds the writer's memory from the rows: at start, and after a transaction that was undone. A damaged row is set aside
//! and a page that cannot be read is stepped over; both are listed. Only where everything behind a page is out of reach does
//! it give up.

use std::collections::BTreeMap;

use outlast_core::state::Phase;
use outlast_core::{NamespaceId, QueueId, Status, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::faults::is_damage;
use super::index::Index;
use super::queue_cache::QueueCache;
use super::row_checksums::verify;
use super::rows::{JOB_COLUMNS, JOB_WIDTH};
use super::write::{NEXT_SEQ, unreadable};
use super::writer::WriterState;
use crate::checksum::Table;
use crate::codec::events::{PHASES, code};
use crate::codec::row::{IndexEntry, UPLOAD};
use crate::damage::Damage;
use crate::error::Error;

/// Tables whose rows have numbers that are given out once.
const NUMBERED: [&str; 3] = ["job", "spec", "inbound_event"];

/// The memory of the writer, built from all rows.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) index: Index,
    /// Rows of jobs that are being delivered.
    delivering: Vec<i64>,
    set_aside: BTreeMap<i64, Option<QueueId>>,
    /// The last row that was reached.
    last: i64,
}

impl WriterState<'_> {
    /// After a rollback: undoes its changes in memory. Costs what the transaction did and not what the store holds, so
    /// that a call that keeps failing does not slow down others.
    pub(super) fn undo_changes(&mut self) -> Result<(), Error> {
        if !self.index.undo() {
            return self.rebuild().map(|_| ());
        }
        self.cache.clear();
        if self.registry.has_changed() {
            self.registry = QueueCache::load(self.connection, self.ids, self.registry.shared(), &self.damage)?;
        }
        if self.has_new_keys {
            self.memtable = self.scan_young_keys()?;
            self.has_new_keys = false;
        }
        self.noted_seq = self.noted(NEXT_SEQ)?.unwrap_or(1);
        self.stored_seq = self.committed_seq;
        Ok(())
    }

    /// Builds all memory from the rows. Says which rows are being delivered.
    pub(super) fn rebuild(&mut self) -> Result<Vec<i64>, Error> {
        self.cache.clear();
        self.registry = QueueCache::load(self.connection, self.ids, self.registry.shared(), &self.damage)?;
        let Scan { index, delivering, set_aside, .. } = self.scan()?;
        self.index = index;
        self.index.settle();
        self.set_aside.extend(set_aside);
        self.memtable = self.scan_young_keys()?;
        let mut newest = 0;
        for table in NUMBERED {
            let sql = format!("SELECT coalesce(max(seq), 0) FROM {table}");
            let found = self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
            newest = found.map_err(|error| Error::Corrupt(format!("table {table}: {error}")))?.max(newest);
        }
        self.noted_seq = self.noted(NEXT_SEQ)?.unwrap_or(1);
        self.stored_seq = self.noted_seq.max(newest + 1);
        self.committed_seq = self.stored_seq;
        self.has_new_keys = false;
        self.next_seq = self.next_seq.max(self.stored_seq);
        Ok(delivering)
    }

    /// The indexes as the rows say.
    pub(super) fn scan(&self) -> Result<Scan, Error> {
        let mut scan = Scan::default();
        let mut from = 0;
        loop {
            match self.scan_from(from, &mut scan) {
                Ok(()) => return Ok(scan),
                Err(error) if is_damage(&error) => {
                    from = step_over(self.connection, "job", "seq", from.max(scan.last + 1), &self.damage)?;
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    fn scan_from(&self, from: i64, scan: &mut Scan) -> rusqlite::Result<()> {
        let sql = format!("SELECT {JOB_COLUMNS}, checksum FROM job NOT INDEXED WHERE seq >= ?1 ORDER BY seq");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if seq <= scan.last {
                // A search would take another way and not find it.
                self.damage.note_loss(&format!("job row {seq}: stands behind row {}", scan.last));
                continue;
            }
            scan.last = seq;
            let is_sound = verify(Table::Job, row, 0..JOB_WIDTH, JOB_WIDTH);
            let entry = self.entry(row);
            match is_sound.and_then(|()| entry.as_ref().map(|_| ()).map_err(Clone::clone)) {
                Ok(()) => entry.iter().for_each(|entry| scan.add(entry)),
                Err(error) => {
                    self.note_damage(&Error::Corrupt(format!("job row {seq}: {}", error.what())));
                    scan.set_aside(seq, entry.ok());
                }
            }
        }
        Ok(())
    }

    fn entry(&self, row: &Row<'_>) -> Result<ScanEntry, Error> {
        let status: usize = row.get(2).map_err(unreadable)?;
        let status = *Status::ALL.get(status).ok_or_else(|| Error::Corrupt("status of a job row".to_owned()))?;
        let queue = QueueId(row.get(1).map_err(unreadable)?);
        let time =
            |at: usize| row.get::<_, Option<i64>>(at).map(|at| at.map(Timestamp::from_millis)).map_err(unreadable);
        let created_at = time(5)?.unwrap_or_default();
        let namespace = self
            .registry
            .get(queue)
            .ok_or_else(|| Error::Corrupt(format!("a job of queue {} which does not exist", queue.0)))?
            .namespace;
        let place = IndexEntry {
            seq: row.get(0).map_err(unreadable)?,
            queue,
            status,
            priority: row.get(4).map_err(unreadable)?,
            ready_at: if status == Status::Queued { time(13)?.unwrap_or(created_at) } else { Timestamp::EPOCH },
            wake_at: time(14)?,
        };
        let phase = row.get::<_, i64>(3).map_err(unreadable)? % UPLOAD;
        let is_delivering = status == Status::Running && phase == i64::from(code(&PHASES, Phase::Delivering));
        Ok(ScanEntry { place, namespace, is_delivering, key_hash: row.get(15).map_err(unreadable)? })
    }
}

/// A row as the memory needs it.
struct ScanEntry {
    place: IndexEntry,
    namespace: NamespaceId,
    is_delivering: bool,
    key_hash: Option<i64>,
}

impl Scan {
    fn add(&mut self, entry: &ScanEntry) {
        self.index.insert(&entry.place, entry.namespace);
        if entry.is_delivering {
            self.delivering.push(entry.place.seq);
        }
        if let Some(hash) = entry.key_hash {
            self.index.take_key(hash, entry.place.seq);
        }
    }

    /// It still counts, so that its queue is not taken for empty, and holds its key, so that no second job gets it.
    fn set_aside(&mut self, seq: i64, entry: Option<ScanEntry>) {
        self.set_aside.insert(seq, entry.as_ref().map(|entry| entry.place.queue));
        if let Some(entry) = entry {
            self.index.count(&entry.place);
            entry.key_hash.into_iter().for_each(|hash| self.index.take_key(hash, seq));
        }
    }
}

/// The way to the row `first` or the next one leads through a page that cannot be read. Notes the gap and returns the
/// next row that can be reached, which takes a search of its own: a search for the rows after another number may lead
/// through the same page. Where nothing behind the page can be reached, the table is lost.
pub(super) fn step_over(
    connection: &Connection,
    table: &str,
    key: &str,
    first: i64,
    damage: &Damage,
) -> Result<i64, Error> {
    let sql = format!("SELECT {key} FROM {table} NOT INDEXED WHERE {key} >= ?1 ORDER BY {key} LIMIT 1");
    let reach = |from: i64| connection.query_row(&sql, [from], |row| row.get::<_, i64>(0)).optional();
    let can_reach = |distance: i64| reach(first.saturating_add(distance)).is_ok();
    let lost = || Error::Corrupt(format!("table {table}: no row from {first} on can be read"));
    let distance = first_reachable(can_reach).ok_or_else(lost)?;
    let next = reach(first.saturating_add(distance)).ok().flatten().ok_or_else(lost)?;
    damage.note_gap(table, first..=next.saturating_sub(1));
    Ok(next)
}

/// The smallest distance at which a row can be reached, found by doubling and halving.
pub(super) fn first_reachable(can_reach: impl Fn(i64) -> bool) -> Option<i64> {
    let mut far: i64 = 1;
    while !can_reach(far) {
        far = far.checked_mul(2)?;
    }
    let mut near = far / 2;
    while far - near > 1 {
        let middle = near + (far - near) / 2;
        match can_reach(middle) {
            true => far = middle,
            false => near = middle,
        }
    }
    Some(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_row_behind_a_gap_is_found() {
        for gap in [1, 2, 3, 31, 32, 33, 1_000_000] {
            assert_eq!(first_reachable(|distance| distance >= gap), Some(gap));
        }
        assert_eq!(first_reachable(|_| false), None);
    }
}
