//! Data beside a job: its checkpoint and sections, and its objects in the object store.

use outlast_core::checkpoint::Checkpoint;
use outlast_core::{Object, ObjectKey, Timestamp};
use std::sync::Arc;

/// The data that attempts have saved for the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Artifacts {
    pub checkpoint: Option<Checkpoint>,
    /// The names of the sections, in order.
    pub sections: Vec<Box<str>>,
}

/// An inline result.
#[derive(Clone, Debug, PartialEq)]
pub struct InlineResult {
    pub body: Arc<str>,
    pub downloads: u64,
}

/// An object and its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject {
    pub object: Object,
    /// Complete, and the job's own; otherwise it is only expected.
    pub attached: bool,
    pub delete_after: Option<Timestamp>,
    pub downloads: u64,
    /// When its bytes were last found to differ from what was written.
    pub damaged_at: Option<Timestamp>,
}

/// The result of reading all bytes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectInspection {
    /// The bytes are those that were written; these are the checksums of their chunks.
    Sound(Arc<[u8]>),
    /// The bytes differ from what was written.
    Damaged,
}

/// Objects that are to be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueDeletions {
    /// With the object store's own name of an unfinished upload.
    pub objects: Vec<(ObjectKey, Option<Box<str>>)>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
}

/// Objects of one job that are looked at, those that are to be deleted last; more are never made by one hand-out.
pub const OBJECTS_MAX: usize = 200;
