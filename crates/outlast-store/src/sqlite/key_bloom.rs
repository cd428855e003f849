//! A one-hash Bloom filter over the ids of providers in the index on disk. Nearly every event is new, so it saves
//! nearly every search of the index. A false positive costs a search and nothing else.

use rusqlite::Connection;

use super::write::unreadable;
use crate::error::Error;

/// 1 MiB of them.
const BITS: u32 = 1 << 23;
/// With more ids than this, as many as come in a week at seven a second, a start does not wait until they are read.
pub(super) const READ_MAX: u32 = BITS / 2;

const HASHES: &str = "SELECT hash FROM inbound_event_key";
/// A 1024th of all hashes there can be, which are as good as random.
const SAMPLE: &str = "SELECT count(*) FROM inbound_event_key WHERE hash BETWEEN 0 AND (1 << 54) - 1";
const SAMPLES: u32 = 1024;

pub(super) struct KeyBloom {
    /// None at all if any id may be there.
    words: Vec<u64>,
}

impl KeyBloom {
    /// Reads the index, unless it has about so many ids.
    pub(super) fn read(connection: &Connection, too_many: u32) -> Result<KeyBloom, Error> {
        let sampled: u32 = connection.query_row(SAMPLE, [], |row| row.get(0)).map_err(unreadable)?;
        if sampled.saturating_mul(SAMPLES) >= too_many {
            return Ok(KeyBloom { words: Vec::new() });
        }
        let mut key_bloom = KeyBloom { words: vec![0; BITS as usize / 64] };
        let mut statement = connection.prepare(HASHES).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            key_bloom.add(row.get(0).map_err(unreadable)?);
        }
        Ok(key_bloom)
    }

    pub(super) fn add(&mut self, hash: i64) {
        let (word, bit) = place(hash);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    pub(super) fn may_have(&self, hash: i64) -> bool {
        let (word, bit) = place(hash);
        self.words.get(word).is_none_or(|word| word & bit != 0)
    }

    /// Is none of those on disk missing?
    pub(super) fn hold(&self, connection: &Connection) -> Result<bool, Error> {
        let mut statement = connection.prepare(HASHES).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            if !self.may_have(row.get(0).map_err(unreadable)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A hash is as good as random in all its bits.
fn place(hash: i64) -> (usize, u64) {
    let bit = hash.rem_euclid(i64::from(BITS));
    (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(hashes: &[i64]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute("CREATE TABLE inbound_event_key (hash INTEGER NOT NULL)", []).unwrap();
        for hash in hashes {
            connection.execute("INSERT INTO inbound_event_key VALUES (?1)", [hash]).unwrap();
        }
        connection
    }

    #[test]
    fn what_is_on_disk_is_never_denied_and_what_is_not_seldom_searched() {
        let known = [0, 1, -1, i64::MIN, i64::MAX, 77];
        let connection = index(&known);

        let mut key_bloom = KeyBloom::read(&connection, READ_MAX).unwrap();

        assert!(known.iter().all(|hash| key_bloom.may_have(*hash)));
        assert!(key_bloom.hold(&connection).unwrap());
        assert!(![2, -2, 78, 1_000_000].iter().any(|hash| key_bloom.may_have(*hash)));
        key_bloom.add(78);
        assert!(key_bloom.may_have(78));
        connection.execute("INSERT INTO inbound_event_key VALUES (2)", []).unwrap();
        assert!(!key_bloom.hold(&connection).unwrap());
    }

    #[test]
    fn of_too_many_ids_any_may_be_there() {
        let connection = index(&[1, 2, 3]);

        // Three in a 1024th of all hashes.
        let mut key_bloom = KeyBloom::read(&connection, 3 * SAMPLES).unwrap();
        key_bloom.add(4);

        assert!([1, 4, 5, -5].iter().all(|hash| key_bloom.may_have(*hash)));
        assert!(!KeyBloom::read(&connection, 3 * SAMPLES + 1).unwrap().may_have(5));
    }
}
