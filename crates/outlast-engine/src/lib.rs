//! The flow of a job: publish, claim, outcome, and the loops that act when time passes. The only crate that spawns
//! loops; it talks to storage through `JobStore` and to time and chance through its ports.

pub mod ports;
pub mod sign;
pub mod inbound;
pub mod engine;
mod supervisor;
pub mod notifier;
mod log_tail;
mod progress_feed;
pub mod queue_feed;
mod detached;
mod peers;
pub mod publish;
pub mod ingest;
pub mod claim;
pub mod outcome;
mod progress_cache;
pub mod work;
pub mod result;
pub mod object_read;
mod object_gc;
pub mod single_flight;
pub mod long_poll;
pub mod reads;
pub mod stream;
mod pause_detector;
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
pub mod counters;
pub mod egress;

pub use engine::Engine;
