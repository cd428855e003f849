//! A call on a store, in words that mean the same on every engine: jobs, operations and keys are named by the order in
//! which they were made.

use std::time::Duration;

use outlast_core::state::Phase;
use outlast_core::{Command, Spec, Status};
use outlast_store::operations::{OperationFilter, OperationKind};
use outlast_store::queues::{ExpectedVersion, QueueDraft};

/// A queue of one of the two namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub namespace: usize,
    pub queue: &'static str,
}

/// The n-th job that was made, or an id that never was.
#[derive(Clone, Copy, Debug)]
pub enum Whom {
    Job(usize),
    Stranger(u64),
}

#[derive(Clone, Copy, Debug)]
pub enum Range {
    Everything,
    Namespace(usize),
    Queue(Place),
}

#[derive(Clone, Debug)]
pub struct Listing {
    pub range: Range,
    pub queue: Option<&'static str>,
    pub status: Option<Status>,
    pub tags: Vec<(String, String)>,
    pub key: Option<String>,
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub struct Bulk {
    pub place: Place,
    pub kind: OperationKind,
    /// Takes the place of the filter's ids.
    pub jobs: Option<Vec<usize>>,
    pub filter: OperationFilter,
    pub limit: Option<u64>,
}

/// An event of a provider, and the jobs that come of it.
#[derive(Clone, Debug)]
pub struct Told {
    pub namespace: usize,
    pub source: &'static str,
    pub key: Option<String>,
    pub body: &'static str,
    pub has_headers: bool,
    pub jobs: Vec<(&'static str, Spec)>,
}

#[derive(Clone, Debug)]
pub enum Call {
    Pass(Duration),
    Publish(Vec<(Place, Spec)>),
    Ingest(Vec<Told>),
    /// All events of a namespace, or of one source of it.
    Arrivals {
        namespace: usize,
        source: Option<&'static str>,
        limit: usize,
    },
    Prune {
        age: Duration,
        limit: usize,
    },
    /// Forgets so many objects whose time has come, as if they had been deleted.
    Collect {
        limit: usize,
    },
    Claim {
        place: Place,
        limit: usize,
        phase: Phase,
        visibility: Option<Duration>,
        worker: Option<Box<str>>,
    },
    Apply(Vec<(Whom, Range, Command)>),
    /// Asks who is due and wakes them.
    Sweep {
        limit: usize,
    },
    Job(Range, Whom),
    Jobs(Listing),
    Events {
        range: Range,
        whom: Whom,
        after: u64,
        limit: usize,
    },
    Result(Range, Whom),
    SaveQueue(Place, Box<QueueDraft>, ExpectedVersion),
    Pause(Place, bool),
    DeleteQueue(Place),
    Queue(Place),
    Queues {
        namespace: usize,
        after: Option<&'static str>,
        limit: usize,
    },
    Namespace(usize),
    SealingKey(i64),
    AddKey {
        namespace: usize,
        number: usize,
    },
    RevokeKey {
        namespace: Option<usize>,
        key: usize,
    },
    StartOperation(Bulk),
    AdvanceOperation {
        operation: usize,
        limit: usize,
    },
    StopOperation {
        namespace: usize,
        operation: usize,
    },
    CountOperation(Bulk, usize),
    Operations {
        namespace: usize,
        limit: usize,
    },
    Reopen,
}
