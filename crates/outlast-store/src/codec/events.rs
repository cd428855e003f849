//! The event log in bytes: a few bytes per event, appended without reading what is there. Times are written relative to
//! the job's creation. Shared by all engines, and read back as one gapless sequence.

use std::time::Duration;

use outlast_core::event::{Attempt, Reason, Usage};
use outlast_core::state::{Ending, Phase};
use outlast_core::{Event, EventKind, Status, Timestamp};

use crate::error::Error;
use crate::page::{EncodedSize, PAGE_BYTES_MAX, PageSize};

const KIND_STATE: u8 = 1;
const KIND_ATTEMPT: u8 = 2;
const KIND_RESULT: u8 = 3;
const KIND_NOTE: u8 = 4;
const KIND_CALLBACK: u8 = 5;
const KIND_CHECKPOINT: u8 = 6;
const KIND_OUTPUT: u8 = 7;
/// An attempt with what it used behind it.
const KIND_METERED_ATTEMPT: u8 = 8;
/// A move of a job that was replayed, with the number of replays behind it.
const KIND_REPLAYED_STATE: u8 = 9;
/// With its number.
const KIND_NUMBERED_OUTPUT: u8 = 10;

/// The first byte of a chunk of events: the form of all that follow. No kind of event is as large; chunks without it are older
/// and have the same form.
const FORM: u8 = 0x81;

/// Appends one event.
pub fn append(bytes: &mut Vec<u8>, created_at: Timestamp, event: &Event) {
    let offset = u64::try_from(event.at.since(created_at).as_millis()).unwrap_or(u64::MAX);
    if bytes.is_empty() {
        bytes.push(FORM);
    }
    match &event.kind {
        EventKind::State { from, to, reason, replays } => {
            bytes.push(if *replays == 0 { KIND_STATE } else { KIND_REPLAYED_STATE });
            put_number(bytes, offset);
            bytes.push(from.map_or(0, |from| code(&Status::ALL, from) + 1));
            bytes.push(code(&Status::ALL, *to));
            bytes.push(code(&Reason::ALL, *reason));
            if *replays > 0 {
                put_number(bytes, u64::from(*replays));
            }
        }
        EventKind::Attempt(attempt) => {
            bytes.push(if attempt.usage.is_empty() { KIND_ATTEMPT } else { KIND_METERED_ATTEMPT });
            put_number(bytes, offset);
            put_number(bytes, u64::from(attempt.number));
            bytes.push(code(&PHASES, attempt.phase));
            bytes.push(code(&ENDINGS, attempt.outcome));
            put_number(bytes, u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX));
            put_number(bytes, u64::from(attempt.status_code.unwrap_or(0)));
            put_text(bytes, attempt.error.as_deref());
            put_text(bytes, attempt.excerpt.as_deref());
            if !attempt.usage.is_empty() {
                put_usage(bytes, &attempt.usage);
            }
        }
        EventKind::Result { length } => {
            bytes.push(KIND_RESULT);
            put_number(bytes, offset);
            put_number(bytes, *length);
        }
        EventKind::Checkpoint { schema_version, section, length } => {
            bytes.push(KIND_CHECKPOINT);
            put_number(bytes, offset);
            put_number(bytes, u64::from(*schema_version));
            put_text(bytes, section.as_deref());
            put_number(bytes, *length);
        }
        EventKind::Output { attempt, part, text } => {
            bytes.push(if part.is_none() { KIND_OUTPUT } else { KIND_NUMBERED_OUTPUT });
            put_number(bytes, offset);
            put_number(bytes, u64::from(*attempt));
            part.iter().for_each(|part| put_number(bytes, *part));
            put_text(bytes, Some(text));
        }
        EventKind::Callback => {
            bytes.push(KIND_CALLBACK);
            put_number(bytes, offset);
        }
        EventKind::Note { text } => {
            bytes.push(KIND_NOTE);
            put_number(bytes, offset);
            put_text(bytes, Some(text));
        }
    }
}

/// Events that take more room than this beside a job move out of its row.
const INLINE_BYTES_MAX: usize = 1000;

/// Adds events to those that stand in a job's row; `count` is how many the whole log has. When they take too much room,
/// those that were there come back, with the number of their first, to be kept elsewhere.
pub(crate) fn extend(
    inline: &mut Vec<u8>,
    count: u64,
    created_at: Timestamp,
    events: &[Event],
) -> Result<Option<(i64, Vec<u8>)>, Error> {
    let mut moved = None;
    if inline.len() > INLINE_BYTES_MAX {
        let length = read(inline, created_at, 1)?.len();
        let first = count.cast_signed() - i64::try_from(length).unwrap_or(i64::MAX) + 1;
        moved = Some((first, std::mem::take(inline)));
    }
    for event in events {
        append(inline, created_at, event);
    }
    Ok(moved)
}

