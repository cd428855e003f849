//! Fresh jobs in memory, so that a job handed out soon after its publish costs no read. Bounded by bytes: when full it
//! takes nothing new, since the oldest entries are the ones that go out next.

use std::collections::HashMap;

use crate::codec::row::JobRecord;

/// The cost of a record beside its payload; an estimate on the high side.
const OVERHEAD_BYTES: u64 = 1200;

#[derive(Debug)]
pub(super) struct Cache {
    records: HashMap<i64, JobRecord>,
    bytes: u64,
    bytes_max: u64,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache { records: HashMap::new(), bytes: 0, bytes_max }
    }

    pub(super) fn put(&mut self, record: JobRecord) {
        let size = size(&record);
        if self.bytes + size <= self.bytes_max {
            self.bytes += size;
            self.records.insert(record.seq, record);
        }
    }

    pub(super) fn take(&mut self, seq: i64) -> Option<JobRecord> {
        let record = self.records.remove(&seq)?;
        self.bytes = self.bytes.saturating_sub(size(&record));
        Some(record)
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }
}

/// Must not depend on what changes while a record is cached, else the sum drifts.
fn size(record: &JobRecord) -> u64 {
    OVERHEAD_BYTES + u64::try_from(record.job.spec.payload.len()).unwrap_or(0)
}
