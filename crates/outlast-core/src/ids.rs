//! Names of things: job ids (UUIDv7), lease tokens, and the small numbers stores give to queues and namespaces.

use std::fmt;
use std::str::FromStr;

use crate::time::Timestamp;

/// A job's id, stable over redelivery and replay. Always a UUIDv7, so ids sort by creation time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    /// `variable` fills the 74 bits that are neither time nor version; higher bits are dropped.
    pub fn new(created_at: Timestamp, variable: u128) -> JobId {
        let millis = u128::from(created_at.as_millis().unsigned_abs()) & 0xffff_ffff_ffff;
        let high = (variable >> 62) & 0xfff;
        let low = variable & 0x3fff_ffff_ffff_ffff;
        JobId(millis << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
    }

    /// The 74 bits given to [`JobId::new`].
    pub fn variable(self) -> u128 {
        (self.0 >> 64 & 0xfff) << 62 | self.0 & 0x3fff_ffff_ffff_ffff
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }

    /// `None` when these bits are no UUIDv7.
    pub fn from_u128(bits: u128) -> Option<JobId> {
        (bits >> 76 & 0xf == 7 && bits >> 62 & 0b11 == 0b10).then_some(JobId(bits))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = *b"00000000-0000-0000-0000-000000000000";
        put_hex(&mut text, self.0);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// Fills every slot but the hyphens with hexadecimal digits, from the right.
fn put_hex(text: &mut [u8], mut value: u128) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for slot in text.iter_mut().rev().filter(|slot| **slot != b'-') {
        let digit = usize::try_from(value & 0xf).unwrap_or(0);
        *slot = DIGITS.get(digit).copied().unwrap_or(b'0');
        value >>= 4;
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an id of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id")]
pub struct NotAnId;

impl FromStr for JobId {
    type Err = NotAnId;

    /// Accepts the hyphenated form of a UUIDv7 in either case, nothing else.
    fn from_str(text: &str) -> Result<JobId, NotAnId> {
        if text.len() != 36 {
            return Err(NotAnId);
        }
        let mut value: u128 = 0;
        for (at, byte) in text.bytes().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return Err(NotAnId);
                }
                continue;
            }
            value = value << 4 | u128::from(hex_digit(byte).ok_or(NotAnId)?);
        }
        JobId::from_u128(value).ok_or(NotAnId)
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The token of one hand-out: 128 random bits. Current exactly while it equals the stored one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease(u128);

impl Lease {
    pub fn from_u128(bits: u128) -> Lease {
        Lease(bits)
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'0'; 32];
        put_hex(&mut text, self.0);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Lease {
    /// A lease is a bearer token: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease(…)")
    }
}

impl FromStr for Lease {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Lease, NotAnId> {
        if text.len() != 32 {
            return Err(NotAnId);
        }
        let mut value: u128 = 0;
        for byte in text.bytes() {
            value = value << 4 | u128::from(hex_digit(byte).ok_or(NotAnId)?);
        }
        Ok(Lease(value))
    }
}

/// A store's number for a queue; never reused within a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(pub u32);

/// A store's number for a namespace; never reused within a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamespaceId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_writing_and_reading() {
        let id = JobId::new(Timestamp::from_millis(1_763_238_999_042), 0x2bc_1234_5678_9abc_def0);

        let text = id.to_string();

        assert_eq!(text.parse::<JobId>(), Ok(id));
        assert_eq!(text.to_uppercase().parse::<JobId>(), Ok(id));
        assert_eq!(id.variable(), 0x2bc_1234_5678_9abc_def0);
        assert_eq!(&text[14..15], "7");
    }

    #[test]
    fn text_that_is_no_uuid_v7_is_refused() {
        for text in [
            "",
            "x",
            "019a8a1e-0000-4000-8000-000000000000",
            "019a8a1e000070008000000000000000",
            "019a8a1e-0000-7000-0000-000000000000",
            "019a8a1e-0000-7000-8000-00000000000g",
        ] {
            assert_eq!(text.parse::<JobId>(), Err(NotAnId), "{text}");
        }
    }

    #[test]
    fn a_lease_is_not_printed_by_debug() {
        let lease = Lease::from_u128(0xfeed);

        assert!(!format!("{lease:?}").contains("feed"));
        assert_eq!(lease.to_string().parse::<Lease>(), Ok(lease));
    }
}
