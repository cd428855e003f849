//! The embedded engine: one SQLite file, one writer thread with group commit, read-only connections beside it, and the
//! scheduling indexes in memory. One process per data directory.

mod options;
mod directory;
mod state_file;
mod mark;
mod wal;
mod survey;
mod wal_index;
mod wal_tracker;
mod opening;
mod file_watch;
mod clock;
mod migrate;
mod index;
mod long_text;
mod rows;
mod sealed;
mod faults;
mod hot;
mod cache;
mod registry;
mod reserve;
mod writer;
mod write;
mod scan;
mod inspect;
mod publish;
mod arrivals;
mod arrival_keys;
mod hints;
mod claim;
mod kept;
mod apply;
mod queues;
mod keys;
mod operations;
mod read;
mod store;

pub use inspect::inspect;
pub use mark::DatabaseFile;
pub use migrate::{MIGRATIONS, SCHEMA, migrated_schema};
pub use options::{Durability, OpenError, Options};
pub use state_file::{Log, StateFound, StateRecord, WalPosition};
pub use store::SqliteStore;
pub use survey::{Loss, Survey};
pub use wal::WalScan;
