//! Keeps the state file up to date: after every commit the position of the log, without a sync; with a sync whatever the next
//! start must not miss. The order is always: sync of the log, then the record, then the answers.

use std::io;
use std::sync::Arc;

use outlast_core::Timestamp;
use rusqlite::{Connection, ErrorCode};
use rustix::io::Errno;

use super::mark::{next, to_application_id};
use super::state_file::{StateFile, StateRecord, WalState};
use super::wal_index::WalIndex;

#[derive(Debug)]
pub(super) struct WalTracker {
    pub(super) index: Arc<WalIndex>,
    state: StateFile,
    /// False in rigs whose log is not synced either.
    syncs: bool,
    /// There was no space to write the last record. The older one is still true, as long as the log is not started over twice.
    is_behind: bool,
}

impl WalTracker {
    pub(super) fn new(index: Arc<WalIndex>, state: StateFile, syncs: bool) -> WalTracker {
        WalTracker { index, state, syncs, is_behind: false }
    }

    pub(super) fn record(&self) -> StateRecord {
        self.state.record
    }

    /// A transaction was committed and synced. Before anybody is answered.
    pub(super) fn committed(&mut self, next_seq: i64, now: Timestamp) -> io::Result<()> {
        let position = self.index.position()?;
        let before = self.record();
        let is_new_log = before.position().is_none_or(|before| before.salt != position.salt);
        let mut record = StateRecord { log: WalState::Running(position), next_seq, at: now, ..before };
        if is_new_log {
            record.copied = 0;
        }
        self.write(record)?;
        if is_new_log { self.sync() } else { Ok(()) }
    }

    /// Commits a new mark. False if there was no room for it, or a stranger holds the write lock: the old one then has to do.
    pub(super) fn advance_mark(&mut self, connection: &Connection) -> Result<bool, rusqlite::Error> {
        let mark = next(self.record().mark);
        let statement = format!("PRAGMA application_id = {}", to_application_id(mark));
        match connection.execute_batch(&statement) {
            Ok(()) => {}
            Err(error) if is_passing(&error) => {
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK")?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.state.record.mark = mark;
        Ok(true)
    }

    /// The log is about to be copied into the database file, up to its present end.
    pub(super) fn will_copy(&mut self) -> io::Result<()> {
        let position = self.index.position()?;
        let before = self.record();
        let copied = position.frames;
        self.write(StateRecord { log: WalState::Running(position), copied, ..before })?;
        self.sync()
    }

    /// All of the log is in the database file.
    pub(super) fn has_copied(&mut self) -> io::Result<()> {
        let before = self.record();
        self.write(StateRecord { checkpointed: before.mark, ..before })
    }

    /// The log is about to be copied and then emptied.
    pub(super) fn will_empty(&mut self) -> io::Result<()> {
        let position = self.index.position()?;
        let before = self.record();
        self.write(StateRecord { log: WalState::Emptying(position), copied: position.frames, ..before })?;
        self.sync()
    }

    /// The log is empty and all of it in the database; somebody will write to it soon.
    pub(super) fn has_emptied(&mut self) -> io::Result<()> {
        let before = self.record();
        self.write(StateRecord { checkpointed: before.mark, copied: 0, ..before })
    }

    /// A clean stop.
    pub(super) fn stopped(&mut self) -> io::Result<()> {
        let before = self.record();
        self.write(StateRecord { log: WalState::Stopped, checkpointed: before.mark, copied: 0, ..before })?;
        self.sync()
    }

    /// May the log be started over? Not while the state file still speaks of the log before.
    pub(super) fn is_current(&self) -> bool {
        !self.is_behind
    }

    /// A full disk is no failure: the file is overwritten in place, and where even that needs space the older record is
    /// true.
    fn write(&mut self, record: StateRecord) -> io::Result<()> {
        match self.state.write(record) {
            Err(error) if is_full(&error) => {
                if !self.is_behind {
                    tracing::warn!(%error, "the state file cannot be written; the log is not started over until it can");
                }
                self.is_behind = true;
                self.state.record = record;
                Ok(())
            }
            written => {
                self.is_behind = false;
                written
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.syncs {
            true => self.state.sync(),
            false => Ok(()),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC.raw_os_error(), Errno::DQUOT.raw_os_error()];
    error.raw_os_error().is_some_and(|code| full.contains(&code))
}

/// Errors after which the transaction is undone and everything is as before.
pub(super) fn is_passing(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy))
}
