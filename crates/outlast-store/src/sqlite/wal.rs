//! Reads a write-ahead log as SQLite's recovery would, and then further: SQLite takes the first frame that does not fit for
//! the end of the log, be there ever so much behind it. Only reads. The format is section 4 of SQLite's file format.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

use super::state_file::WalPosition;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The lowest bit says whether checksums are computed over big-endian numbers.
const MAGIC: u32 = 0x377f_0682;
/// The least unit that a disk writes at once.
const SECTOR_BYTES: usize = 512;
const BUFFER_BYTES: usize = 1 << 20;

/// The content of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalScan {
    pub bytes: u64,
    /// `None` if the header is damaged; then SQLite takes the log for empty.
    pub salt: Option<(u32, u32)>,
    /// The last commit that SQLite would find.
    pub committed: u32,
    /// The checksum of the frame that was asked for, if SQLite would find it.
    pub checksum: Option<(u32, u32)>,
    /// The first frame that does not fit, if a later transaction than that frame's is behind it. A torn write of the last
    /// transaction, which was never synced and so never acknowledged, looks different: nothing follows its commit.
    pub broken_at: Option<u32>,
}

impl WalScan {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// `None` where there is no log. `asked` is the frame whose checksum is wanted.
pub(super) fn scan(path: &Path, asked: Option<WalPosition>) -> io::Result<Option<WalScan>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut scan = WalScan { bytes: file.metadata()?.len(), salt: None, committed: 0, checksum: None, broken_at: None };
    let mut input = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut header = [0; HEADER_BYTES];
    if !read_whole(&mut input, &mut header)? {
        return Ok(Some(scan));
    }
    let Some(header) = Header::parse(&header) else {
        return Ok(Some(scan));
    };
    scan.salt = Some(header.salt);
    header.scan_frames(input, asked.map(|position| position.frames), &mut scan)?;
    Ok(Some(scan))
}

struct Header {
    is_big_endian: bool,
    page_bytes: usize,
    salt: (u32, u32),
    checksum: (u32, u32),
}

/// The frame before the present one, as its header says.
struct Before {
    checksum: (u32, u32),
    is_commit: bool,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let (summed, _) = bytes.split_at_checked(HEADER_BYTES - 8)?;
        let [magic, _version, page_bytes, _checkpoint, salt_one, salt_two, sum_one, sum_two] = numbers(bytes);
        let is_big_endian = magic & 1 == 1;
        let checksum = (sum_one, sum_two);
        let page_bytes = usize::try_from(page_bytes).ok()?;
        let is_sound = magic & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && (512..=65_536).contains(&page_bytes)
            && sum((0, 0), summed, is_big_endian) == checksum;
        is_sound.then_some(Header { is_big_endian, page_bytes, salt: (salt_one, salt_two), checksum })
    }

    fn scan_frames(&self, mut input: impl Read, asked: Option<u32>, scan: &mut WalScan) -> io::Result<()> {
        let mut frame = vec![0; FRAME_HEADER_BYTES + self.page_bytes];
        let mut before = Some(Before { checksum: self.checksum, is_commit: false });
        let (mut number, mut first_bad) = (0_u32, None);
        while read_whole(&mut input, &mut frame)? {
            number = number.saturating_add(1);
            let (Some((head, page)), Some(summed)) = (frame.split_first_chunk::<24>(), frame.get(..8)) else {
                return Ok(());
            };
            let [page_number, pages_after_commit, salt_one, salt_two, sum_one, sum_two] = numbers(head);
            let (checksum, is_commit) = ((sum_one, sum_two), pages_after_commit != 0);
            let has_salt = (salt_one, salt_two) == self.salt && page_number != 0;
            let fits = has_salt
                && before.as_ref().is_some_and(|before| {
                    let seed = sum(before.checksum, summed, self.is_big_endian);
                    sum(seed, page, self.is_big_endian) == checksum
                });
            match first_bad {
                None if !fits => first_bad = Some(number),
                None if is_commit => scan.committed = number,
                // A new transaction behind a commit is only ever begun after that commit was synced.
                Some(bad) if fits && before.as_ref().is_some_and(|before| before.is_commit) => {
                    scan.broken_at = Some(bad);
                    return Ok(());
                }
                _ => {}
            }
            if first_bad.is_none() && asked == Some(number) {
                scan.checksum = Some(checksum);
            }
            // A bad frame is believed to be a commit only if its header was written whole.
            let is_commit = is_commit && (fits || self.is_in_one_sector(number));
            before = has_salt.then_some(Before { checksum, is_commit });
        }
        Ok(())
    }
}

impl Header {
    /// A torn write leaves sectors that are old or new; a header across two of them may be half of each.
    fn is_in_one_sector(&self, frame: u32) -> bool {
        let place = usize::try_from(frame.saturating_sub(1)).ok();
        let start = place.and_then(|place| place.checked_mul(FRAME_HEADER_BYTES + self.page_bytes));
        start.is_some_and(|start| (HEADER_BYTES + start) % SECTOR_BYTES + FRAME_HEADER_BYTES <= SECTOR_BYTES)
    }
}

/// Big-endian, as many as are asked for; zero where bytes are missing.
fn numbers<const COUNT: usize>(bytes: &[u8]) -> [u32; COUNT] {
    let mut numbers = [0; COUNT];
    for (number, four) in numbers.iter_mut().zip(bytes.chunks_exact(4)) {
        if let [a, b, c, d] = *four {
            *number = u32::from_be_bytes([a, b, c, d]);
        }
    }
    numbers
}

