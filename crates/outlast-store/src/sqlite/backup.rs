//! A snapshot of an embedded store for `outlast backup`, taken from another process while the server goes on working. Only
//! reads the store; the file of the snapshot is the one thing that is written.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::ObjectKey;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::directory::{check_owner, database_path, lock_path, make_private};
use super::migrate::MIGRATIONS;
use super::options::OpenError;
use super::survey::Survey;

/// How long the first read waits for a server that is recovering its log.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Objects read from the snapshot at a time.
const PAGE: usize = 1000;

/// One read transaction. The copy has no free pages and no log.
const SNAPSHOT: &str = "VACUUM INTO ?1";
const OBJECTS: &str = "
    SELECT key, attached AND delete_after IS NULL, length, sha256
    FROM object
    WHERE key > ?1
    ORDER BY key
    LIMIT ?2";

const COUNTS: &str = "SELECT (SELECT count(*) FROM queue), (SELECT count(*) FROM job)";

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{0} has no outlast.db: it is not the data directory of an embedded store")]
    NoStore(PathBuf),
    #[error(
        "the store has schema {found} and this binary writes schema {known}; take the backup with the version of the running \
         server"
    )]
    OtherSchema { found: u32, known: u32 },
    #[error("there is no space for the snapshot: {0} has to hold a copy of the database")]
    Full(PathBuf),
    #[error(transparent)]
    Store(#[from] OpenError),
}

impl From<rusqlite::Error> for SnapshotError {
    fn from(error: rusqlite::Error) -> SnapshotError {
        SnapshotError::Store(error.into())
    }
}

/// An object that the snapshot names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotObject {
    pub key: ObjectKey,
    /// The job needs it: it is a result or a checkpoint, and nobody has asked for its deletion. Others are uploads that were
    /// never completed, or objects that are waiting for their deletion.
    pub is_needed: bool,
    pub length: u64,
    pub sha256: [u8; 32],
}

/// The file of a snapshot, open for reading.
#[derive(Debug)]
pub struct Snapshot {
    connection: Connection,
    pub schema: u32,
}

/// Writes the snapshot to `target`, which must not exist, and syncs it. What was committed before the call is in it. As long as
/// it takes, the server cannot cut back its log.
pub fn take_snapshot(directory: &Path, target: &Path) -> Result<Snapshot, SnapshotError> {
    let failed = |source: io::Error| OpenError::Directory { directory: directory.to_owned(), source };
    if !database_path(directory).exists() {
        return Err(SnapshotError::NoStore(directory.to_owned()));
    }
    // SQLite may make its shared memory anew, which then has to belong to the user of the server.
    check_owner(directory, &fs::metadata(directory).map_err(failed)?)?;
    if !is_in_use(directory).map_err(failed)? {
        // A server would refuse to start on it, so nobody should rely on a copy.
        if let Some(loss) = Survey::read(directory).map_err(failed)?.loss() {
            return Err(OpenError::Loss(loss).into());
        }
    }
    let connection = open(&database_path(directory))?;
    check_schema(&connection)?;
    make_private(target).map_err(failed)?;
    if let Err(error) = connection.execute(SNAPSHOT, [target.to_string_lossy()]) {
        return Err(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => SnapshotError::Full(target.parent().unwrap_or(target).to_owned()),
            _ => error.into(),
        });
    }
    drop(connection);
    File::open(target).and_then(|file| file.sync_all()).map_err(failed)?;
    Snapshot::open(target)
}

/// Does a server run on this directory?
fn is_in_use(directory: &Path) -> io::Result<bool> {
    let file = match File::open(lock_path(directory)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    Ok(connection)
}

fn check_schema(connection: &Connection) -> Result<u32, SnapshotError> {
    let known = MIGRATIONS.last().map_or(0, |(number, _, _)| *number);
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == known { Ok(found) } else { Err(SnapshotError::OtherSchema { found, known }) }
}

impl Snapshot {
    /// A snapshot that was taken before.
    pub fn open(path: &Path) -> Result<Snapshot, SnapshotError> {
        let connection = open(path)?;
        let schema = check_schema(&connection)?;
        Ok(Snapshot { connection, schema })
    }

    /// How many queues and jobs it has. Reads an index of all jobs.
    pub fn counts(&self) -> Result<(u64, u64), SnapshotError> {
        Ok(self.connection.query_row(COUNTS, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// Objects behind `last`, in the order of their keys; none at the end. Keys that cannot be read are left out: the row is
    /// damaged, and the server does not use it either.
    pub fn objects(&self, last: &str) -> Result<Vec<SnapshotObject>, SnapshotError> {
        let mut objects = Vec::new();
        let mut last = last.to_owned();
        let mut statement = self.connection.prepare_cached(OBJECTS)?;
        // A page of damaged keys is not the end.
        while objects.is_empty() {
            let mut rows = statement.query(rusqlite::params![last, PAGE])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                count += 1;
                let key: String = row.get(0)?;
                objects.extend(object(&key, row)?);
                last = key;
            }
            if count == 0 {
                break;
            }
        }
        Ok(objects)
    }
}

fn object(key: &str, row: &Row<'_>) -> Result<Option<SnapshotObject>, rusqlite::Error> {
    let Ok(key) = key.parse() else { return Ok(None) };
    let length = row.get::<_, i64>(2)?.cast_unsigned();
    Ok(Some(SnapshotObject { key, is_needed: row.get(1)?, length, sha256: row.get(3)? }))
}
