//! Options of a store on PostgreSQL, and errors of opening it.

use std::sync::Arc;

use outlast_core::{Clock, Entropy};

use crate::outbox::Compose;

/// Whether statements are prepared under a name, once per connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Only with a direct connection to the server. A pooler that changes the connection under a session would run a
    /// statement that another client gave the same name.
    Auto,
    /// Also through a pooler: it must keep track of prepared statements.
    On,
    Off,
}

pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…`
    pub url: String,
    /// Lease tokens come from here: must be cryptographic in production.
    pub entropy: Box<dyn Entropy + Send>,
    pub compose: Compose,
    /// Time for tests. In production time is the database's own.
    pub clock: Option<Arc<dyn Clock>>,
    /// Connections this node opens at most.
    pub connections: usize,
    /// Writes that may wait for a connection; more are refused as overload.
    pub waiting_writes_max: usize,
    /// Waiting jobs one namespace may hold.
    pub namespace_waiting_max: u64,
    pub prepared: Prepared,
    /// Accept a server that may lose what it has confirmed.
    pub allow_unsafe: bool,
}

/// Fewer cannot serve: the writers alone would use all of them.
pub(super) const CONNECTIONS_MIN: usize = 8;

impl Options {
    pub fn new(url: &str, entropy: Box<dyn Entropy + Send>, compose: Compose) -> Options {
        Options {
            url: url.to_owned(),
            entropy,
            compose,
            clock: None,
            connections: 16,
            waiting_writes_max: 16_384,
            namespace_waiting_max: 10_000_000,
            prepared: Prepared::Auto,
            allow_unsafe: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the database URL cannot be read: {0}")]
    Url(String),
    #[error("the database at {place} cannot be reached")]
    Unreachable {
        place: String,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error("the database at {place} did not answer within {seconds} s")]
    Silent { place: String, seconds: u64 },
    #[error("PostgreSQL {found} is too old; {known} or newer is needed")]
    TooOld { found: String, known: u32 },
    #[error(
        "the database runs with {settings}: it may lose what it has confirmed. Turn it on, or accept the loss with \
         store.allow_unsafe_database: true"
    )]
    Unsafe { settings: String },
    #[error("the store was written by a newer version (schema {found}, this binary knows {known}); use that version")]
    Newer { found: u32, known: u32 },
    #[error("a certificate cannot be used: {0}")]
    Certificate(String),
    #[error("the store cannot be opened")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("the store cannot be opened: {0}")]
    Store(#[from] crate::Error),
}
