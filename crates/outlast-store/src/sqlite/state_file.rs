//! The state file: what the last writer of this directory knew about its files, so that the next start can tell a log that
//! was damaged or removed from one that was never longer. Two slots are written in turn, each with a counter and a digest:
//! a torn write leaves the older one. It never claims more than what was synced before. Written in place, so it needs no
//! space on a full disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outlast_core::Timestamp;
use sha2::{Digest, Sha256};

pub(super) const STATE_FILE: &str = "outlast.state";
const MAGIC: [u8; 8] = *b"outlast1";
/// A page each, so that no write of one slot touches the other one.
const SLOT_BYTES: u64 = 4096;
const SLOTS: u64 = 2;
const BODY_BYTES: usize = 88;
const DIGEST_BYTES: usize = 16;

/// A place in the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalPosition {
    /// As in the header of the log; the first one grows by one whenever SQLite starts the log over.
    pub salt: (u32, u32),
    /// Committed frames.
    pub frames: u32,
    /// SQLite's checksum over all of them.
    pub checksum: (u32, u32),
}

/// The state of the log that the next start may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalState {
    /// Nothing is known: no start has been completed since the file was made.
    Unknown,
    /// A server is running, or ended without a clean stop.
    Running(WalPosition),
    /// The same, and the log was about to be emptied into the database.
    Emptying(WalPosition),
    /// The server stopped cleanly and left no log.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Grows with every start that accepted a loss.
    pub incarnation: u32,
    pub log: WalState,
    /// The mark that was last committed; see `mark.rs`.
    pub mark: u32,
    /// The mark that a complete checkpoint has brought into the database file.
    pub checkpointed: u32,
    /// Frames of the log that may be in the database file.
    pub copied: u32,
    /// The number that the next job or event gets.
    pub next_seq: i64,
    /// The time of the last commit.
    pub at: Timestamp,
}

/// The content of the state file's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFound {
    Missing,
    /// Neither slot can be read.
    Damaged,
    Found(StateRecord),
}

/// The open file and the record that was written last.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    counter: u64,
    pub(super) record: StateRecord,
}

impl StateFile {
    /// Replaces whatever is there, atomically and durably.
    pub(super) fn create(directory: &Path, record: StateRecord) -> io::Result<StateFile> {
        let (path, fresh) = (state_path(directory), directory.join("outlast.state.new"));
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(0o600).open(&fresh)?;
        file.write_all_at(&[0; 2 * 4096], 0)?;
        let mut state = StateFile { file, counter: 0, record };
        state.write(record)?;
        state.write(record)?;
        state.file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(directory)?.sync_all()?;
        Ok(state)
    }

    pub(super) fn open(directory: &Path) -> io::Result<Option<StateFile>> {
        let file = OpenOptions::new().read(true).write(true).open(state_path(directory))?;
        Ok(newest(&file)?.map(|(counter, record)| StateFile { file, counter, record }))
    }

