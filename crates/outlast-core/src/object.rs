//! Objects: results and checkpoints too large for the database, kept in an object store under keys that only we make.
//! Every object is known to the store before its first byte is written, so nothing has to be searched for to be deleted.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{JobId, NamespaceId, NotAnId};

/// How long the bytes of an object that is no longer needed stay: longer than an upload link is valid, so that late
/// uploads are deleted as well.
pub const DELETE_DELAY: Duration = Duration::from_secs(3600);

/// `namespace/job/epoch/random`. Made of numbers; no text of a user ever gets into a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: NamespaceId,
    pub job: JobId,
    /// The hand-out it was written in.
    pub epoch: u64,
    pub random: u64,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{:016x}", self.namespace.0, self.job, self.epoch, self.random)
    }
}

impl FromStr for ObjectKey {
    type Err = NotAnId;

    /// Exactly what `Display` writes.
    fn from_str(text: &str) -> Result<ObjectKey, NotAnId> {
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(NotAnId);
        let (namespace, job, epoch, random) = (next()?, next()?, next()?, next()?);
        let key = ObjectKey {
            namespace: NamespaceId(namespace.parse().map_err(|_| NotAnId)?),
            job: job.parse()?,
            epoch: epoch.parse().map_err(|_| NotAnId)?,
            random: u64::from_str_radix(random, 16).map_err(|_| NotAnId)?,
        };
        if key.to_string() == text { Ok(key) } else { Err(NotAnId) }
    }
}

/// The purpose of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Result,
    Checkpoint,
}

impl Role {
    /// The order is the stored form: append only.
    pub const ALL: [Role; 2] = [Role::Result, Role::Checkpoint];
}

/// An object as the store knows it. Length and digest are known once it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub key: ObjectKey,
    pub role: Role,
    pub length: u64,
    pub sha256: [u8; 32],
    pub content_type: Option<Box<str>>,
    /// As the worker called it; only ever shown.
    pub filename: Option<Box<str>>,
    /// The object store's own name of an upload in parts, for ending it.
    pub upload: Option<Box<str>>,
    /// How many parts were announced for it; 0 for an upload in one piece.
    pub parts: u16,
    /// The number of the announced upload that it is a copy of.
    pub copied_from: Option<u64>,
    /// Checksums of its chunks, in the form that the object store's port writes. Known once it is written.
    pub checksums: Option<Arc<[u8]>>,
}

/// A digest as people and protocols write it.
pub fn digest_text(sha256: &[u8]) -> String {
    sha256.iter().fold(String::with_capacity(2 * sha256.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_key_is_read_back_from_what_it_is_written_as_and_from_nothing_else() {
        let key = ObjectKey {
            namespace: NamespaceId(7),
            job: JobId::new(Timestamp::from_millis(1_000), 5),
            epoch: 3,
            random: 0xabc,
        };
        let text = key.to_string();

        assert_eq!(text.parse(), Ok(key));
        for wrong in
            ["", "/", "7", &text.replace('7', "07"), &text.to_uppercase(), &format!("{text}/x"), &format!("../{text}")]
        {
            assert_eq!(wrong.parse::<ObjectKey>(), Err(NotAnId), "{wrong}");
        }
    }
}