/// A job's log as it is kept: the latest events in its row, older ones in chunks beside it.
pub(crate) struct EventLog<'a> {
    pub(crate) created_at: Timestamp,
    /// Events in all.
    pub(crate) count: u64,
    pub(crate) inline: &'a [u8],
}

/// Which chunks hold a page of a log: that with the greatest first event up to `from`, and those that begin up to `to`.
pub(crate) struct ChunkSpan {
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// There are no more, since no chunk is empty.
    pub(crate) chunks_max: i64,
}

/// Bytes of chunks that are read for a page: enough to fill it, since no event is shorter written than stored, and no chunk is
/// longer than the difference.
pub(crate) const CHUNK_BYTES_MAX: usize = PAGE_BYTES_MAX + (256 << 10);

impl ChunkSpan {
    pub(crate) fn of_page(after: u64, limit: usize) -> ChunkSpan {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        ChunkSpan { from: after.saturating_add(1), to: after.saturating_add(limit), chunks_max: limit }
    }
}

impl EventLog<'_> {
    /// Up to `limit` events after `after`, out of the chunks that [`ChunkSpan::of_page`] names, in order and up to
    /// [`CHUNK_BYTES_MAX`], and the row. Ends early when the page is full.
    pub(crate) fn page(&self, chunks: &[(i64, Vec<u8>)], after: u64, limit: usize) -> Result<Vec<Event>, Error> {
        let mut latest = read(self.inline, self.created_at, 1)?;
        let moved = self.count.checked_sub(u64::try_from(latest.len()).unwrap_or(u64::MAX));
        let moved = moved.ok_or_else(|| Error::Corrupt("a log has more events than were counted".to_owned()))?;
        latest.iter_mut().for_each(|event| event.seq += moved);
        let (mut page, mut size) = (Vec::new(), PageSize::default());
        let mut take = |events: Vec<Event>| {
            for event in events.into_iter().filter(|event| event.seq > after) {
                if page.len() >= limit || size.is_full() {
                    return;
                }
                size.add(event.written());
                page.push(event);
            }
        };
        for (first, bytes) in chunks {
            take(read(bytes, self.created_at, first.cast_unsigned())?);
        }
        take(latest);
        let left = usize::try_from(self.count.saturating_sub(after)).unwrap_or(usize::MAX);
        let is_whole = (size.is_full() || page.len() == left.min(limit))
            && (1..).zip(&page).all(|(place, event)| event.seq == after + place);
        if !is_whole {
            return Err(Error::Corrupt(format!("the log has a gap after event {after}")));
        }
        Ok(page)
    }
}

/// Reads a chunk of events whose first one has number `first`.
pub fn read(bytes: &[u8], created_at: Timestamp, first: u64) -> Result<Vec<Event>, Error> {
    let body = match bytes.split_first() {
        Some((&FORM, body)) => body,
        Some((form, _)) if *form >= 0x80 => return Err(Error::Corrupt(format!("a log has the unknown form {form}"))),
        _ => bytes,
    };
    let mut reader = ByteReader { bytes: body };
    let mut events = Vec::new();
    let mut seq = first;
    while !reader.bytes.is_empty() {
        events
            .push(reader.event(created_at, seq).ok_or_else(|| Error::Corrupt(format!("event {seq} cannot be read")))?);
        seq += 1;
    }
    Ok(events)
}

/// The order is the stored form: append only.
pub(crate) const PHASES: [Phase; 3] = [Phase::Delivering, Phase::AwaitingAck, Phase::Leased];
/// The order is the stored form: append only.
pub(crate) const ENDINGS: [Ending; 13] = [
    Ending::Acked,
    Ending::Nacked,
    Ending::Deferred,
    Ending::Released,
    Ending::CancelConfirmed,
    Ending::LeaseExpired,
    Ending::HeartbeatLost,
    Ending::HardTimeLimit,
    Ending::JobTimeout,
    Ending::Revoked,
    Ending::Unknown,
    Ending::Stalled,
    Ending::AckTimeout,
];

/// Index of a value in its code table. Total: the round-trip test covers every value.
pub(crate) fn code<T: PartialEq>(table: &[T], value: T) -> u8 {
    let position = table.iter().position(|known| *known == value);
    position.and_then(|position| u8::try_from(position).ok()).expect("every value stands in its table")
}

pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
}

fn put_usage(bytes: &mut Vec<u8>, usage: &Usage) {
    put_number(bytes, u64::try_from(usage.len()).unwrap_or(0));
    for (unit, amount) in usage {
        put_text(bytes, Some(unit));
        bytes.extend(amount.to_bits().to_le_bytes());
    }
}

