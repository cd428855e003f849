//! The secret of an endpoint: a text that both sides know, and the two keys made from it. Shown to nobody by accident:
//! `Debug` and `Display` hide it, and only [`Secret::expose`] gives it away.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit};
use outlast_core::Entropy;
use sha2::Sha256;

/// Before the base64 of a secret of Standard Webhooks.
const MARK: &str = "whsec_";
/// What Standard Webhooks asks for, in bytes before base64.
const KEY_BYTES_MIN: usize = 24;
const KEY_BYTES_MAX: usize = 64;
/// Bounds of a secret that another service has chosen, in characters.
const TEXT_LENGTH_MIN: usize = 16;
const TEXT_LENGTH_MAX: usize = 255;

/// Refused as a secret. Says what a secret must be, and nothing of what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("after \"whsec_\" there must be the base64 (with padding) of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes")]
    Base64,
    #[error(
        "a signing secret is \"whsec_\" and base64, or {TEXT_LENGTH_MIN} to {TEXT_LENGTH_MAX} visible ASCII characters"
    )]
    Text,
}

/// One live secret. The state of the HMAC after its key is kept, so that a signature costs no second setting up.
#[derive(Clone)]
pub struct Secret {
    text: String,
    standard: Hmac<Sha256>,
    plain: Hmac<Sha256>,
}

impl Secret {
    /// `whsec_` and base64, or any other text of a fair length: a receiver written for another service keeps its secret.
    /// The key of Standard Webhooks is what the base64 stands for, else the text itself; the key of the plain header is
    /// always the whole text.
    pub fn from_text(text: &str) -> Result<Secret, Malformed> {
        let key = match text.strip_prefix(MARK) {
            Some(encoded) => {
                let key = STANDARD.decode(encoded).map_err(|_| Malformed::Base64)?;
                if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
                    return Err(Malformed::Base64);
                }
                key
            }
            None => {
                let is_fair = (TEXT_LENGTH_MIN..=TEXT_LENGTH_MAX).contains(&text.len());
                if !is_fair || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return Err(Malformed::Text);
                }
                text.as_bytes().to_vec()
            }
        };
        Ok(Secret { text: text.to_owned(), standard: keyed(&key), plain: keyed(text.as_bytes()) })
    }

    /// A fresh one of 32 random bytes. Production must pass a cryptographic source.
    pub fn generate(entropy: &mut dyn Entropy) -> Secret {
        let mut key = Vec::with_capacity(32);
        for _ in 0..4 {
            key.extend_from_slice(&entropy.next_u64().to_le_bytes());
        }
        let text = format!("{MARK}{}", STANDARD.encode(&key));
        Secret { standard: keyed(&key), plain: keyed(text.as_bytes()), text }
    }

    /// The text itself, to be sealed and stored, or shown once to who made it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// An HMAC that has taken the key of Standard Webhooks and nothing else.
    pub(super) fn standard(&self) -> Hmac<Sha256> {
        self.standard.clone()
    }

    /// An HMAC that has taken the key of the plain header and nothing else.
    pub(super) fn plain(&self) -> Hmac<Sha256> {
        self.plain.clone()
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("hidden")
    }
}
