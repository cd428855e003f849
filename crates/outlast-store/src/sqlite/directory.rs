//! The data directory: made private, locked to one process for as long as the lock lives.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use outlast_core::Timestamp;
use rustix::process::geteuid;

use super::options::OpenError;

/// Held for the life of the store; the operating system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

pub(super) fn database_path(directory: &Path) -> PathBuf {
    directory.join("outlast.db")
}

pub(super) fn lock_path(directory: &Path) -> PathBuf {
    directory.join("lock")
}

pub(super) fn wal_path(directory: &Path) -> PathBuf {
    directory.join("outlast.db-wal")
}

pub(super) fn wal_index_path(directory: &Path) -> PathBuf {
    directory.join("outlast.db-shm")
}

/// Makes the directory if needed and takes its lock, before any other file in it is touched.
pub(super) fn lock(directory: &Path) -> Result<DirectoryLock, OpenError> {
    let failed = |source: io::Error| OpenError::Directory { directory: directory.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    check_owner(directory, &fs::metadata(directory).map_err(failed)?)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(lock_path(directory))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// A user who may write the directory can replace its files, and a root process would leave files that the owner cannot
/// open: only the owner runs a server on it.
pub(super) fn check_owner(directory: &Path, metadata: &fs::Metadata) -> Result<(), OpenError> {
    let directory = || directory.to_owned();
    let user = geteuid().as_raw();
    if metadata.uid() != user {
        return Err(OpenError::Owner { directory: directory(), owner: metadata.uid(), user });
    }
    match metadata.mode() & 0o7777 {
        mode if mode & 0o022 != 0 => Err(OpenError::Writable { directory: directory(), mode }),
        _ => Ok(()),
    }
}

/// The last sign of the previous process. `None` for a new directory. Ask before anything is written. An idle server
/// wrote nothing, so this may be long before its end, never after it.
pub(super) fn last_written(directory: &Path) -> Option<Timestamp> {
    let database = database_path(directory);
    let files = [wal_path(directory), database];
    let written = files.iter().filter_map(|path| fs::metadata(path).ok()?.modified().ok()).max()?;
    let since_epoch = written.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Timestamp::EPOCH.plus(since_epoch))
}

/// Creates the database file private before SQLite opens it; SQLite gives its side files the same mode.
pub(super) fn touch_database(directory: &Path) -> Result<(), OpenError> {
    let failed = |source: io::Error| OpenError::Directory { directory: directory.to_owned(), source };
    make_private(&database_path(directory)).map_err(failed)
}

/// Creates the file if it is missing, readable by the owner only.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))
}
