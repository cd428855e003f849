//! The simulator: the real engine on the model store, in virtual time, under a seeded plan of faults. Publishers and
//! workers do what clients do, an operator kills and restarts the process, and after every step of the store a judge looks
//! at everything that is remembered. `push` is the
//! same with queues that deliver; `engine` holds the cases that need one exact order of events, `nodes` those of two
//! nodes on one store.
//!
//! `OUTLAST_SEED=n` repeats one run; `OUTLAST_SOAK=1` makes many more.

mod faults;
mod judge;
mod log;
mod ledger;
mod outside;
mod server;
mod publisher;
mod worker;
mod operator;
mod run;
mod planted;
mod push;
mod engine;
mod nodes;

use outlast_tests::chance::volume;
use outlast_tests::seeds;

use planted::Plant;

const SEEDS: usize = 2000;
const SEEDS_IN_SOAK: usize = 1_000_000;

/// I-09, I-14, I-15, I-16, I-17, I-18, I-24.
#[test]
fn the_promises_hold_under_faults() {
    let run = |seed| run::check(Plant::Nothing, seed).map(drop);
    seeds::all_hold(volume(SEEDS, SEEDS_IN_SOAK), run);
}

/// Without this a printed seed would be worth nothing.
#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..=20 {
        assert_eq!(run::check(Plant::Nothing, seed), run::check(Plant::Nothing, seed));
    }
}
