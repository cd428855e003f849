//! Which hand-out something was said in, for places that others may read: a lease is a secret of its holder and stays here.

use outlast_core::Lease;
use sha2::{Digest, Sha256};

/// Names a lease without giving it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseDigest(u128);

impl LeaseDigest {
    pub fn of(lease: Lease) -> LeaseDigest {
        let digest = Sha256::digest(lease.as_u128().to_le_bytes());
        LeaseDigest(digest.first_chunk().map_or(0, |half| u128::from_le_bytes(*half)))
    }

    pub fn from_u128(bits: u128) -> LeaseDigest {
        LeaseDigest(bits)
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_outs_are_told_apart_and_hold_nothing_of_their_lease() {
        let (one, other) = (Lease::from_u128(0x0123_4567), Lease::from_u128(0x0123_4568));

        assert_eq!(LeaseDigest::of(one), LeaseDigest::of(one));
        assert_ne!(LeaseDigest::of(one), LeaseDigest::of(other));
        assert_ne!(LeaseDigest::of(one).as_u128(), one.as_u128());
    }
}
