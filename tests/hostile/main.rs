//! The server under attack, on real sockets: slow bodies, slow batches, floods of polls, ambiguous heads,
//! readers that do not read, publishers that hang up. Beside each attack
//! a tenant on an address of its own works all the time, and must not be refused or slowed down. `OUTLAST_SOAK=1` runs the
//! attacks at ten times the number of connections that once sufficed.

mod arena;
mod attack;
mod victim;

mod bodies;
mod connections;
mod hang_ups;
mod heads;
mod polls;
mod readers;
