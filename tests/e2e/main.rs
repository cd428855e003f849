//! Black box over the real binary: each test starts its own server on something fresh and speaks HTTP to it. The engine is
//! that of `OUTLAST_ENGINE`; `embedded` and `cluster` have their engine in their name and are run once. The rigs have a
//! negative control or a proof that the fault really struck.

mod accounting;
mod api;
mod cases;
mod programs;
mod push_load;
mod raw;
mod scene;

mod kill;
mod embedded;
mod cluster;

mod cut;
mod keys_race;

mod leases;
mod cancel;
mod races;
mod time_limits;
mod polls;
mod jobs_wait;
mod receive_several;
mod handout_fields;
mod workers;
mod manual_clock;
mod outages;
mod zombies;
mod work;
mod replay;
mod set_aside;
mod usage;
mod simple;
mod streams;
mod tokens;
mod sockets;
mod results;
mod answers;
mod metrics;

mod push;
mod inbound;

mod signatures;
mod signed_traffic;
mod listen;
mod worker;
mod examples;
mod consumers;

mod authority;
mod bad_input;
mod fuzz;
mod openapi;

mod graceful;
mod http_edges;
mod welcome;
mod overload;

mod cli;
mod cli_local;
mod cli_queues;
mod cli_sources;
mod cli_terminal;
