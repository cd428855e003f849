//! Storage: the [`JobStore`] trait of batch verbs and the engines behind it.
//!
//! The only crate that knows SQL. A store loads under a lock, asks core's `decide`, and writes what it computed; no
//! policy lives here.

pub mod jobs;
pub mod alarms;
pub mod job_detail;
pub mod dead_letters;
pub mod inbound_events;
pub mod queues;
pub mod keys;
pub mod operations;
pub mod error;
pub mod damage;
pub mod histogram;
mod checksum;
pub mod checked_decide;
mod transition;
mod publish;
pub mod outbox;
pub mod codec;
pub mod artifacts;
pub mod page;
pub mod handout;
pub mod peer_bus;
pub mod blobs;
pub mod sqlite;
pub mod postgres;

pub use error::Error;
pub use jobs::JobStore;
