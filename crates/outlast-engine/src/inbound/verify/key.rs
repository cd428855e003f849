//! What a secret becomes under a scheme, and how a digest is written. The state of the HMAC after its key is kept, so that
//! the text of a secret is not needed again.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::scheme::Scheme;

/// A rotation has two live secrets. Each costs a digest of the whole body per webhook.
const SECRETS_MAX: usize = 8;
/// Before the base64 of a secret of Standard Webhooks.
const MARK: &str = "whsec_";
/// What Standard Webhooks asks of a key at least, in bytes.
const STANDARD_KEY_BYTES_MIN: usize = 24;

/// Secrets are given by the provider; whether it wrote the padding is not for us to refuse.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Refused as the secrets of a source. Tells the place in the list, counted from one, and nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    #[error("there must be at least one secret")]
    Missing,
    #[error("there are more than {SECRETS_MAX} secrets")]
    TooMany,
    #[error("secret {0} is empty")]
    Empty(usize),
    #[error("secret {0} begins or ends with white space")]
    Spaced(usize),
    #[error("secret {0} has other than base64 after \"whsec_\"")]
    Base64(usize),
    #[error("secret {0} has characters that cannot stand in a header, where GitLab sends it; visible ASCII is allowed")]
    Header(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    pub fn named(name: &str) -> Option<Algorithm> {
        match name {
            "sha1" => Some(Algorithm::Sha1),
            "sha256" => Some(Algorithm::Sha256),
            "sha512" => Some(Algorithm::Sha512),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Hex,
    Base64,
}

impl Encoding {
    pub fn named(name: &str) -> Option<Encoding> {
        match name {
            "hex" => Some(Encoding::Hex),
            "base64" => Some(Encoding::Base64),
            _ => None,
        }
    }

    /// Strict: no white space, whole bytes, the padding as it must be.
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Encoding::Hex => unhex(text),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    pub(super) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Hex => hex(bytes),
            Encoding::Base64 => STANDARD.encode(bytes),
        }
    }
}

/// What is signed, in pieces that follow each other.
pub(super) type Message<'a> = Vec<Cow<'a, [u8]>>;

/// One live secret, ready for use.
pub(super) enum Key {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha512(Hmac<Sha512>),
    /// Sent as it is: GitLab's secret token.
    Token(Vec<u8>),
}

impl Key {
    fn new(algorithm: Algorithm, key: &[u8]) -> Key {
        const ANY: &str = "HMAC takes a key of any length";
        match algorithm {
            Algorithm::Sha1 => Key::Sha1(Hmac::new_from_slice(key).expect(ANY)),
            Algorithm::Sha256 => Key::Sha256(Hmac::new_from_slice(key).expect(ANY)),
            Algorithm::Sha512 => Key::Sha512(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    /// The digest of a message; `None` where the key is a token, which signs nothing.
    pub(super) fn digest(&self, message: &Message<'_>) -> Option<Vec<u8>> {
        match self {
            Key::Sha1(mac) => Some(finish(mac, message)),
            Key::Sha256(mac) => Some(finish(mac, message)),
            Key::Sha512(mac) => Some(finish(mac, message)),
            Key::Token(_) => None,
        }
    }
}

/// The keys of all secrets. A secret of Standard Webhooks without its mark may be meant as text or as base64, and the
/// libraries disagree; it counts as both.
pub(super) fn all<S: AsRef<str>>(scheme: &Scheme, secrets: &[S]) -> Result<Vec<Key>, BadSecret> {
    if secrets.is_empty() {
        return Err(BadSecret::Missing);
    }
    if secrets.len() > SECRETS_MAX {
        return Err(BadSecret::TooMany);
    }
    let mut keys = Vec::with_capacity(secrets.len());
    for (index, secret) in secrets.iter().enumerate() {
        let (secret, place) = (secret.as_ref(), index + 1);
        if secret.trim().is_empty() {
            return Err(BadSecret::Empty(place));
        }
        if secret.trim().len() != secret.len() {
            return Err(BadSecret::Spaced(place));
        }
        match scheme {
            Scheme::StandardWebhooks => standard(secret, place, &mut keys)?,
            Scheme::Gitlab => keys.push(gitlab(secret, place)?),
            Scheme::Twilio => keys.push(Key::new(Algorithm::Sha1, secret.as_bytes())),
            Scheme::Terraform => keys.push(Key::new(Algorithm::Sha512, secret.as_bytes())),
            Scheme::Hmac(form) => keys.push(Key::new(form.algorithm, secret.as_bytes())),
            // Stripe's secret begins with the mark too, but its key is the whole text.
            _ => keys.push(Key::new(Algorithm::Sha256, secret.as_bytes())),
        }
    }
    Ok(keys)
}

fn standard(secret: &str, place: usize, keys: &mut Vec<Key>) -> Result<(), BadSecret> {
    if let Some(encoded) = secret.strip_prefix(MARK) {
        keys.push(marked(encoded, place)?);
        return Ok(());
    }
    keys.push(Key::new(Algorithm::Sha256, secret.as_bytes()));
    if let Some(key) = LENIENT.decode(secret).ok().filter(|key| key.len() >= STANDARD_KEY_BYTES_MIN) {
        keys.push(Key::new(Algorithm::Sha256, &key));
    }
    Ok(())
}

/// A signing token has the mark; anything else is a secret token, which GitLab sends as it is. A signing token must never
/// be taken in that header: then it would not have to be kept secret to be of use.
fn gitlab(secret: &str, place: usize) -> Result<Key, BadSecret> {
    if let Some(encoded) = secret.strip_prefix(MARK) {
        return marked(encoded, place);
    }
    if !secret.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Err(BadSecret::Header(place));
    }
    Ok(Key::Token(secret.as_bytes().to_vec()))
}

fn marked(encoded: &str, place: usize) -> Result<Key, BadSecret> {
    let key = LENIENT.decode(encoded).map_err(|_| BadSecret::Base64(place))?;
    if key.is_empty() {
        return Err(BadSecret::Empty(place));
    }
    Ok(Key::new(Algorithm::Sha256, &key))
}

fn finish<M: Mac + Clone>(keyed: &M, message: &Message<'_>) -> Vec<u8> {
    let mut mac = keyed.clone();
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}
