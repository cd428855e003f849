//! Sealing of secrets before they are stored: XChaCha20-Poly1305 with a random nonce. What is sealed names its key and is
//! bound to its place, so that it opens with that key, at that place, or not at all.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use outlast_core::Entropy;
use sha2::{Digest, Sha256};

pub const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// The form of what is sealed; another one would have another number.
const FORM: u8 = 1;

/// The keys of this installation. The first one seals, all of them open.
pub struct Seal(Vec<Key>);

struct Key {
    fingerprint: i64,
    cipher: XChaCha20Poly1305,
}

/// Why something stays sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    #[error("it was sealed with another key ({})", name(*.0))]
    OtherKey(i64),
    #[error("it was changed, or moved here from another place")]
    Altered,
}

/// How a key is called in messages.
pub fn name(fingerprint: i64) -> String {
    format!("{:016x}", fingerprint.cast_unsigned())
}

impl Seal {
    /// `first` seals; `others` are older keys that still open.
    pub fn new(first: &[u8; KEY_BYTES], others: &[[u8; KEY_BYTES]]) -> Seal {
        Seal(std::iter::once(first).chain(others).map(Key::new).collect())
    }

    /// Names the key that seals; says nothing about it.
    pub fn fingerprint(&self) -> i64 {
        self.0.first().map_or(0, |key| key.fingerprint)
    }

    /// The older keys, which open and do not seal.
    pub fn older(&self) -> Vec<i64> {
        self.0.iter().skip(1).map(|key| key.fingerprint).collect()
    }

    pub fn knows(&self, fingerprint: i64) -> bool {
        self.0.iter().any(|key| key.fingerprint == fingerprint)
    }

    /// The key that `sealed` asks for.
    pub fn key_of(sealed: &[u8]) -> Option<i64> {
        let (form, rest) = sealed.split_first()?;
        let bytes = rest.first_chunk::<8>().filter(|_| *form == FORM)?;
        Some(i64::from_be_bytes(*bytes))
    }

    pub fn seal(&self, plain: &[u8], place: &[u8], entropy: &mut dyn Entropy) -> Vec<u8> {
        let Some(key) = self.0.first() else {
            return Vec::new();
        };
        let mut nonce = [0; NONCE_BYTES];
        for chunk in nonce.chunks_mut(8) {
            chunk.copy_from_slice(&entropy.next_u64().to_le_bytes());
        }
        let payload = Payload { msg: plain, aad: place };
        let sealed =
            key.cipher.encrypt(&XNonce::from(nonce), payload).expect("secrets are far below the cipher's limit");
        let mut bytes = vec![FORM];
        bytes.extend_from_slice(&key.fingerprint.to_be_bytes());
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        bytes
    }

    pub fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, Unopened> {
        let fingerprint = Seal::key_of(sealed).ok_or(Unopened::Altered)?;
        let key = self.0.iter().find(|key| key.fingerprint == fingerprint).ok_or(Unopened::OtherKey(fingerprint))?;
        let rest = sealed.get(9..).ok_or(Unopened::Altered)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Unopened::Altered)?;
        let payload = Payload { msg: text, aad: place };
        key.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Unopened::Altered)
    }
}

impl Key {
    fn new(bytes: &[u8; KEY_BYTES]) -> Key {
        let digest = Sha256::new().chain_update(b"outlast sealing key").chain_update(bytes).finalize();
        let fingerprint = digest.first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        Key { fingerprint, cipher: XChaCha20Poly1305::new(&(*bytes).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Counting;

    #[test]
    fn what_is_sealed_opens_with_its_key_at_its_place() {
        let (old, new) = ([1; 32], [2; 32]);
        let sealed = Seal::new(&old, &[]).seal(b"whsec_x", b"1/mail", &mut Counting(0));

        assert_eq!(Seal::new(&old, &[]).open(&sealed, b"1/mail").unwrap(), b"whsec_x");
        assert_eq!(Seal::new(&new, &[old]).open(&sealed, b"1/mail").unwrap(), b"whsec_x");
        assert!(!sealed.windows(5).any(|bytes| bytes == b"whsec"));
    }

    /// T11: swapped between rows or tenants, changed in any bit, or cut: it does not open.
    #[test]
    fn what_was_moved_changed_or_cut_does_not_open() {
        let seal = Seal::new(&[1; 32], &[]);
        let sealed = seal.seal(b"whsec_x", b"1/mail", &mut Counting(0));

        assert_eq!(seal.open(&sealed, b"2/mail"), Err(Unopened::Altered));
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(seal.open(&changed, b"1/mail").is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(seal.open(&sealed[..length], b"1/mail").is_err(), "cut to {length}");
        }
        let other = Seal::new(&[3; 32], &[]);
        assert_eq!(other.open(&sealed, b"1/mail"), Err(Unopened::OtherKey(seal.fingerprint())));
    }

    #[test]
    fn the_same_secret_is_sealed_differently_each_time() {
        let (seal, mut entropy) = (Seal::new(&[1; 32], &[]), Counting(0));

        assert_ne!(seal.seal(b"x", b"p", &mut entropy), seal.seal(b"x", b"p", &mut entropy));
    }
}
