//! Objects as a store is told of them; no bytes stand behind them.

use std::sync::Arc;

use outlast_core::{JobId, NamespaceId, Object, ObjectKey, Role, Timestamp};

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
        upload: None,
    })
}
