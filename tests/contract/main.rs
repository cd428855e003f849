//! The contract of a store: what every engine must do, case by case, and DIFF, which gives random sequences of calls to
//! the model and to a real engine and compares every answer and everything they remember.

mod backend;
mod fixture;
mod dump;

#[macro_use]
mod cases;

mod diff;
mod damage;
mod damaged_bytes;
mod violations;
mod busy;
mod many_inbound_events;
mod peer_bus;
mod blobs;
mod plans;
mod schema;
mod upgrade;

contract!(model, crate::backend::Model);
contract!(sqlite, crate::backend::Sqlite, diff);
contract!(postgres, crate::backend::Postgres, diff);
