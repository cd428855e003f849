//! What is kept beside a job: its checkpoint and sections, and the objects of the object store that belong to it.

use outlast_core::checkpoint::Checkpoint;
use outlast_core::{Object, ObjectKey, Timestamp};
use std::sync::Arc;

/// What attempts have saved for the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    pub checkpoint: Option<Checkpoint>,
    /// The names of the sections, in order.
    pub sections: Vec<Box<str>>,
}

/// An inline result.
#[derive(Clone, Debug, PartialEq)]
pub struct Inline {
    pub body: Arc<str>,
    pub downloads: u64,
}

/// An object as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub object: Object,
    /// Complete, and the job's own; otherwise it is only expected.
    pub kept: bool,
    pub doomed_at: Option<Timestamp>,
    pub downloads: u64,
    /// When its bytes were last found to differ from what was written.
    pub damaged_at: Option<Timestamp>,
}

/// What a read of all bytes of an object found.
#[derive(Clone, Debug, PartialEq)]
pub enum Inspection {
    /// The bytes are those that were written; these are the checksums of their chunks.
    Sound(Arc<[u8]>),
    /// The bytes differ from what was written.
    Damaged,
}

/// Objects that are to be deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doomed {
    /// With the object store's own name of an unfinished upload.
    pub objects: Vec<(ObjectKey, Option<Box<str>>)>,
    /// When the next one is due.
    pub next: Option<Timestamp>,
}

/// Objects of one job that are looked at, those that are to be deleted last; more are never made by one hand-out.
pub const OBJECTS_MAX: usize = 200;
