//! Alarms: things that are due at a set time. A store names due jobs one by one; of every other kind it returns when
//! the first one is due, and the engine serves the kind.

use outlast_core::{JobId, Timestamp};

/// Kinds of things that have alarms, besides jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlarmKind {
    /// An object that no job needs any more is to be deleted.
    Object,
    /// The retention of an inbound event has ended.
    Event,
    /// An operation has work to do.
    Operation,
}

impl AlarmKind {
    /// For the log and `/readyz`.
    pub fn as_str(self) -> &'static str {
        match self {
            AlarmKind::Object => "object collection",
            AlarmKind::Event => "event pruning",
            AlarmKind::Operation => "operations",
        }
    }
}

/// Alarms that have rung, and the next ones.
#[derive(Clone, Debug, Default)]
pub struct Due {
    /// Jobs whose alarm has rung.
    pub jobs: Vec<JobId>,
    /// The earliest alarm of a job that has not rung yet.
    pub next: Option<Timestamp>,
    /// The earliest alarm of every other kind that has one, rung or not.
    pub others: Vec<(AlarmKind, Timestamp)>,
}
