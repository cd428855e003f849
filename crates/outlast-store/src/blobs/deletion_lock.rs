//! Keeps deletions and backups of a folder apart: whoever deletes objects holds a shared lock of the folder, a backup holds an
//! exclusive one, so every object that the database names when a backup begins is still there when it is copied. The locks
//! are `flock` locks of the folder itself: they end with their process, and `flock DIR command` of a shell takes them as well.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// Objects may be deleted as long as this exists.
#[derive(Debug)]
pub struct DeletionPermit {
    _lock: Option<File>,
}

/// No object is deleted as long as this exists.
#[derive(Debug)]
pub struct DeletionPause {
    _lock: File,
}

impl DeletionPermit {
    /// Where there is nothing to lock: a bucket, or a folder that is away.
    pub fn unlocked() -> DeletionPermit {
        DeletionPermit { _lock: None }
    }
}

/// `None` while a backup is being taken. A file system without locks does not stop deletions.
pub(super) fn permit(folder: &Path) -> io::Result<Option<DeletionPermit>> {
    let file = File::open(folder)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(DeletionPermit { _lock: Some(file) })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(_)) => Ok(Some(DeletionPermit::unlocked())),
    }
}

/// `None` while objects are being deleted, or another backup is being taken.
pub(super) fn pause(folder: &Path) -> io::Result<Option<DeletionPause>> {
    let file = File::open(folder)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(DeletionPause { _lock: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_go_together_and_never_beside_a_backup() {
        let folder = tempfile::tempdir().unwrap();
        let one = permit(folder.path()).unwrap().unwrap();
        let other = permit(folder.path()).unwrap().unwrap();
        assert!(pause(folder.path()).unwrap().is_none());

        drop((one, other));
        let backup = pause(folder.path()).unwrap().unwrap();
        assert!(permit(folder.path()).unwrap().is_none());
        assert!(pause(folder.path()).unwrap().is_none(), "two backups at once");

        drop(backup);
        assert!(permit(folder.path()).unwrap().is_some());
    }
}
