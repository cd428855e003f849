//! Events that providers send to us. The log of a job has events of its own; these are called arrivals in the code, and
//! events on the wire.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NotAnId};
use crate::time::Timestamp;

/// How long an event is remembered after it came.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);

/// When an event that came at this time is forgotten.
pub fn forgotten_at(came_at: Timestamp) -> Timestamp {
    came_at.plus(KEPT_FOR)
}

/// An arrival's id. From the same numbers as the ids of jobs, so that no id names two things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArrivalId(pub JobId);

impl fmt::Display for ArrivalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for ArrivalId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<ArrivalId, NotAnId> {
        text.parse().map(ArrivalId)
    }
}

impl Serialize for ArrivalId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ArrivalId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ArrivalId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Header names in lower case with their values. Shared, like all that an arrival hands on to each of its jobs.
pub type Headers = Arc<[(Box<str>, Box<str>)]>;

/// What a provider sent, and which jobs came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    pub id: ArrivalId,
    pub at: Timestamp,
    pub source: Arc<str>,
    /// The provider's word for what happened, such as `invoice.paid`.
    pub kind: Arc<str>,
    /// The provider's own id of it, by which a repetition is known.
    pub key: Option<Box<str>>,
    pub headers: Headers,
    /// JSON text.
    pub body: Arc<str>,
    /// How many jobs were made of it when it came.
    pub jobs: u32,
}

impl Arrival {
    /// What jobs that are made of it remember.
    pub fn origin(&self) -> Origin {
        let (source, kind) = (Arc::clone(&self.source), Arc::clone(&self.kind));
        Origin { event: self.id, source, kind, headers: Arc::clone(&self.headers) }
    }
}

/// Where a job came from, if it came of an arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub event: ArrivalId,
    pub source: Arc<str>,
    pub kind: Arc<str>,
    pub headers: Headers,
}

/// Does a pattern name this kind: itself, everything below `prefix.*`, or everything, `*`?
pub fn names(pattern: &str, kind: &str) -> bool {
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
            assert_eq!(names(pattern, kind), named, "{pattern} of {kind}");
        }
    }

    #[test]
    fn an_id_reads_as_it_is_written() {
        let id = ArrivalId(JobId::new(Timestamp::from_millis(1_763_238_999_042), 77));
        assert_eq!(id.to_string().parse(), Ok(id));
    }
}
