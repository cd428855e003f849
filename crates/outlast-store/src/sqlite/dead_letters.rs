//! Dead letters of a queue, the latest failure first. A list leaves out rows that are damaged.

use std::sync::Arc;

use outlast_core::Timestamp;
use rusqlite::params;

use super::read::SnapshotReader;
use super::write::unreadable;
use crate::dead_letters::{DeadLetterPage, Failure, ListDeadLetters};
use crate::error::Error;
use crate::jobs::FoundJob;
use crate::page::{EncodedSize, PageSize};

const LATEST_FAILURES: &str = "
    SELECT seq, state_at
    FROM job INDEXED BY job_failed_at
    WHERE queue = ?1 AND status = 4 AND (state_at, seq) < (?2, ?3)
    ORDER BY state_at DESC, seq DESC
    LIMIT ?4";

impl SnapshotReader<'_> {
    pub(super) fn dead_letters(&self, list: &ListDeadLetters) -> Result<DeadLetterPage, Error> {
        let mut page = DeadLetterPage { jobs: Vec::new(), next: None };
        let queue = list.reach.namespace().and_then(|namespace| self.queues.find(namespace, &list.queue));
        let Some(queue) = queue.filter(|queue| list.reach.covers(queue)) else {
            return Ok(page);
        };
        let failures = self.failures(queue.id.0, list)?;
        let mut size = PageSize::default();
        for failure in &failures {
            let mut record = match self.row(failure.position.cast_signed()) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                Err(Error::Corrupt(what)) => {
                    self.damage.note(&what);
                    continue;
                }
                Err(error) => return Err(error),
            };
            size.add(record.job.written());
            Arc::make_mut(&mut record.job.spec).payload = "".into();
            page.jobs.push(FoundJob { job: record.job, queue: Arc::clone(&queue) });
            if size.is_full() {
                page.next = Some(*failure);
                return Ok(page);
            }
        }
        page.next = failures.last().copied().filter(|_| failures.len() >= list.limit);
        Ok(page)
    }

    fn failures(&self, queue: u32, list: &ListDeadLetters) -> Result<Vec<Failure>, Error> {
        let before = list.before.map(|before| (before.at.as_millis(), before.position.cast_signed()));
        let (at, seq) = before.unwrap_or((i64::MAX, i64::MAX));
        let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare_cached(LATEST_FAILURES).map_err(unreadable)?;
        let mut rows = statement.query(params![queue, at, seq, limit]).map_err(unreadable)?;
        let mut failures = Vec::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            let position: i64 = row.get(0).map_err(unreadable)?;
            let at = Timestamp::from_millis(row.get(1).map_err(unreadable)?);
            failures.push(Failure { at, position: position.cast_unsigned() });
        }
        Ok(failures)
    }
}
