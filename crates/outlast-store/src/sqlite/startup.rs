//! The steps of a start around SQLite: look at the files, refuse or accept what is missing, bring the log into the database,
//! begin a new one. Each step leaves a state file that is true if the process ends right behind it.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use outlast_core::Timestamp;
use rusqlite::{Connection, ErrorCode};

use super::directory::{database_path, touch_database, wal_path};
use super::options::{Durability, OpenError, Options};
use super::state_file::{StateFile, StateFound, StateRecord, WalState, state_path};
use super::survey::{Loss, Survey};
use super::wal_tracker::WalTracker;

/// How long a start waits for somebody who reads the file.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// The directory is fit to be opened.
pub(super) struct Inspected {
    pub(super) state: StateFile,
    /// The time of the last commit, if anybody knows.
    pub(super) last_commit: Option<Timestamp>,
}

/// Before SQLite opens the database. Changes nothing when it refuses.
pub(super) fn inspect(options: &Options) -> Result<Inspected, OpenError> {
    let directory = &options.directory;
    let failed = |source: io::Error| OpenError::Directory { directory: directory.clone(), source };
    let survey = Survey::read(directory).map_err(failed)?;
    // Without syncs nothing was promised; only the crash rigs run so.
    let loss = survey.loss().filter(|_| options.durability == Durability::Full);
    if let Some(loss) = loss.clone().filter(|_| !options.accepts_loss) {
        return Err(OpenError::Loss(loss));
    }
    let mark = survey.database.and_then(|database| database.mark).unwrap_or(0);
    let found = match survey.state {
        StateFound::Found(record) => Some(record),
        StateFound::Missing | StateFound::Damaged => None,
    };
    let mut record = found.unwrap_or_else(|| first_record(mark));
    if let Some(loss) = &loss {
        let aside = set_aside(directory, &survey, loss, record.incarnation).map_err(failed)?;
        tracing::error!(%loss, kept = %aside.join(", "), "going on without what is missing, as --accept-loss asks");
        let incarnation = record.incarnation.saturating_add(1);
        record = StateRecord { incarnation, next_seq: record.next_seq, at: record.at, ..first_record(mark) };
    }
    touch_database(directory)?;
    let state = match found {
        Some(_) if loss.is_none() => StateFile::open(directory).map_err(failed)?,
        _ => Some(StateFile::create(directory, record).map_err(failed)?),
    };
    let mut state = state.ok_or(OpenError::Loss(Loss::StateDamaged))?;
    if state.record.log == WalState::Stopped {
        // From here on there may be a log.
        state
            .write(StateRecord { log: WalState::Unknown, ..state.record })
            .and_then(|()| state.sync())
            .map_err(failed)?;
    }
    let last_commit = found.map(|record| record.at).filter(|at| *at > Timestamp::EPOCH);
    Ok(Inspected { state, last_commit })
}

fn first_record(mark: u32) -> StateRecord {
    StateRecord {
        incarnation: 1,
        log: WalState::Unknown,
        mark,
        checkpointed: mark,
        copied: 0,
        next_seq: 1,
        at: Timestamp::EPOCH,
    }
}

/// Keeps a copy of what is damaged, and takes a log out of the way that SQLite must not use. Names what it has kept.
fn set_aside(directory: &Path, survey: &Survey, loss: &Loss, incarnation: u32) -> io::Result<Vec<String>> {
    let mut kept = Vec::new();
    kept.extend(keep(&state_path(directory), incarnation, false)?);
    if survey.has_log() {
        kept.extend(keep(&wal_path(directory), incarnation, !is_usable(survey, loss))?);
    }
    if matches!(loss, Loss::DatabaseOlder { .. }) {
        kept.extend(keep(&database_path(directory), incarnation, false)?);
    }
    fs::File::open(directory)?.sync_all()?;
    Ok(kept)
}

/// Copies or moves a file, if it is there, to a name that tells what it is. Gives that name.
pub(super) fn keep(path: &Path, incarnation: u32, moves: bool) -> io::Result<Option<String>> {
    if !path.exists() {
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut free = (1_u32..).map(|count| format!("{name}.lost-{incarnation}-{count}"));
    let Some(name) = free.find(|name| !path.with_file_name(name).exists()) else {
        return Ok(None);
    };
    match moves {
        true => fs::rename(path, path.with_file_name(&name))?,
        false => fs::copy(path, path.with_file_name(&name)).map(|_| ())?,
    }
    Ok(Some(name))
}

/// A state file for a database that was rebuilt from the readable rows of the previous one.
pub(super) fn begin_anew(directory: &Path, before: StateRecord) -> io::Result<StateFile> {
    let incarnation = before.incarnation.saturating_add(1);
    StateFile::create(
        directory,
        StateRecord { incarnation, next_seq: before.next_seq, at: before.at, ..first_record(0) },
    )
}

/// May SQLite use the sound beginning of the log? Not if it belongs to another database file or another time, and not if a
/// checkpoint has already brought the file further than this beginning.
fn is_usable(survey: &Survey, loss: &Loss) -> bool {
    let StateFound::Found(record) = survey.state else {
        return !matches!(loss, Loss::DatabaseMissing { .. } | Loss::LogHeaderDamaged);
    };
    let is_checkpointed = record.checkpointed == record.mark;
    match loss {
        Loss::LogCut { found, .. } => *found >= record.copied || !is_checkpointed,
        Loss::LogBroken { .. } => true,
        Loss::StateOlder { .. } | Loss::StateDamaged | Loss::StateMissing | Loss::NumbersMissing { .. } => true,
        Loss::DatabaseMissing { .. }
        | Loss::DatabaseOlder { .. }
        | Loss::LogMissing { .. }
        | Loss::LogHeaderDamaged
        | Loss::LogForeign
        | Loss::LogAfterStop => false,
    }
}

/// Copies what the log holds into the file and starts the log over, before anybody is answered. After a failed sync the
/// kernel may go on showing pages that never reached the disk; commits appended behind such pages would be lost with
/// them. Copying writes and syncs them again. Then commits the first mark of this run, so that there is a log from here on.
pub(super) fn settle(connection: &Connection, tracker: &mut WalTracker, directory: &Path) -> Result<(), OpenError> {
    let failed = |source: io::Error| OpenError::Directory { directory: directory.to_owned(), source };
    let has_log = fs::metadata(wal_path(directory)).is_ok_and(|log| log.len() > 0);
    if has_log {
        tracker.advance_mark(connection)?;
        tracker.will_empty().map_err(failed)?;
    }
    if has_log && tracker.is_current() {
        let patience: Duration =
            connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).map(Duration::from_millis)?;
        connection.busy_timeout(SETTLE_MAX)?;
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        connection.busy_timeout(patience)?;
        match busy {
            Ok(false) => tracker.has_emptied().map_err(failed)?,
            Ok(true) => return Err(OpenError::Busy),
            // On a full disk the log stays as it is; outcomes can still be taken.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let before = tracker.record();
    if tracker.advance_mark(connection)? {
        tracker.committed(before.next_seq, before.at).map_err(failed)?;
    }
    Ok(())
}
