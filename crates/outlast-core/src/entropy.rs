//! Randomness as an argument: production passes a cryptographic generator, tests a seeded one.

use crate::ids::Lease;

/// A stream of random bits. Lease tokens are drawn from it, so production must pass a cryptographic source.
pub trait Entropy {
    fn next_u64(&mut self) -> u64;
}

/// A fresh lease token.
pub fn lease(entropy: &mut dyn Entropy) -> Lease {
    let high = u128::from(entropy.next_u64());
    Lease::from_u128(high << 64 | u128::from(entropy.next_u64()))
}

/// A number in `0.0..1.0`, from the upper 53 bits.
pub fn unit(entropy: &mut dyn Entropy) -> f64 {
    let bits = entropy.next_u64() >> 11;
    // 53 bits fit an f64 exactly.
    bits as f64 / (1u64 << 53) as f64
}
