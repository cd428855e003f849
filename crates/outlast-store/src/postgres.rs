//! The engine for several nodes: one PostgreSQL-compatible database is the engine of record, and a node keeps nothing but
//! hints in memory. Transactions load under row locks, ask core, and write in batches; the calls that come in at the same
//! time share a transaction.

mod options;
mod connect;
mod findings;
mod clock;
mod migrate;
mod session;
mod shared;
mod life;
mod transact;
mod packed;
mod rows;
mod registry;
mod quota;
mod marks;
mod kept;
mod write;
mod transaction;
mod columns;
mod batch;
mod lane;
mod writer;
mod publish;
mod key_holders;
mod arrivals;
mod inbox;
mod outbox;
mod line;
mod claim;
mod alarms;
mod apply;
mod attend;
mod queues;
mod keys;
mod operations;
mod read;
mod dead_letters;
mod verify;
mod store;

pub use findings::{Findings, inspect};
pub use migrate::{MIGRATIONS, SCHEMA};
pub use options::{OpenError, Options, Prepared};
pub use store::PostgresStore;
