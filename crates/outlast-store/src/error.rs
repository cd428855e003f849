//! Why a store could not do what it was asked. Refusals by core's rules are not errors; they are answers.

/// All variants but `Indeterminate` mean: nothing was stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Too much is waiting for the disk; try again later.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The namespace holds as many waiting jobs as it may.
    #[error("the namespace has {waiting_max} waiting jobs, which is its limit")]
    QuotaReached { waiting_max: u64 },
    /// The disk is full: nothing new is taken, outcomes still are.
    #[error("the disk is full")]
    DiskFull,
    /// The database cannot be reached, or could not be for too long.
    #[error("the database cannot be reached; nothing was stored")]
    Unavailable,
    /// The store has stopped after a failed write or sync, or is shutting down.
    #[error("the store has stopped")]
    Stopped,
    /// The store stopped while this write was under way: it may or may not have happened.
    #[error("the store stopped before the write was confirmed")]
    Indeterminate,
    /// The stored bytes do not make sense; never served, never "repaired".
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// A read failed.
    #[error("the store could not be read: {0}")]
    Unreadable(String),
}

impl Error {
    /// The damaged thing, without the word for it.
    pub(crate) fn what(&self) -> String {
        match self {
            Error::Corrupt(what) => what.clone(),
            other => other.to_string(),
        }
    }
}
