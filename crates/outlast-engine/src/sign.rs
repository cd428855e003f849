//! Signatures of what is sent to receivers, and the check a receiver makes. Two forms over the exact bytes of the body:
//! Standard Webhooks (`webhook-id`, `webhook-timestamp`, `webhook-signature`), which also covers the time, and a plain
//! HMAC in one header. Pure: time and chance are arguments. No text of a secret ever reaches a log or an error.

mod secret;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use outlast_core::Timestamp;
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

pub use secret::{Malformed, Secret};

pub const ID_HEADER: &str = "webhook-id";
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// How far the time of a delivery may lie from the receiver's, in both directions. Outside of it a delivery is taken for
/// a replayed one, as Standard Webhooks asks.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// A sender has two live secrets at most; more signatures than this are an attempt to keep the receiver busy.
const SIGNATURES_MAX: usize = 16;

/// Before the signature in the plain header.
const PLAIN_MARK: &str = "sha256=";

/// The value of `webhook-signature`: one `v1,<base64>` for each live secret, in the order given, separated by spaces. The
/// id must be one of ours: it has no `.`, so that id, time and body cannot be cut apart in another way.
pub fn standard(secrets: &[Secret], id: &str, timestamp_seconds: i64, body: &[u8]) -> String {
    let timestamp = timestamp_seconds.to_string();
    let signatures = secrets.iter().map(|secret| {
        let signature = standard_mac(secret, id, &timestamp, body);
        format!("v1,{}", STANDARD.encode(signature))
    });
    signatures.collect::<Vec<_>>().join(" ")
}

/// The value of the plain header, `sha256=<hex>` over the body alone. While two secrets are live this takes the newest
/// one only: a header of this kind has room for one signature, and receivers compare it as a whole.
pub fn plain(secret: &Secret, body: &[u8]) -> String {
    let signature = plain_mac(secret, body);
    let mut text = String::with_capacity(PLAIN_MARK.len() + 2 * signature.len());
    text.push_str(PLAIN_MARK);
    for byte in signature {
        for nibble in [byte >> 4, byte & 15] {
            // Every nibble is a digit. Formatting byte by byte would cost more than the signature itself.
            text.extend(char::from_digit(nibble.into(), 16));
        }
    }
    text
}

/// Why a delivery is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error("header {0} is missing")]
    Missing(&'static str),
    #[error("header {0} came more than once")]
    Repeated(&'static str),
    #[error("header {0} is not readable")]
    Unreadable(&'static str),
    #[error("the timestamp is more than {} s in the past", TOLERANCE.as_secs())]
    TooOld,
    #[error("the timestamp is more than {} s in the future", TOLERANCE.as_secs())]
    TooNew,
    #[error("header {SIGNATURE_HEADER} has more than {SIGNATURES_MAX} signatures")]
    TooMany,
    #[error("no signature matches")]
    Mismatch,
}

/// The three headers of Standard Webhooks as a receiver got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    pub id: &'a str,
    pub timestamp: &'a str,
    pub signature: &'a str,
}

impl<'a> Headers<'a> {
    /// Finds the three among all headers. A header that comes twice is refused: two readers could take different ones.
    pub fn find<I>(headers: I) -> Result<Headers<'a>, Unverified>
    where
        I: IntoIterator<Item = (&'a str, &'a [u8])>,
    {
        let mut found = [(ID_HEADER, None), (TIMESTAMP_HEADER, None), (SIGNATURE_HEADER, None)];
        for (name, value) in headers {
            let Some((wanted, place)) = found.iter_mut().find(|(wanted, _)| wanted.eq_ignore_ascii_case(name)) else {
                continue;
            };
            if place.is_some() {
                return Err(Unverified::Repeated(wanted));
            }
            *place = Some(std::str::from_utf8(value).map_err(|_| Unverified::Unreadable(wanted))?);
        }
        let [id, timestamp, signature] = found.map(|(wanted, place)| place.ok_or(Unverified::Missing(wanted)));
        Ok(Headers { id: id?, timestamp: timestamp?, signature: signature? })
    }
}

/// Believes a delivery if its time is near and one of its `v1` signatures is right under one of the secrets. Signatures
/// of other versions are passed over, as Standard Webhooks asks.
pub fn verify(secrets: &[Secret], headers: Headers<'_>, body: &[u8], now: Timestamp) -> Result<(), Unverified> {
    check_time(headers.timestamp, now)?;
    if headers.id.is_empty() {
        return Err(Unverified::Missing(ID_HEADER));
    }
    if headers.signature.split(' ').count() > SIGNATURES_MAX {
        return Err(Unverified::TooMany);
    }
    let mut is_right = Choice::from(0);
    for secret in secrets {
        let expected = standard_mac(secret, headers.id, headers.timestamp, body);
        for signature in headers.signature.split(' ') {
            let Some(encoded) = signature.strip_prefix("v1,") else { continue };
            let Ok(given) = STANDARD.decode(encoded) else { continue };
            // Slices of different lengths are unequal: an empty or a cut signature never matches.
            is_right |= given.as_slice().ct_eq(&expected);
        }
    }
    match bool::from(is_right) {
        true => Ok(()),
        false => Err(Unverified::Mismatch),
    }
}

/// Believes a plain header if it is right under one of the secrets. It knows no time: only `verify` tells a replay.
pub fn verify_plain(secrets: &[Secret], value: &[u8], body: &[u8]) -> Result<(), Unverified> {
    let mut is_right = Choice::from(0);
    for secret in secrets {
        is_right |= value.ct_eq(plain(secret, body).as_bytes());
    }
    match bool::from(is_right) {
        true => Ok(()),
        false => Err(Unverified::Mismatch),
    }
}

fn check_time(timestamp: &str, now: Timestamp) -> Result<(), Unverified> {
    // Digits only: `+5` and ` 5` are other texts than the one that was signed.
    if !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unverified::Unreadable(TIMESTAMP_HEADER));
    }
    let seconds: i64 = timestamp.parse().map_err(|_| Unverified::Unreadable(TIMESTAMP_HEADER))?;
    let sent_at = Timestamp::from_millis(seconds.saturating_mul(1000));
    if now.since(sent_at) > TOLERANCE {
        return Err(Unverified::TooOld);
    }
    if sent_at.since(now) > TOLERANCE {
        return Err(Unverified::TooNew);
    }
    Ok(())
}

fn standard_mac(secret: &Secret, id: &str, timestamp: &str, body: &[u8]) -> [u8; 32] {
    let mut mac: Hmac<Sha256> = secret.standard();
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn plain_mac(secret: &Secret, body: &[u8]) -> [u8; 32] {
    let mut mac: Hmac<Sha256> = secret.plain();
    mac.update(body);
    mac.finalize().into_bytes().into()
}
