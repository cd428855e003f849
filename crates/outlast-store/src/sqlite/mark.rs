//! Marks: a number in the header of the database that grows with every start and before every checkpoint. It is committed
//! like any page, so the number in the file itself, without the log, tells how far a checkpoint has brought it. It is kept in
//! SQLite's `application_id`, whose place in the file is fixed: reading it needs no SQLite.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// "O" and "L" in short: recognises a database of Outlast.
const TAG: u32 = 0x4f4 << BITS;
const BITS: u32 = 20;
const MASK: u32 = (1 << BITS) - 1;
/// Where SQLite keeps `application_id`, as a big-endian number.
const OFFSET: u64 = 68;

/// The `application_id` of a mark.
pub(super) fn to_application_id(mark: u32) -> u32 {
    TAG | mark & MASK
}

pub(super) fn from_application_id(id: u32) -> Option<u32> {
    (id & !MASK == TAG).then_some(id & MASK)
}

pub(super) fn next(mark: u32) -> u32 {
    // Zero means that there is no mark yet.
    ((mark + 1) & MASK).max(1)
}

/// Is `mark` the same as `other` or later? Numbers wrap around after a million.
pub(super) fn reaches(mark: u32, other: u32) -> bool {
    mark.wrapping_sub(other) & MASK <= MASK / 2
}

/// The database file as it is without its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseFile {
    pub bytes: u64,
    /// `None` for a file of a release that set no marks.
    pub mark: Option<u32>,
}

/// `None` where there is no file, or an empty one. Not to be used while this process has the file open with SQLite: closing
/// it would drop SQLite's locks.
pub(super) fn read_database(path: &Path) -> io::Result<Option<DatabaseFile>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    let mut id = [0; 4];
    match file.read_exact_at(&mut id, OFFSET) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error),
    }
    let mark = from_application_id(u32::from_be_bytes(id));
    Ok((bytes > 0).then_some(DatabaseFile { bytes, mark }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_grow_and_wrap_around() {
        assert_eq!(from_application_id(to_application_id(5)), Some(5));
        assert_eq!(from_application_id(0), None);
        assert_eq!(next(MASK), 1);
        assert!(reaches(5, 5) && reaches(6, 5) && !reaches(5, 6));
        assert!(reaches(1, MASK) && !reaches(MASK, 1));
    }
}
