//! The position of the log as SQLite has it in the header of its WAL index, the file `-shm`. Read with `pread`, which sees
//! what SQLite has mapped. The file must stay open for as long as SQLite has it open: closing it would drop SQLite's locks.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::directory::wal_index_path;
use super::state_file::WalPosition;

const HEADER_BYTES: usize = 48;
/// SQLite's number for the format, unchanged since WAL mode exists.
const VERSION: u32 = 3_007_000;

#[derive(Debug)]
pub(super) struct WalIndex(File);

impl WalIndex {
    /// After SQLite has opened the database and read something.
    pub(super) fn open(directory: &Path) -> io::Result<WalIndex> {
        File::open(wal_index_path(directory)).map(WalIndex)
    }

    /// The writer asks between two of its transactions, when no thread of this process changes it.
    pub(super) fn position(&self) -> io::Result<WalPosition> {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact_at(&mut header, 0)?;
        parse(&header).ok_or_else(|| io::Error::other("the index of the write-ahead log has an unknown form"))
    }
}

/// Numbers are the machine's own, but for the salt, which is as in the log.
fn parse(header: &[u8; HEADER_BYTES]) -> Option<WalPosition> {
    let mut words = header.chunks_exact(4).filter_map(|word| <[u8; 4]>::try_from(word).ok());
    let version = words.next().map(u32::from_ne_bytes)?;
    let frames = words.nth(3).map(u32::from_ne_bytes)?;
    let checksum = (words.nth(1).map(u32::from_ne_bytes)?, words.next().map(u32::from_ne_bytes)?);
    let salt = (words.next().map(u32::from_be_bytes)?, words.next().map(u32::from_be_bytes)?);
    (version == VERSION).then_some(WalPosition { salt, frames, checksum })
}
