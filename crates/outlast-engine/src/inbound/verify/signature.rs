//! A signed message as received: the message and its signatures. Reading it touches no secret; verifying it takes the same
//! steps whichever signature is right.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use outlast_core::Timestamp;
use subtle::{Choice, ConstantTimeEq};

use super::key::{Key, Message};

/// A provider has two live secrets at most; more entries than this are an attempt to keep us busy.
const ENTRIES_MAX: usize = 20;

/// Why a webhook is rejected. For the log only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    Missing,
    Repeated,
    Unreadable,
    TooMany,
    FarTime,
    Mismatch,
}

/// The signatures are good if one of them is the digest of one of the messages.
pub(super) struct SignedMessage<'a> {
    pub messages: Vec<Message<'a>>,
    pub signatures: Vec<Vec<u8>>,
}

impl SignedMessage<'_> {
    pub(super) fn verify(&self, keys: &[Key]) -> Result<(), Rejection> {
        let mut is_right = Choice::from(0);
        for key in keys {
            for message in &self.messages {
                let Some(expected) = key.digest(message) else { continue };
                for signature in &self.signatures {
                    // Slices of different lengths are unequal: an empty or a cut signature never matches.
                    is_right |= signature.as_slice().ct_eq(&expected);
                }
            }
        }
        decide(is_right)
    }
}

pub(super) fn decide(is_right: Choice) -> Result<(), Rejection> {
    match bool::from(is_right) {
        true => Ok(()),
        false => Err(Rejection::Mismatch),
    }
}

/// The one value of a header. A header that comes twice is refused: two readers could take different ones.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Rejection> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Rejection::Missing)?;
    if values.next().is_some() {
        return Err(Rejection::Repeated);
    }
    let text = value.to_str().map_err(|_| Rejection::Unreadable)?;
    if text.is_empty() {
        return Err(Rejection::Missing);
    }
    Ok(text)
}

/// The entries of a list in one header, within a bound.
pub(super) fn entries(text: &str, separator: char) -> Result<Vec<&str>, Rejection> {
    let entries: Vec<&str> = text.split(separator).take(ENTRIES_MAX + 1).collect();
    if entries.len() > ENTRIES_MAX {
        return Err(Rejection::TooMany);
    }
    Ok(entries)
}

/// The entry with this prefix, which must occur once.
pub(super) fn only_entry<'a>(entries: &[&'a str], prefix: &str) -> Result<&'a str, Rejection> {
    let mut told = entries.iter().filter_map(|entry| entry.strip_prefix(prefix));
    let text = told.next().ok_or(Rejection::Missing)?;
    match told.next() {
        Some(_) => Err(Rejection::Repeated),
        None => Ok(text),
    }
}

/// The times that are accepted.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub now: Timestamp,
    pub tolerance: Duration,
}

impl Window {
    /// Digits only: `+5`, `-5` and ` 5` are other texts than a provider writes.
    pub(super) fn check_seconds(self, text: &str) -> Result<(), Rejection> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Rejection::Unreadable);
        }
        let seconds: i64 = text.parse().map_err(|_| Rejection::Unreadable)?;
        self.check_millis(seconds.saturating_mul(1000))
    }

    pub(super) fn check_millis(self, millis: i64) -> Result<(), Rejection> {
        let sent_at = Timestamp::from_millis(millis);
        let distance = self.now.since(sent_at).max(sent_at.since(self.now));
        match millis >= 0 && distance <= self.tolerance {
            true => Ok(()),
            false => Err(Rejection::FarTime),
        }
    }
}

#[cfg(test)]
mod tests {
    //! The times that are believed, without any signature around them.

    use std::time::Duration;

    use outlast_core::Timestamp;

    use super::{Rejection, Window};

    #[test]
    fn a_time_is_whole_seconds_within_the_tolerance() {
        let window = |seconds: u64| Window {
            now: Timestamp::from_millis(1_700_000_000_000),
            tolerance: Duration::from_secs(seconds),
        };
        let near = ["1700000000", "1699999700", "1700000300", "0001700000000"];
        let far = ["1699999699", "1700000301", "0", "9223372036854775807", "9223372036854775"];
        let unreadable =
            ["", "-1", "+1700000000", " 1700000000", "1700000000 ", "1.7e9", "9223372036854775808", "\u{664}"];

        for (texts, expected) in [
            (near.as_slice(), Ok(())),
            (far.as_slice(), Err(Rejection::FarTime)),
            (unreadable.as_slice(), Err(Rejection::Unreadable)),
        ] {
            for text in texts {
                assert_eq!(window(300).check_seconds(text), expected, "{text:?}");
            }
        }
        assert_eq!(window(0).check_seconds("1700000000"), Ok(()));
        for millis in [-1, i64::MIN, i64::MAX] {
            assert_eq!(window(300).check_millis(millis), Err(Rejection::FarTime));
        }
    }

    #[test]
    fn a_negative_time_is_refused_even_near_the_epoch() {
        let window = Window { now: Timestamp::EPOCH, tolerance: Duration::from_secs(300) };

        assert_eq!(window.check_millis(-1), Err(Rejection::FarTime));
        assert_eq!(window.check_millis(0), Ok(()));
    }
}
