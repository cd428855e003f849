//! JobIdCodec without an index: the variable bits of a job's UUIDv7 carry its row number, permuted by a key of the store, so
//! that an id leads to its row by arithmetic. The other bits are a check; an id is ours only if making it again from the
//! row gives the same. The permutation hides how many jobs there are; it protects nothing.

use outlast_core::{JobId, NamespaceId, QueueId, Timestamp};
use sha2::{Digest, Sha256};

const HALF_BITS: u32 = 31;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
const ROUNDS: u64 = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct JobIdCodec {
    secret: u64,
}

impl JobIdCodec {
    pub(crate) fn new(secret: i64) -> JobIdCodec {
        JobIdCodec { secret: secret.cast_unsigned() }
    }

    pub(crate) fn id(&self, seq: i64, created_at: Timestamp) -> JobId {
        let row = seq.cast_unsigned();
        let check = self.mix(row ^ created_at.as_millis().cast_unsigned().rotate_left(20), ROUNDS) & 0xfff;
        JobId::new(created_at, u128::from(check) << 62 | u128::from(self.permute(row)))
    }

    /// The row an id would have; compare the id made from that row before believing it.
    pub(crate) fn seq(&self, id: JobId) -> i64 {
        let low = u64::try_from(id.variable() & 0x3fff_ffff_ffff_ffff).unwrap_or(0);
        self.restore(low).cast_signed()
    }

    /// Did this store make the id? Rejects all but one in four thousand foreign ids.
    pub(crate) fn is_ours(&self, id: JobId) -> bool {
        let created_at = i64::try_from(id.as_u128() >> 80).map(Timestamp::from_millis).unwrap_or_default();
        self.id(self.seq(id), created_at) == id
    }

    /// The hash of an idempotency key. Keyed, so that a client cannot choose keys that collide.
    pub(crate) fn key_hash(&self, queue: QueueId, key: &str) -> i64 {
        self.hash(queue.0, key)
    }

    /// The hash a provider's id of an event is found by.
    pub(crate) fn event_key_hash(&self, namespace: NamespaceId, source: &str, key: &str) -> i64 {
        self.hash(namespace.0, &format!("{source}\0{key}"))
    }

    /// The hash a label is found by.
    pub(crate) fn label_hash(&self, label: &str) -> i64 {
        self.hash(u32::MAX, label)
    }

    fn hash(&self, domain: u32, text: &str) -> i64 {
        let mut digest = Sha256::new();
        digest.update(self.secret.to_le_bytes());
        digest.update(domain.to_le_bytes());
        digest.update(text.as_bytes());
        let bytes: [u8; 32] = digest.finalize().into();
        let (head, _) = bytes.split_first_chunk::<8>().expect("a digest has 32 bytes");
        i64::from_le_bytes(*head)
    }

    /// A Feistel network over 62 bits: a bijection whatever the round function.
    fn permute(&self, row: u64) -> u64 {
        let (mut left, mut right) = (row >> HALF_BITS & HALF_MASK, row & HALF_MASK);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(right, round) & HALF_MASK);
        }
        left << HALF_BITS | right
    }

    fn restore(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> HALF_BITS & HALF_MASK, value & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(left, round) & HALF_MASK, left);
        }
        left << HALF_BITS | right
    }

    /// The finaliser of splitmix64, keyed.
    fn mix(&self, value: u64, round: u64) -> u64 {
        let mut z = (value ^ self.secret).wrapping_add((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_row() {
        let ids = JobIdCodec::new(-77);
        let at = Timestamp::from_millis(1_763_238_999_042);

        for seq in [1, 2, 3, 1_000_000, i64::from(u32::MAX), 1 << 40, (1 << 62) - 1] {
            assert_eq!(ids.seq(ids.id(seq, at)), seq);
        }
    }

    #[test]
    fn neighbours_do_not_look_alike() {
        let ids = JobIdCodec::new(42);
        let at = Timestamp::EPOCH;

        let distance = (ids.id(1, at).variable() ^ ids.id(2, at).variable()).count_ones();

        assert!(distance > 15, "{distance}");
    }
}
