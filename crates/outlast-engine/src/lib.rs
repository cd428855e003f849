//! The flow of a job: publish, claim, outcome, and the loops that act when time passes. The only crate that spawns
//! loops; it talks to storage through `JobStore` and to time and chance through its ports.

pub mod ports;
pub mod sign;
pub mod inbound;
pub mod engine;
mod supervisor;
pub mod wakes;
mod tail;
mod progress_feed;
pub mod boards;
mod detached;
mod others;
pub mod publish;
pub mod ingest;
pub mod claim;
pub mod outcome;
mod reports;
pub mod work;
pub mod result;
pub mod object_read;
mod object_gc;
pub mod looks;
pub mod watch;
pub mod reads;
pub mod stream;
mod outage;
mod sweep;
mod rounds;
pub mod operations;
pub mod seal;
pub mod header_values;
pub mod secrets;
pub mod queues;
pub mod push;
pub mod keys;
pub mod scope;
pub mod token;
pub mod meters;
pub mod egress;

pub use engine::Engine;