/// Length plus one, so that "none" and "empty" differ.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else {
        return put_number(bytes, 0);
    };
    put_number(bytes, u64::try_from(text.len()).unwrap_or(0) + 1);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads what the functions above write, from the front.
pub(crate) struct ByteReader<'a> {
    pub(crate) bytes: &'a [u8],
}

impl ByteReader<'_> {
    fn event(&mut self, created_at: Timestamp, seq: u64) -> Option<Event> {
        let code = self.byte()?;
        let at = created_at.plus(Duration::from_millis(self.number()?));
        let kind = match code {
            KIND_STATE | KIND_REPLAYED_STATE => {
                let from = match self.byte()? {
                    0 => None,
                    code => Some(*Status::ALL.get(usize::from(code) - 1)?),
                };
                let (to, reason) = (self.of(&Status::ALL)?, self.of(&Reason::ALL)?);
                let replays = if code == KIND_REPLAYED_STATE { u32::try_from(self.number()?).ok()? } else { 0 };
                EventKind::State { from, to, reason, replays }
            }
            KIND_ATTEMPT | KIND_METERED_ATTEMPT => EventKind::Attempt(Attempt {
                number: u32::try_from(self.number()?).ok()?,
                phase: self.of(&PHASES)?,
                outcome: self.of(&ENDINGS)?,
                duration: Duration::from_millis(self.number()?),
                status_code: Some(u16::try_from(self.number()?).ok()?).filter(|code| *code != 0),
                error: self.text()?,
                excerpt: self.text()?,
                usage: if code == KIND_METERED_ATTEMPT { self.usage()? } else { Usage::new() },
            }),
            KIND_RESULT => EventKind::Result { length: self.number()? },
            KIND_CHECKPOINT => EventKind::Checkpoint {
                schema_version: u32::try_from(self.number()?).ok()?,
                section: self.text()?,
                length: self.number()?,
            },
            KIND_OUTPUT | KIND_NUMBERED_OUTPUT => EventKind::Output {
                attempt: u32::try_from(self.number()?).ok()?,
                part: if code == KIND_NUMBERED_OUTPUT { Some(self.number()?) } else { None },
                text: self.text()??.into(),
            },
            KIND_CALLBACK => EventKind::Callback,
            KIND_NOTE => EventKind::Note { text: self.text()?? },
            _ => return None,
        };
        Some(Event { seq, at, kind })
    }

    fn usage(&mut self) -> Option<Usage> {
        let count = self.number()?;
        let mut usage = Usage::new();
        for _ in 0..count {
            let unit = self.text()??;
            let (bits, rest) = self.bytes.split_first_chunk::<8>()?;
            self.bytes = rest;
            usage.push((unit, f64::from_bits(u64::from_le_bytes(*bits))));
        }
        Some(usage)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn of<T: Copy>(&mut self, table: &[T]) -> Option<T> {
        let code = self.byte()?;
        table.get(usize::from(code)).copied()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn text(&mut self) -> Option<Option<Box<str>>> {
        let Some(length) = self.number()?.checked_sub(1) else {
            return Some(None);
        };
        let (text, rest) = self.bytes.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(Some(std::str::from_utf8(text).ok()?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<EventKind> {
        let mut kinds = vec![
            EventKind::Result { length: 300_000 },
            EventKind::Checkpoint { schema_version: 300, section: None, length: 1 },
            EventKind::Checkpoint { schema_version: 0, section: Some("s-1".into()), length: 0 },
            EventKind::Output { attempt: 2, part: None, text: "Once\0 upon".into() },
            EventKind::Output { attempt: 2, part: Some(1 << 40), text: "a time".into() },
            EventKind::Callback,
            EventKind::Note { text: "ä".into() },
        ];
        for reason in Reason::ALL {
            kinds.push(EventKind::State { from: None, to: Status::Queued, reason, replays: 0 });
        }
        for status in Status::ALL {
            kinds.push(EventKind::State { from: Some(status), to: status, reason: Reason::Due, replays: 300 });
        }
        for (number, outcome) in (1..).zip(ENDINGS) {
            kinds.push(EventKind::Attempt(Attempt {
                number,
                phase: PHASES[usize::try_from(number).unwrap() % 3],
                outcome,
                duration: Duration::from_millis(u64::from(number) * 977),
                status_code: Some(500),
                error: Some("boom".into()),
                excerpt: (number % 2 == 0).then(|| "".into()),
                usage: (0..number % 3).map(|unit| (format!("unit {unit}").into(), 1.5e9 + f64::from(unit))).collect(),
            }));
        }
        kinds
    }

    #[test]
    fn a_chunk_without_a_form_is_read_and_an_unknown_form_is_refused() {
        let created_at = Timestamp::from_millis(1_000_000);
        let mut bytes = Vec::new();
        append(&mut bytes, created_at, &Event { seq: 1, at: created_at, kind: EventKind::Callback });

        assert_eq!(read(&bytes[1..], created_at, 1).unwrap(), read(&bytes, created_at, 1).unwrap());
        bytes[0] += 1;
        assert!(read(&bytes, created_at, 1).is_err());
    }

    #[test]
    fn every_kind_of_event_survives_writing_and_reading() {
        let created_at = Timestamp::from_millis(1_000_000);
        let events: Vec<Event> = all()
            .into_iter()
            .zip(5..)
            .map(|(kind, seq)| Event { seq, at: created_at.plus(Duration::from_millis(seq * 100_000)), kind })
            .collect();
        let mut bytes = Vec::new();

        for event in &events {
            append(&mut bytes, created_at, event);
        }

        assert_eq!(read(&bytes, created_at, 5).unwrap(), events);
    }

    /// A log of `count` events in chunks of ten, of which the last stand in the row.
    fn kept(count: u64) -> (Vec<(i64, Vec<u8>)>, Vec<u8>) {
        let mut chunks: Vec<(i64, Vec<u8>)> = Vec::new();
        for seq in 1..=count {
            if seq % 10 == 1 {
                chunks.push((seq.cast_signed(), Vec::new()));
            }
            let event = Event { seq, at: Timestamp::EPOCH, kind: EventKind::Note { text: seq.to_string().into() } };
            append(&mut chunks.last_mut().unwrap().1, Timestamp::EPOCH, &event);
        }
        let (_, inline) = chunks.pop().unwrap();
        (chunks, inline)
    }

    fn wanted(chunks: &[(i64, Vec<u8>)], after: u64, limit: usize) -> Vec<(i64, Vec<u8>)> {
        let span = ChunkSpan::of_page(after, limit);
        let from =
            chunks.iter().map(|(first, _)| *first).filter(|first| *first <= span.from).max().unwrap_or(span.from);
        let inside = |first: i64| (from..=span.to).contains(&first);
        let chunks: Vec<_> = chunks.iter().filter(|(first, _)| inside(*first)).cloned().collect();
        assert!(i64::try_from(chunks.len()).unwrap() <= span.chunks_max);
        chunks
    }

    #[test]
    fn a_page_is_read_out_of_the_chunks_that_hold_it() {
        let (chunks, inline) = kept(57);
        let log = EventLog { created_at: Timestamp::EPOCH, count: 57, inline: &inline };

        for after in 0..60 {
            for limit in [1, 3, 9, 10, 11, 25, 100] {
                let page = log.page(&wanted(&chunks, after, limit), after, limit).unwrap();
                let expected: Vec<u64> = (after + 1..=57).take(limit).collect();
                assert_eq!(page.iter().map(|event| event.seq).collect::<Vec<_>>(), expected, "{after}, {limit}");
                assert!(page.iter().all(|event| event.kind == EventKind::Note { text: event.seq.to_string().into() }));
            }
        }
        assert_eq!(log.page(&wanted(&chunks, u64::MAX, 5), u64::MAX, 5).unwrap(), []);
    }

    #[test]
    fn a_log_with_a_gap_is_reported() {
        let (mut chunks, inline) = kept(57);
        chunks.remove(2);
        let log = EventLog { created_at: Timestamp::EPOCH, count: 57, inline: &inline };

        assert_eq!(log.page(&wanted(&chunks, 0, 20), 0, 20).unwrap().len(), 20);
        for after in [10, 20, 25] {
            assert!(matches!(log.page(&wanted(&chunks, after, 20), after, 20), Err(Error::Corrupt(_))), "{after}");
        }
        let miscounted = EventLog { created_at: Timestamp::EPOCH, count: 3, inline: &inline };
        assert!(matches!(miscounted.page(&[], 0, 20), Err(Error::Corrupt(_))));
    }

    #[test]
    fn damaged_bytes_are_reported_and_never_panic() {
        let mut bytes = Vec::new();
        for (seq, kind) in (1..).zip(all()) {
            append(&mut bytes, Timestamp::EPOCH, &Event { seq, at: Timestamp::EPOCH, kind });
        }

        for cut in 1..bytes.len() {
            let _ = read(&bytes[..cut], Timestamp::EPOCH, 1);
            let mut flipped = bytes.clone();
            flipped[cut] ^= 0xff;
            let _ = read(&flipped, Timestamp::EPOCH, 1);
        }
        assert!(matches!(read(&[9], Timestamp::EPOCH, 1), Err(Error::Corrupt(_))));
    }
}