/// SQLite's checksum, going on from `seed`.
fn sum(seed: (u32, u32), bytes: &[u8], is_big_endian: bool) -> (u32, u32) {
    let number = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
    let (mut one, mut two) = seed;
    for eight in bytes.chunks_exact(8) {
        if let [a, b, c, d, e, f, g, h] = *eight {
            one = one.wrapping_add(number([a, b, c, d])).wrapping_add(two);
            two = two.wrapping_add(number([e, f, g, h])).wrapping_add(one);
        }
    }
    (one, two)
}

/// False at the end of the file, also in the middle of a frame.
fn read_whole(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::*;

    const FRAME_BYTES: usize = FRAME_HEADER_BYTES + 4096;
    const COMMITS: u32 = 12;

    /// A real log of some transactions, and for each of its frames whether it ends one.
    fn real_log() -> (Vec<u8>, Vec<bool>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let connection = Connection::open(&path).unwrap();
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        connection.execute_batch("CREATE TABLE one (id INTEGER PRIMARY KEY, text TEXT)").unwrap();
        for number in 1..COMMITS {
            let text = "x".repeat(usize::try_from(number).unwrap() * 1500);
            connection.execute("INSERT INTO one (text) VALUES (?1)", [text]).unwrap();
        }
        let log = fs::read(directory.path().join("a.db-wal")).unwrap();
        let frames = log[HEADER_BYTES..].chunks_exact(FRAME_BYTES);
        let commits = frames.map(|frame| frame[4..8] != [0; 4]).collect();
        (log, commits)
    }

    fn scanned(log: &[u8]) -> WalScan {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, log).unwrap();
        scan(&path, None).unwrap().unwrap()
    }

    #[test]
    fn a_log_of_sqlite_is_read_to_its_end() {
        let (log, commits) = real_log();

        let scan = scanned(&log);

        assert_eq!(usize::try_from(scan.committed).unwrap(), commits.len());
        assert!(scan.salt.is_some() && scan.broken_at.is_none());
        assert_eq!(commits.iter().filter(|is_commit| **is_commit).count(), usize::try_from(COMMITS).unwrap());
    }

    #[test]
    fn zeros_and_frames_of_an_older_log_behind_the_end_are_no_damage() {
        let (log, _) = real_log();
        let (older, _) = real_log();

        let with_zeros = [log.clone(), vec![0; 3 * FRAME_BYTES]].concat();
        let with_older = [log.clone(), older[HEADER_BYTES..].to_vec()].concat();

        for longer in [with_zeros, with_older] {
            let scan = scanned(&longer);
            assert_eq!((scan.committed, scan.broken_at), (scanned(&log).committed, None));
        }
    }

    #[test]
    fn every_bad_frame_before_the_last_two_transactions_is_found() {
        let (log, commits) = real_log();
        let (last, before_last) = {
            let mut ends = (0..commits.len()).rev().filter(|at| commits[*at]);
            let _end = ends.next();
            (ends.next().unwrap() + 1, ends.next().unwrap() + 1)
        };
        for frame in 0..commits.len() {
            for offset in [0, 6, 9, 17, 23, 24, 2000, FRAME_BYTES - 1] {
                let mut injured = log.clone();
                injured[HEADER_BYTES + frame * FRAME_BYTES + offset] ^= 0x04;
                let scan = scanned(&injured);
                if frame < before_last {
                    assert_eq!(scan.broken_at, Some(u32::try_from(frame).unwrap() + 1), "frame {frame}, byte {offset}");
                }
                // Byte 6 belongs to the mark of a commit: a torn write does not invent one.
                if frame >= last && offset != 6 {
                    assert_eq!(scan.broken_at, None, "frame {frame}: the last transaction may be torn");
                }
                assert!(usize::try_from(scan.committed).unwrap() <= frame, "frame {frame}");
            }
        }
    }

    #[test]
    fn a_last_transaction_torn_in_any_order_is_no_damage() {
        let (log, commits) = real_log();
        let last = (0..commits.len() - 1).rev().find(|at| commits[*at]).unwrap() + 1;
        let count = commits.len() - last;
        assert!(count > 2, "the last transaction has {count} frames");
        for present in 0..(1_u32 << count) - 1 {
            let mut torn = log.clone();
            for frame in 0..count {
                if present & (1 << frame) == 0 {
                    let start = HEADER_BYTES + (last + frame) * FRAME_BYTES;
                    torn[start..start + FRAME_BYTES].fill(0);
                }
            }
            let scan = scanned(&torn);
            assert_eq!((usize::try_from(scan.committed).unwrap(), scan.broken_at), (last, None), "{present:b}");
        }
    }

    #[test]
    fn a_damaged_header_and_a_cut_log_are_seen() {
        let (log, _) = real_log();
        let whole = scanned(&log).committed;
        for at in 0..HEADER_BYTES {
            let mut injured = log.clone();
            injured[at] ^= 0x20;
            assert_eq!(scanned(&injured).salt, None, "byte {at}");
        }
        assert!(scanned(&log[..log.len() - 100]).committed < whole);
        assert_eq!(scanned(&log[..20]).salt, None);
        assert!(scanned(&[]).is_empty());
    }
}
