//! Data that an attempt saves for the next one: one checkpoint, replaced as a whole, and named sections, each finished
//! once.

use std::sync::Arc;

use crate::object::Object;
use crate::time::Timestamp;

/// Sections one job may have.
pub const SECTIONS_MAX: usize = 1000;
/// Longest name of a section, in bytes.
pub const SECTION_NAME_MAX: usize = 128;

/// Where to go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The worker's own number for the form of what is saved.
    pub schema_version: u32,
    pub data: CheckpointData,
    /// When, after how many replays and in which attempt it was saved.
    pub at: Timestamp,
    pub replays: u32,
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointData {
    /// JSON text, kept byte for byte.
    Inline(Arc<str>),
    Object(Arc<Object>),
}

impl Checkpoint {
    /// Can a worker go on from it that takes only these forms? One that names none takes any.
    pub fn is_taken_by(&self, accepted: Option<&[u32]>) -> bool {
        accepted.is_none_or(|versions| versions.contains(&self.schema_version))
    }

    pub fn length(&self) -> u64 {
        match &self.data {
            CheckpointData::Inline(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
            CheckpointData::Object(object) => object.length,
        }
    }
}

/// One finished part of the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    pub name: Box<str>,
    /// JSON text, kept byte for byte.
    pub body: Arc<str>,
    pub at: Timestamp,
}

/// `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`.
pub fn is_section_name(name: &str) -> bool {
    let starts_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    starts_well
        && name.len() <= SECTION_NAME_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sections_follow_the_rule() {
        let long = "a".repeat(129);
        for (name, good) in [
            ("s-140", true),
            ("a:b.c_d", true),
            ("1", true),
            ("", false),
            ("-a", false),
            ("a/b", false),
            (&long, false),
        ] {
            assert_eq!(is_section_name(name), good, "{name}");
        }
    }
}
