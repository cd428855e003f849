//! The engine for several nodes: one PostgreSQL-compatible database is the engine of record, and a node keeps nothing but
//! hints in memory. Transactions load under row locks, ask core, and write in batches; the calls that come in at the same
//! time share a transaction.

mod options;
mod connect;
mod server_check;
mod clock;
mod migrate;
mod session;
mod shared;
mod crash_epoch;
mod transact;
mod state_codec;
mod rows;
mod queue_cache;
mod quota;
mod claim_cursor;
mod artifacts;
mod unit_of_work;
mod transaction;
mod columns;
mod batch;
mod group_commit;
mod write_handler;
mod publish;
mod key_holders;
mod stored_sections;
mod inbound_events;
mod ingest_handler;
mod outbox;
mod claim_scan;
mod claim;
mod alarms;
mod apply;
mod outage_detector;
mod queues;
mod keys;
mod operations;
mod read;
mod dead_letters;
mod verify;
mod store;

pub use migrate::{MIGRATIONS, SCHEMA};
pub use options::{OpenError, Options, Prepared};
pub use server_check::{ServerReport, inspect};
pub use store::PostgresStore;
