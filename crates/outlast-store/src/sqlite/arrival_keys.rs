//! Which ids of providers were seen. They come in no order: an index on disk would have another page written for every
//! event. So the newest are held in memory and go to disk many at a time, in order; after a start they are read off the
//! newest arrivals.

use std::collections::BTreeSet;

use outlast_core::arrival::ArrivalId;
use outlast_core::{NamespaceId, Timestamp};
use rusqlite::{OptionalExtension, params};

use super::arrivals::Ready;
use super::faults::{Fault, is_damage};
use super::scan::step_over;
use super::write::unreadable;
use super::writer::Core;
use crate::error::Error;

/// So many are held in memory. The more, the more of them share a page when they are written, and the longer that takes.
const YOUNG_MAX: usize = 65_536;
/// Pages that are written for so many, by a rough count.
const PAGES_PER_KEY: u64 = 2;

pub(super) const FIND: &str = "SELECT seq FROM arrival_key WHERE hash = ?1";
const SAME: &str = "SELECT at FROM arrival WHERE seq = ?1 AND namespace = ?2 AND source = ?3 AND key = ?4";
const INSERT: &str = "INSERT INTO arrival_key (hash, seq) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM arrival_key WHERE hash = ?1 AND seq = ?2";
/// The name of the newest row whose key is on disk.
const WRITTEN: &str = "arrival_keys";
const YOUNG: &str = "SELECT seq, namespace, source, key FROM arrival WHERE seq >= ?1 AND key IS NOT NULL ORDER BY seq";

impl Core<'_> {
    /// The arrival that came before with the same id of the provider. A hash is only a hint; the stored key decides.
    pub(super) fn find_arrival(&mut self, Ready { new, key_hash, .. }: &Ready) -> Result<Option<ArrivalId>, Fault> {
        let &Some(hash) = key_hash else {
            return Ok(None);
        };
        let mut places: Vec<i64> =
            self.young_keys.range((hash, i64::MIN)..=(hash, i64::MAX)).map(|(_, seq)| *seq).collect();
        if self.hints.may_have(hash) {
            for seq in self.hot.find_arrival_key.query_map([hash], |row| row.get(0))? {
                places.push(seq?);
            }
        }
        for seq in places {
            let mut same = self.connection.prepare_cached(SAME)?;
            let row = params![seq, new.namespace.0, new.source, new.key];
            if let Some(at) = same.query_row(row, |row| row.get(0)).optional()? {
                return Ok(Some(ArrivalId(self.ids.id(seq, Timestamp::from_millis(at)))));
            }
        }
        Ok(None)
    }

    pub(super) fn note_arrival_key(&mut self, ready: &Ready, seq: i64) -> Result<(), Fault> {
        if let Some(hash) = ready.key_hash {
            self.young_keys.insert((hash, seq));
            self.has_new_keys = true;
        }
        if self.young_keys.len() >= YOUNG_MAX {
            self.write_arrival_keys(seq)?;
        }
        Ok(())
    }

    /// All that are in memory, the one of this row being the newest.
    fn write_arrival_keys(&mut self, newest: i64) -> Result<(), Fault> {
        let mut insert = self.connection.prepare_cached(INSERT)?;
        for (hash, seq) in &self.young_keys {
            insert.execute([hash, seq])?;
            self.hints.add(*hash);
        }
        self.note(WRITTEN, newest)?;
        self.dirty_pages += self.young_keys.len() as u64 / PAGES_PER_KEY;
        self.young_keys.clear();
        Ok(())
    }

    pub(super) fn forget_arrival_key(
        &mut self,
        namespace: NamespaceId,
        source: &str,
        key: &str,
        seq: i64,
    ) -> Result<(), Fault> {
        let hash = self.ids.arrival_hash(namespace, source, key);
        self.has_new_keys = true;
        if !self.young_keys.remove(&(hash, seq)) {
            self.connection.prepare_cached(DELETE)?.execute([hash, seq])?;
        }
        Ok(())
    }

    /// What the rows say about those that are in memory. The id of a damaged one is not known any more.
    pub(super) fn scan_young_keys(&self) -> Result<BTreeSet<(i64, i64)>, Error> {
        let mut young = BTreeSet::new();
        let mut from = self.noted(WRITTEN)?.unwrap_or(0) + 1;
        loop {
            match self.scan_keys(&mut from, &mut young) {
                Ok(()) => return Ok(young),
                Err(error) if is_damage(&error) => {
                    from = step_over(self.connection, "arrival", "seq", from, &self.damage)?;
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    fn scan_keys(&self, from: &mut i64, young: &mut BTreeSet<(i64, i64)>) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(YOUNG)?;
        let mut rows = statement.query([*from])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            *from = seq + 1;
            let text = |at: usize| row.get::<_, String>(at).map_err(unreadable);
            match (row.get(1).map(NamespaceId).map_err(unreadable), text(2), text(3)) {
                (Ok(namespace), Ok(source), Ok(key)) => {
                    young.insert((self.ids.arrival_hash(namespace, &source, &key), seq));
                }
                _ => self.damage.note(&format!("arrival row {seq}: a column makes no sense")),
            }
        }
        Ok(())
    }
}
