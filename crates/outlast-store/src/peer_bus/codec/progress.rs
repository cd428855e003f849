//! How far jobs have come, as bytes: in a message for many of them, and as a value that is kept for each. The same rules as
//! for news: bounds at every step, and what is not exactly of this form is nothing.
//!
//! BusMessage: `2 u8 · node u64 · count u16 × (job u128, length u16, value)`. Value: `1 u8 · hand-out u128 · progress`.
//! Little-endian, and nothing after it.

use std::sync::Arc;

use outlast_core::JobId;

use super::MessageReader;
use crate::codec::events;
use crate::codec::work::{put_progress, read_progress};
use crate::peer_bus::signals::ReportedProgress;
use crate::peer_bus::{LeaseDigest, SignalSet};

/// The version of messages that tell progress. Nodes of before it know only the one without, and drop these.
pub(super) const VERSION: u8 = 2;
const VALUE_VERSION: u8 = 1;

/// The longest value: a few numbers and two texts, of at most 4 KiB each.
pub const VALUE_BYTES_MAX: usize = 8500;
/// Jobs in one message.
pub const JOBS_MAX: usize = 1024;
/// Values in one message, together; what does not fit goes into the next one.
pub const VALUES_BYTES_MAX: usize = 160 << 10;

/// The value that is kept for a job.
pub fn encode_value(told: &ReportedProgress) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    bytes.push(VALUE_VERSION);
    bytes.extend(told.hand_out.as_u128().to_le_bytes());
    put_progress(&mut bytes, &told.progress);
    bytes
}

/// `None` for anything that is not a value of this version.
pub fn decode_value(bytes: &[u8]) -> Option<ReportedProgress> {
    if bytes.len() > VALUE_BYTES_MAX {
        return None;
    }
    let mut reader = MessageReader(bytes);
    if reader.byte()? != VALUE_VERSION {
        return None;
    }
    let hand_out = LeaseDigest::from_u128(u128::from_le_bytes(reader.array()?));
    let mut rest = events::ByteReader { bytes: reader.0 };
    let progress = read_progress(&mut rest)?;
    rest.bytes.is_empty().then(|| ReportedProgress { hand_out, progress: Arc::new(progress) })
}

/// One message for these values; the caller keeps to the bounds.
pub fn encode_values<'a>(node: u64, values: impl ExactSizeIterator<Item = (JobId, &'a [u8])>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.push(VERSION);
    bytes.extend(node.to_le_bytes());
    bytes.extend(super::count(values.len()));
    for (id, value) in values {
        bytes.extend(id.as_u128().to_le_bytes());
        bytes.extend(super::count(value.len()));
        bytes.extend(value);
    }
    bytes
}

/// Reads the part after the node.
pub(super) fn read(reader: &mut MessageReader<'_>) -> Option<SignalSet> {
    let mut news = SignalSet::default();
    for _ in 0..reader.count(JOBS_MAX)? {
        let id = reader.job()?;
        let length = reader.count(VALUE_BYTES_MAX)?;
        news.add_progress(id, decode_value(reader.take(length)?)?);
    }
    Some(news)
}

#[cfg(test)]
mod tests {
    use outlast_core::{Lease, Progress, ProgressReport, Timestamp};

    use super::*;
    use crate::peer_bus::codec::{BYTES_MAX, BusMessage, decode};

    fn told(number: u64, words: usize) -> ReportedProgress {
        let report = ProgressReport {
            pct: Some(12.5),
            items_done: Some(number),
            stage: Some("s".repeat(words).into()),
            message: Some("m".repeat(words).into()),
            ..ProgressReport::default()
        };
        let at = |millis: u64| Timestamp::from_millis(i64::try_from(millis).unwrap());
        let progress = Progress::restored(report, at(5), at(number), Some(Timestamp::MAX));
        ReportedProgress {
            hand_out: LeaseDigest::of(Lease::from_u128(u128::from(number))),
            progress: Arc::new(progress),
        }
    }

    fn job(number: u128) -> JobId {
        JobId::new(Timestamp::from_millis(7), number)
    }

    fn message(count: u64) -> (Vec<u8>, SignalSet) {
        let mut news = SignalSet::default();
        let values: Vec<(JobId, Vec<u8>)> =
            (0..count).map(|number| (job(u128::from(number)), encode_value(&told(number, 9)))).collect();
        for (id, value) in &values {
            news.add_progress(*id, decode_value(value).unwrap());
        }
        (encode_values(3, values.iter().map(|(id, value)| (*id, value.as_slice()))), news)
    }

    #[test]
    fn values_and_messages_come_back_as_they_went_out() {
        for number in [0, 1, 1 << 40] {
            assert_eq!(decode_value(&encode_value(&told(number, 30))), Some(told(number, 30)));
        }
        for count in [0, 1, 1000] {
            let (bytes, news) = message(count);
            assert_eq!(decode(&bytes), Some(BusMessage { node: 3, news }));
        }
    }

    #[test]
    fn the_largest_values_and_messages_fit_their_bounds() {
        let value = encode_value(&told(u64::MAX >> 1, 4096));
        assert!(value.len() <= VALUE_BYTES_MAX && decode_value(&value).is_some(), "{}", value.len());
        assert_eq!(decode_value(&encode_value(&told(1, 4097))), None, "longer words are nobody's");

        let most = 1 + 8 + 2 + JOBS_MAX * (16 + 2) + VALUES_BYTES_MAX;
        assert!(most <= BYTES_MAX, "{most}");
    }

    #[test]
    fn what_was_cut_lengthened_or_changed_is_nothing_or_sound_and_never_a_panic() {
        let (bytes, _) = message(3);
        let value = encode_value(&told(7, 40));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "{length}");
        }
        for length in 0..value.len() {
            assert_eq!(decode_value(&value[..length]), None, "{length}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(decode_value(&[&value[..], &[0]].concat()), None);
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                if let Some(message) = decode(&changed) {
                    assert!(message.news.progress.len() <= 3);
                }
            }
        }
        assert_eq!(decode_value(&[]), None, "what is not there reads as nothing");
        assert_eq!(decode_value(&vec![1; VALUE_BYTES_MAX + 1]), None);
    }
}
