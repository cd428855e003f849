//! HTTP in: every URL, the wire format, keys and scopes. The only crate that knows axum and our URLs. A handler parses,
//! calls one engine function, and answers.

pub mod routes;
pub mod server;
pub mod listen;
pub mod limits;
mod budget;
mod budgets;
pub mod error;
pub mod schema;
pub mod fields;
pub mod settings;
pub mod openapi;

mod answers;
mod auth;
mod failed_keys;
mod cors;
mod body;
mod read_deadline;
mod request;
mod wire;
mod publish;
pub mod callback;
mod receive;
mod workers;
mod outcome;
mod work;
mod checkpoint;
mod results;
mod objects;
mod jobs;
mod view;
mod stream;
mod ws;
mod queues;
mod dead_letters;
mod operations;
mod keys;
mod token;
mod simple;
mod health;
mod welcome;
pub mod sources;
pub mod reload;
pub mod dev_clock;
mod events;
mod batch;
mod exposition;
mod metrics;

pub use limits::Limits;
pub use server::Api;
