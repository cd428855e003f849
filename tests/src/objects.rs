//! Objects as rows of a store, without bytes; and an object store for those who store nothing.

use std::sync::Arc;

use outlast_core::{JobId, NamespaceId, Object, ObjectKey, Role, Timestamp};
use outlast_store::blobs::location::Location;
use outlast_store::blobs::{BlobTimeouts, Blobs};

/// The key of the object with this number.
pub fn key(number: u64) -> ObjectKey {
    let job = JobId::new(Timestamp::from_millis(1_800_000_000_000), 7);
    ObjectKey { namespace: NamespaceId(1), job, epoch: 1, random: number }
}

/// A result of this length; another number is another object.
pub fn result(number: u64, length: u64) -> Arc<Object> {
    Arc::new(Object {
        key: key(number),
        role: Role::Result,
        length,
        sha256: [7; 32],
        content_type: Some("text/csv".into()),
        filename: Some("report.csv".into()),
        upload: Some("upload-7".into()).filter(|_| number.is_multiple_of(2)),
        parts: u16::try_from(number % 3).unwrap_or(0),
        copied_from: (number % 2 == 1).then_some(u64::MAX - number),
        checksums: Some(Arc::from([1, 0, 255, 7])),
    })
}

/// Where nothing is ever put.
pub fn no_blobs() -> Arc<Blobs> {
    let folder = std::env::temp_dir().join(format!("outlast-no-objects-{}", std::process::id()));
    Arc::new(Blobs::new(Location::Folder(folder), BlobTimeouts::default()).expect("a folder can be made"))
}
