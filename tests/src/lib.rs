//! Toolbox of the suites. In virtual time: clocks and chance that repeat, and the model store. The rigs for the real
//! binary: one or several nodes with the PostgreSQL and Redis they need, an HTTP client, faults (kill, power cut, full disk,
//! failing syscalls, cut connections), a recorded workload, and the checker that judges its history.

pub mod chance;
pub mod stopwatch;
pub mod wait;

pub mod ports;
pub mod seeds;
pub mod model;
pub mod no_egress;

pub mod daemon;
pub mod postgres;
pub mod redis;
pub mod pgbouncer;
pub mod nginx;
pub mod s3;

pub mod http;
pub mod sse;
pub mod ws;
pub mod nodes;
pub mod objects;
pub mod server;

pub mod image;
pub mod proxy;
pub mod responder;
pub mod receiver;
pub mod dns;
pub mod certificates;
pub mod sink;
pub mod round_robin;
pub mod fault;
pub mod violation;
pub mod trace;

pub mod history;
pub mod deliveries;
pub mod workload;
