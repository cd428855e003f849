//! Tests of the embedded engine only: a data directory with its lock, its files and a disk below that fails, runs full
//! or loses power. A run on another engine leaves this module out by name (`--skip embedded::`).

mod answer_first;
mod power;
mod push_kill;
mod push_steps;
mod push_stop;
mod push_fairness;

mod disk;
mod objects;
mod sync_error;

mod lock;
mod panicking_loop;
mod lost_files;
mod taken_files;
mod killed_at_steps;
mod clock_steps;

mod docs;
mod doctor;
mod damaged_rows;
mod first_key;
mod inbound;
mod secret_key;
pub(crate) mod backup;
mod dist;
