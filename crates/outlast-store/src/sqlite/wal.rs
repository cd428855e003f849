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
const BUFFER_BYTES: usize = 1 << 20;

/// What is in a log.
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
            before = has_salt.then_some(Before { checksum, is_commit });
        }
        Ok(())
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
