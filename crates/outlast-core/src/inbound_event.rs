//! Events that providers send to us. The log of a job has events of its own; these are called inbound events in the code, and
//! events on the wire.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NotAnId};
use crate::time::Timestamp;

/// How long an event is remembered after it came.
pub const EVENT_RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// When an event that came at this time is forgotten.
pub fn event_delete_after(received_at: Timestamp) -> Timestamp {
    received_at.plus(EVENT_RETENTION)
}

/// The id of an inbound event. From the same numbers as the ids of jobs, so that no id names two things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InboundEventId(pub JobId);

impl fmt::Display for InboundEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for InboundEventId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<InboundEventId, NotAnId> {
        text.parse().map(InboundEventId)
    }
}

impl Serialize for InboundEventId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InboundEventId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<InboundEventId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Header names in lower case with their values. Shared, like everything that the jobs of an event have in common.
pub type EventHeaders = Arc<[(Box<str>, Box<str>)]>;

/// An event that a provider sent, and the number of jobs it created.
#[derive(Clone, Debug, PartialEq)]
pub struct InboundEvent {
    pub id: InboundEventId,
    pub at: Timestamp,
    pub source: Arc<str>,
    /// The provider's word for what happened, such as `invoice.paid`.
    pub kind: Arc<str>,
    /// The provider's own id of it, by which a repetition is known.
    pub key: Option<Box<str>>,
    pub headers: EventHeaders,
    /// JSON text.
    pub body: Arc<str>,
    /// How many jobs were made of it when it came.
    pub jobs: u32,
}

impl InboundEvent {
    /// The part that its jobs remember.
    pub fn origin(&self) -> EventOrigin {
        let (source, kind) = (Arc::clone(&self.source), Arc::clone(&self.kind));
        EventOrigin { event: self.id, source, kind, headers: Arc::clone(&self.headers) }
    }
}

/// The source and headers of the inbound event that a job was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventOrigin {
    pub event: InboundEventId,
    pub source: Arc<str>,
    pub kind: Arc<str>,
    pub headers: EventHeaders,
}

/// Does a pattern name this kind: itself, everything below `prefix.*`, or everything, `*`?
pub fn pattern_matches(pattern: &str, kind: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(prefix) if prefix.ends_with(['.', '/']) => kind.starts_with(prefix) && kind.len() > prefix.len(),
        _ => pattern == kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_one_kind_a_family_or_all() {
        for (pattern, kind, named) in [
            ("invoice.paid", "invoice.paid", true),
            ("invoice.paid", "invoice.paid.late", false),
            ("invoice.*", "invoice.paid", true),
            ("invoice.*", "invoice.payment.failed", true),
            ("invoice.*", "invoice.", false),
            ("invoice.*", "invoice", false),
            ("invoice.*", "invoices.paid", false),
            ("orders/*", "orders/create", true),
            ("inv*", "invoice.paid", false),
            ("*", "anything", true),
            ("*", "", true),
        ] {
            assert_eq!(pattern_matches(pattern, kind), named, "{pattern} of {kind}");
        }
    }

    #[test]
    fn an_id_reads_as_it_is_written() {
        let id = InboundEventId(JobId::new(Timestamp::from_millis(1_763_238_999_042), 77));
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}