    /// In place and not synced: survives a kill, and a power cut leaves this record or one of the records before it.
    pub(super) fn write(&mut self, record: StateRecord) -> io::Result<()> {
        let counter = self.counter + 1;
        self.file.write_all_at(&encode(counter, &record), counter % SLOTS * SLOT_BYTES)?;
        (self.counter, self.record) = (counter, record);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

pub(super) fn state_path(directory: &Path) -> PathBuf {
    directory.join(STATE_FILE)
}

/// Reads without a lock: a server may be writing it.
pub(super) fn read_state(directory: &Path) -> io::Result<StateFound> {
    let file = match File::open(state_path(directory)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(StateFound::Missing),
        Err(error) => return Err(error),
    };
    Ok(newest(&file)?.map_or(StateFound::Damaged, |(_, record)| StateFound::Found(record)))
}

fn newest(file: &File) -> io::Result<Option<(u64, StateRecord)>> {
    let mut found: Option<(u64, StateRecord)> = None;
    for slot in 0..SLOTS {
        let mut bytes = [0; BODY_BYTES + DIGEST_BYTES];
        match file.read_exact_at(&mut bytes, slot * SLOT_BYTES) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        let read = decode(&bytes);
        found = found.into_iter().chain(read).max_by_key(|(counter, _)| *counter);
    }
    Ok(found)
}

fn encode(counter: u64, record: &StateRecord) -> Vec<u8> {
    let (kind, position) = match record.log {
        WalState::Unknown => (0, None),
        WalState::Running(position) => (1, Some(position)),
        WalState::Emptying(position) => (2, Some(position)),
        WalState::Stopped => (3, None),
    };
    let position = position.unwrap_or(WalPosition { salt: (0, 0), frames: 0, checksum: (0, 0) });
    let mut bytes = Vec::with_capacity(BODY_BYTES + DIGEST_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(counter.to_le_bytes());
    bytes.extend(record.next_seq.to_le_bytes());
    bytes.extend(record.at.as_millis().to_le_bytes());
    let numbers = [
        kind,
        record.incarnation,
        record.mark,
        record.checkpointed,
        record.copied,
        position.salt.0,
        position.salt.1,
        position.frames,
        position.checksum.0,
        position.checksum.1,
    ];
    for number in numbers {
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize(BODY_BYTES, 0);
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest.iter().take(DIGEST_BYTES));
    bytes
}

fn decode(bytes: &[u8; BODY_BYTES + DIGEST_BYTES]) -> Option<(u64, StateRecord)> {
    let (body, digest) = bytes.split_at_checked(BODY_BYTES)?;
    if Sha256::digest(body).get(..DIGEST_BYTES)? != digest {
        return None;
    }
    let mut fields = FieldReader(body.strip_prefix(&MAGIC)?);
    let (counter, next_seq, at) = (fields.wide()?, fields.wide()?.cast_signed(), fields.wide()?.cast_signed());
    let kind = fields.narrow()?;
    let (incarnation, mark) = (fields.narrow()?, fields.narrow()?);
    let (checkpointed, copied) = (fields.narrow()?, fields.narrow()?);
    let position = WalPosition {
        salt: (fields.narrow()?, fields.narrow()?),
        frames: fields.narrow()?,
        checksum: (fields.narrow()?, fields.narrow()?),
    };
    let log = match kind {
        0 => WalState::Unknown,
        1 => WalState::Running(position),
        2 => WalState::Emptying(position),
        3 => WalState::Stopped,
        _ => return None,
    };
    let at = Timestamp::from_millis(at);
    Some((counter, StateRecord { incarnation, log, mark, checkpointed, copied, next_seq, at }))
}

struct FieldReader<'b>(&'b [u8]);

impl FieldReader<'_> {
    fn wide(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn narrow(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(frames: u32) -> StateRecord {
        let position = WalPosition { salt: (7, 8), frames, checksum: (9, 10) };
        StateRecord {
            incarnation: 1,
            log: WalState::Running(position),
            mark: 3,
            checkpointed: 2,
            copied: 0,
            next_seq: 400,
            at: Timestamp::from_millis(1_700_000_000_000),
        }
    }

    #[test]
    fn every_kind_of_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let WalState::Running(position) = record(5).log else { unreachable!() };
        let mut state = StateFile::create(directory.path(), record(5)).unwrap();
        for log in [WalState::Unknown, WalState::Running(position), WalState::Emptying(position), WalState::Stopped] {
            let written = StateRecord { log, ..record(5) };
            state.write(written).unwrap();

            assert_eq!(read_state(directory.path()).unwrap(), StateFound::Found(written));
            assert_eq!(StateFile::open(directory.path()).unwrap().unwrap().record, written);
        }
    }

    #[test]
    fn a_torn_slot_leaves_the_record_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StateFile::create(directory.path(), record(1)).unwrap();
        state.write(record(2)).unwrap();
        state.write(record(3)).unwrap();
        let path = state_path(directory.path());
        let whole = fs::read(&path).unwrap();
        let newest_slot = usize::try_from(state.counter % SLOTS * SLOT_BYTES).unwrap();

        for at in 0..BODY_BYTES + DIGEST_BYTES {
            let mut torn = whole.clone();
            torn[newest_slot + at] ^= 0x10;
            fs::write(&path, &torn).unwrap();

            assert_eq!(read_state(directory.path()).unwrap(), StateFound::Found(record(2)), "byte {at}");
        }
    }

    #[test]
    fn a_file_without_a_sound_slot_is_damaged_and_a_missing_one_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_state(directory.path()).unwrap(), StateFound::Missing);
        for content in [&b""[..], b"outlast1", &[0; 8192], &[0xff; 9000]] {
            fs::write(state_path(directory.path()), content).unwrap();
            assert_eq!(read_state(directory.path()).unwrap(), StateFound::Damaged);
        }
    }
}
