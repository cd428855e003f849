//! The flow of a job: publish, claim, outcome, and the loops that act when time passes. The only crate that spawns
//! loops; it talks to storage through `JobStore` and to time and chance through its ports. Its verbs are in rooms
//! (`engine::Rooms`), one struct each.

pub mod ports;
pub mod engine;

pub mod jobs;
pub mod queues;
pub mod work;
pub mod objects;
pub mod feeds;
pub mod push;
pub mod inbound;
pub mod keys;
pub mod workers;
pub mod status;

mod announcer;
mod notifier;
mod alarms;
mod progress_cache;
pub mod single_flight;
mod detached;
mod lifecycle;
mod supervisor;
mod sweep;
mod rounds;
mod pause_detector;
mod peers;

pub mod counters;
pub mod queue_metrics;
pub mod random;
pub mod seal;
pub mod sign;
pub mod egress;

pub use engine::{Engine, Rooms};
