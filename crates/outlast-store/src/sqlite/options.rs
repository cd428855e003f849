//! Options of an embedded store, and errors of opening it.

use std::path::PathBuf;
use std::sync::Arc;

use outlast_core::{Clock, Entropy};

use super::faults::is_damage;
use super::survey::Loss;
use crate::outbox::Compose;

/// When an answer is given. Everything but `Full` exists so that the crash rigs can prove they notice the difference; no
/// configuration of the product reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Answer after the sync.
    Full,
    /// SQLite's `synchronous=NORMAL`: survives a kill, not a power cut.
    Normal,
    /// Answer before the commit: survives nothing.
    AnswerFirst,
}

pub struct Options {
    /// The data directory; made if it is missing.
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    /// Lease tokens come from here: must be cryptographic in production.
    pub entropy: Box<dyn Entropy + Send>,
    pub compose: Compose,
    pub durability: Durability,
    /// SQLite's page cache of the writer.
    pub page_cache_bytes: u64,
    /// Payloads and states of fresh jobs kept in memory.
    pub job_cache_bytes: u64,
    /// Writes that may wait for the disk; more are refused as overload.
    pub waiting_writes_max: usize,
    /// Waiting jobs one namespace may hold.
    pub namespace_waiting_max: u64,
    /// Space set aside so that outcomes still fit on a full disk.
    pub reserve_bytes: u64,
    /// Start although something acknowledged is missing, with what is left.
    pub accepts_loss: bool,
}

impl Options {
    pub fn new(
        directory: impl Into<PathBuf>,
        clock: Arc<dyn Clock>,
        entropy: Box<dyn Entropy + Send>,
        compose: Compose,
    ) -> Options {
        Options {
            directory: directory.into(),
            clock,
            entropy,
            compose,
            durability: Durability::Full,
            page_cache_bytes: 16 << 20,
            job_cache_bytes: 12 << 20,
            waiting_writes_max: 16_384,
            namespace_waiting_max: 10_000_000,
            reserve_bytes: 8 << 20,
            accepts_loss: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("data directory {0} is in use by another process")]
    Locked(PathBuf),
    #[error("data directory {directory} cannot be used")]
    Directory {
        directory: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "data directory {directory} belongs to user {owner} and this process runs as user {user}; run it as its owner, or \
         give the directory and its files to user {user}"
    )]
    Owner { directory: PathBuf, owner: u32, user: u32 },
    #[error("data directory {directory} can be written by other users (mode {mode:o}); run: chmod go-w {directory}")]
    Writable { directory: PathBuf, mode: u32 },
    #[error(
        "acknowledged data may be lost: {0}; nothing was changed. Put the missing files back, or restore a backup into an \
         empty directory; `outlast doctor` shows what is there. Only to go on without what is missing, start once with \
         --accept-loss"
    )]
    Loss(Loss),
    #[error("the store was written by a newer version (schema {found}, this binary knows {known}); use that version")]
    Newer { found: u32, known: u32 },
    #[error(
        "another program is reading the database file (a backup or a shell?); wait for it or stop it, then start again"
    )]
    Busy,
    #[error("the store cannot be opened")]
    Sqlite(#[source] rusqlite::Error),
    #[error(
        "the store is damaged: {0}; nothing was changed. Run `outlast doctor` to see what is damaged, then restore a backup. Only to \
         go on with what can be read, start once with --accept-loss"
    )]
    Corrupt(String),
    #[error("the store is damaged: {0}; nothing was changed, and --accept-loss cannot help: restore a backup")]
    BeyondHelp(String),
}

impl OpenError {
    /// The same for a start that already continues with the readable part.
    pub(super) fn beyond_help(self) -> OpenError {
        match self {
            OpenError::Corrupt(what) => OpenError::BeyondHelp(what),
            other => other,
        }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> OpenError {
        match is_damage(&error) {
            true => OpenError::Corrupt(error.to_string()),
            false => OpenError::Sqlite(error),
        }
    }
}
