//! Which ids of providers were seen. They come in no order: an index on disk would have another page written for every
//! event. So the newest are held in memory and go to disk many at a time, in order; after a start they are read off the
//! newest inbound events.

use std::collections::BTreeSet;

use outlast_core::inbound_event::InboundEventId;
use outlast_core::{NamespaceId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::faults::{Fault, is_damage};
use super::inbound_events::Ready;
use super::scan::step_over;
use super::write::unreadable;
use super::writer::WriterState;
use crate::error::Error;

/// So many are held in memory. The more, the more of them share a page when they are written, and the longer that takes.
const MEMTABLE_MAX: usize = 65_536;
/// Pages that are written for so many, by a rough count.
const PAGES_PER_KEY: u64 = 2;

pub(super) const FIND: &str = "SELECT seq FROM inbound_event_key WHERE hash = ?1";
const SAME: &str = "SELECT at FROM inbound_event WHERE seq = ?1 AND namespace = ?2 AND source = ?3 AND key = ?4";
const INSERT: &str = "INSERT INTO inbound_event_key (hash, seq) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM inbound_event_key WHERE hash = ?1 AND seq = ?2";
/// The name of the newest row whose key is on disk.
const WRITTEN: &str = "arrival_keys";
const UNWRITTEN_KEYS: &str =
    "SELECT seq, namespace, source, key FROM inbound_event WHERE seq >= ?1 AND key IS NOT NULL ORDER BY seq";

impl WriterState<'_> {
    /// The inbound event with the same id of the provider. A hash is only a hint; the stored key decides.
    pub(super) fn find_duplicate(
        &mut self,
        Ready { new, key_hash, .. }: &Ready,
    ) -> Result<Option<InboundEventId>, Fault> {
        let &Some(hash) = key_hash else {
            return Ok(None);
        };
        let mut places: Vec<i64> =
            self.memtable.range((hash, i64::MIN)..=(hash, i64::MAX)).map(|(_, seq)| *seq).collect();
        if self.key_bloom.may_have(hash) {
            for seq in self.statements.find_event_key.query_map([hash], |row| row.get(0))? {
                places.push(seq?);
            }
        }
        for seq in places {
            let mut same = self.connection.prepare_cached(SAME)?;
            let row = params![seq, new.namespace.0, new.source, new.key];
            if let Some(at) = same.query_row(row, |row| row.get(0)).optional()? {
                return Ok(Some(InboundEventId(self.ids.id(seq, Timestamp::from_millis(at)))));
            }
        }
        Ok(None)
    }

    pub(super) fn note_event_key(&mut self, ready: &Ready, seq: i64) -> Result<(), Fault> {
        if let Some(hash) = ready.key_hash {
            self.memtable.insert((hash, seq));
            self.has_new_keys = true;
        }
        if self.memtable.len() >= MEMTABLE_MAX {
            self.flush_memtable(seq)?;
        }
        Ok(())
    }

    /// All that are in memory, the one of this row being the newest.
    fn flush_memtable(&mut self, newest: i64) -> Result<(), Fault> {
        let mut insert = self.connection.prepare_cached(INSERT)?;
        for (hash, seq) in &self.memtable {
            insert.execute([hash, seq])?;
            self.key_bloom.add(*hash);
        }
        self.note(WRITTEN, newest)?;
        self.dirty_pages += self.memtable.len() as u64 / PAGES_PER_KEY;
        self.memtable.clear();
        Ok(())
    }

    pub(super) fn forget_arrival_key(
        &mut self,
        namespace: NamespaceId,
        source: &str,
        key: &str,
        seq: i64,
    ) -> Result<(), Fault> {
        let hash = self.ids.event_key_hash(namespace, source, key);
        self.has_new_keys = true;
        if !self.memtable.remove(&(hash, seq)) {
            self.connection.prepare_cached(DELETE)?.execute([hash, seq])?;
        }
        Ok(())
    }

    /// The keys that belong into the memtable, read from the rows. The id of a damaged row is lost.
    pub(super) fn scan_young_keys(&self) -> Result<BTreeSet<(i64, i64)>, Error> {
        let mut young = BTreeSet::new();
        let mut from = self.noted(WRITTEN)?.unwrap_or(0) + 1;
        loop {
            match self.scan_keys(&mut from, &mut young) {
                Ok(()) => return Ok(young),
                Err(error) if is_damage(&error) => {
                    from = step_over(self.connection, "inbound_event", "seq", from, &self.damage)?;
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    fn scan_keys(&self, from: &mut i64, young: &mut BTreeSet<(i64, i64)>) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(UNWRITTEN_KEYS)?;
        let mut rows = statement.query([*from])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            *from = seq + 1;
            let text = |at: usize| row.get::<_, String>(at).map_err(unreadable);
            match (row.get(1).map(NamespaceId).map_err(unreadable), text(2), text(3)) {
                (Ok(namespace), Ok(source), Ok(key)) => {
                    young.insert((self.ids.event_key_hash(namespace, &source, &key), seq));
                }
                _ => self.damage.note(&format!("inbound_event row {seq}: a column makes no sense")),
            }
        }
        Ok(())
    }
}
