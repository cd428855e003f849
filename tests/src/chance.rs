//! Seeded chance for the rigs, and the two settings they read from the environment: the seed and the volume.
//! A rig prints its seed, so that the same plan can be run again with `OUTLAST_SEED`.

use std::time::{SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub struct Chance {
    generator: ChaCha8Rng,
}

impl Chance {
    pub fn seeded(seed: u64) -> Chance {
        Chance { generator: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.generator.next_u64() % bound
    }

    /// A number in `first..=last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Takes one element out, in no particular order.
    pub fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let index = self.below(from.len() as u64) as usize;
        Some(from.swap_remove(index))
    }

    /// `length` characters of `a-z0-9`.
    pub fn text(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..length).map(|_| LETTERS[self.below(LETTERS.len() as u64) as usize] as char).collect()
    }
}

/// The seed of a rig: `OUTLAST_SEED`, or the clock. Printed, because a failure is repeated with it.
pub fn seed(rig: &str) -> u64 {
    let seed = match std::env::var("OUTLAST_SEED") {
        Ok(text) => text.parse().expect("OUTLAST_SEED is a whole number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_nanos() as u64,
    };
    println!("{rig}: OUTLAST_SEED={seed}");
    seed
}

/// The volume of a rig: seconds in `make test`, the figures of the promises in `make soak`.
pub fn volume(in_test: usize, in_soak: usize) -> usize {
    if std::env::var("OUTLAST_SOAK").is_ok_and(|value| value == "1") {
        return in_soak;
    }
    in_test
}
