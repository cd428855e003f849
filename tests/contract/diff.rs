//! DIFF: one random sequence of calls on the model and on a real engine. Every answer and, again and again, everything
//! remembered must be equal, also after closing and opening, and the engine's memory must equal its disk.
//!
//! `OUTLAST_SEED=n` repeats one sequence; `OUTLAST_SOAK=1` runs many more.

mod plan;
mod draw;
mod names;
mod side;
mod twin;
mod mutants;

use outlast_tests::chance::volume;
use outlast_tests::model::Rules;
use outlast_tests::seeds;

use crate::backend::Backend;

const SEQUENCES_IN_SOAK: usize = 200_000;

/// Compares an engine with the model over all seeds, or the one that is to be repeated.
pub fn run<B: Backend + 'static>() {
    let run = |seed| twin::compare::<B>(Rules::default(), seed);
    let outcome = match seeds::only() {
        Some(seed) => run(seed),
        None => seeds::run_all(seeds::range(volume(B::sequences(), SEQUENCES_IN_SOAK)), run),
    };
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
}
