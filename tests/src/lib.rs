//! Toolbox of the suites. In virtual time: clocks and chance that repeat, and the model store. The rigs for the real
//! binary: a server process, an HTTP client, faults (kill, power cut, full disk, failing syscalls, cut replies), a
//! recorded workload, and the checker that judges its history.

pub mod chance;
pub mod wait;

pub mod ports;
pub mod seeds;
pub mod model;

pub mod http;
pub mod server;

pub mod image;
pub mod proxy;
pub mod trace;

pub mod history;
pub mod workload;
