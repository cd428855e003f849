//! One file per command or noun. Each parses its flags, talks to the server or the disk, and prints.

pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod defaults;
pub(crate) mod doctor;
pub(crate) mod filter;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod queues;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod sources;
pub(crate) mod start;
pub(crate) mod reload;
pub(crate) mod tail;
pub(crate) mod validate;
pub(crate) mod worker;

mod argument;
mod operation;
mod settings;
mod stop;

use crate::client::{Client, Remote};
use crate::config::Environment;
use crate::failure::Failure;

/// What a command that talks to a server works with.
pub(crate) struct Session {
    pub client: Client,
    /// Print the server's JSON instead of tables.
    pub is_json: bool,
}

impl Session {
    pub(crate) fn open(remote: &Remote, environment: &Environment) -> Result<Session, Failure> {
        Ok(Session { client: Client::new(remote, environment)?, is_json: remote.json })
    }
}
