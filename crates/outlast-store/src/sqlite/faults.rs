//! Classifies a failure of SQLite: no room, a lock of another process, damaged data, or a disk that can no longer be
//! trusted.

use rusqlite::{ErrorCode, ffi};

use crate::error::Error;

/// Why an operation could not run.
#[derive(Debug)]
pub(super) enum Fault {
    /// No room on the disk. Nothing of the group is stored.
    Full,
    /// Somebody else holds the write lock, a shell on the file say. Nothing of the group is stored.
    Busy,
    /// The same at the very beginning: nothing of the group has run, so nothing is to be undone.
    NotBegun,
    /// A write or sync failed: the process must stop.
    Fatal(rusqlite::Error),
    /// Stored bytes do not make sense; only this call fails.
    Unsound(Error),
    /// Damage was met in the middle of a statement, which may be half done: the transaction must be undone.
    Damaged(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        match error.sqlite_error() {
            // The index of the WAL could not grow, which is how a full disk shows there.
            Some(failure) if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Fault::Full,
            Some(failure) if failure.code == ErrorCode::DiskFull => Fault::Full,
            Some(failure) if failure.code == ErrorCode::DatabaseBusy => Fault::Busy,
            Some(_) if is_damage(&error) => Fault::Damaged(Error::Corrupt(error.to_string())),
            None if is_damage(&error) => Fault::Unsound(Error::Corrupt(error.to_string())),
            _ => Fault::Fatal(error),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Unsound(error)
    }
}

impl Fault {
    /// The damage, where that is what it is.
    pub(super) fn damage(self) -> Result<Error, Fault> {
        match self {
            Fault::Unsound(error) | Fault::Damaged(error) => Ok(error),
            other => Err(other),
        }
    }
}

/// Does it say that stored bytes make no sense? A failed read, write or sync is another matter, and fatal.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    let Some(failure) = error.sqlite_error() else {
        // A value of another type or out of range: the statements are fixed, so it is the value that is wrong.
        return matches!(
            error,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..)
        );
    };
    matches!(
        failure.code,
        ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            // The length of a record or the kind of a column is nonsense.
            | ErrorCode::TooBig
            | ErrorCode::TypeMismatch
            // Numbers and names are chosen so that nothing clashes: a clash means that an index or a row is wrong.
            | ErrorCode::ConstraintViolation
    )
}
