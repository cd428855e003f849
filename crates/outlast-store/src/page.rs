//! The size of a page in bytes. A store ends a page when its entries, as the API writes them, fill [`PAGE_BYTES_MAX`], so
//! that no request makes the server hold more than about that much, however many entries it asks for.

use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::InboundEvent;
use outlast_core::{Event, EventKind, Job, State};

/// A page ends with the entry that reaches this size; it always has one entry.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The size of a page's entries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSize(usize);

impl PageSize {
    pub fn of(entries: &[impl EncodedSize]) -> PageSize {
        PageSize(entries.iter().map(EncodedSize::written).sum())
    }

    pub fn add(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes);
    }

    /// No further entry belongs to the page; a full page may have a successor.
    pub fn is_full(self) -> bool {
        self.0 >= PAGE_BYTES_MAX
    }

    pub fn bytes(self) -> usize {
        self.0
    }
}

/// An entry of a page.
pub trait EncodedSize {
    /// At least the bytes that it takes as JSON, escapes included.
    fn written(&self) -> usize;
}

/// The names and punctuation of an event, of a job in a list, of a running job (with its progress), of a section and of an
/// inbound_event.
const EVENT_FRAME: usize = 256;
const JOB_FRAME: usize = 1200;
const RUNNING_FRAME: usize = 2048;
const SECTION_FRAME: usize = 96;
const INBOUND_EVENT_FRAME: usize = 256;
/// Quotes, colon and comma around a text.
const TEXT_FRAME: usize = 6;
/// Quotes, colon, comma and the number of a unit.
const USAGE_FRAME: usize = 32;

impl EncodedSize for Event {
    fn written(&self) -> usize {
        EVENT_FRAME
            + match &self.kind {
                EventKind::Output { text, .. } => escaped(text),
                EventKind::Note { text } => escaped(text),
                EventKind::Attempt(attempt) => {
                    let usage = attempt.usage.iter().map(|(unit, _)| escaped(unit) + USAGE_FRAME).sum::<usize>();
                    optional(attempt.error.as_deref()) + optional(attempt.excerpt.as_deref()) + usage
                }
                EventKind::Checkpoint { section, .. } => optional(section.as_deref()),
                EventKind::State { .. } | EventKind::Result { .. } | EventKind::Callback => 0,
            }
    }
}

/// Without its payload, as lists show it.
impl EncodedSize for Job {
    fn written(&self) -> usize {
        let spec = &self.spec;
        let tags: usize = spec.tags.iter().map(|(name, value)| escaped(name) + escaped(value) + TEXT_FRAME).sum();
        let texts = [&spec.key, &spec.idempotency_key, &spec.callback_url, &self.last_error, &self.last_error];
        let texts: usize = texts.into_iter().map(|text| optional(text.as_deref())).sum();
        let running = match &self.state {
            State::Running(running) => RUNNING_FRAME + optional(running.worker.as_deref()),
            _ => 0,
        };
        JOB_FRAME + tags + texts + running
    }
}

impl EncodedSize for Section {
    fn written(&self) -> usize {
        SECTION_FRAME + self.name.len() + self.body.len()
    }
}

/// Without its body, as lists show it.
impl EncodedSize for InboundEvent {
    fn written(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| escaped(name) + escaped(value) + TEXT_FRAME).sum();
        INBOUND_EVENT_FRAME + escaped(&self.source) + escaped(&self.kind) + optional(self.key.as_deref()) + headers
    }
}

fn optional(text: Option<&str>) -> usize {
    text.map_or(0, escaped)
}

/// The length of a text in JSON, without its quotes.
pub fn escaped(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    #[test]
    fn an_escaped_length_is_that_of_the_json() {
        let every: String = (0..0x180).filter_map(char::from_u32).chain(['\u{2028}', '\u{1F980}']).collect();
        for text in ["", "plain", "\u{1}\u{1}", "a\"b\\c/\n\r\t\u{8}\u{c}\u{7f}", &every] {
            assert_eq!(escaped(text), serde_json::to_string(text).unwrap().len() - 2, "{text:?}");
        }
    }

    #[test]
    fn a_page_is_full_with_the_entry_that_reaches_its_size() {
        let output = |bytes: usize| {
            let kind = EventKind::Output { attempt: 1, part: None, text: "\u{1}".repeat(bytes).into() };
            Event { seq: 1, at: Timestamp::EPOCH, kind }
        };

        assert!(!PageSize::of(&[] as &[Event]).is_full());
        assert!(!PageSize::of(&[output(PAGE_BYTES_MAX / 7)]).is_full());
        assert!(PageSize::of(&[output(PAGE_BYTES_MAX / 6)]).is_full());
    }
}
