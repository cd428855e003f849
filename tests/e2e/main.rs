//! Black box over the real binary: each test starts its own server on its own directory and speaks HTTP to it.
//! The rigs (kill, power, disk, sync_error) have a negative control or a proof that the fault really struck.

mod accounting;
mod api;
mod cases;
mod raw;
mod scene;

mod kill;
mod power;

mod disk;
mod sync_error;

mod lock;

mod cut;
mod keys_race;

mod leases;
mod replay;
mod simple;

mod examples;

mod authority;
mod bad_input;
mod fuzz;
mod openapi;

mod graceful;
mod http_edges;
mod overload;

mod cli;
