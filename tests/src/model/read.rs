//! Reading: single jobs, lists, events, results.

use std::sync::Arc;

use outlast_core::{Event, JobId};
use outlast_store::jobs::{Found, JobPage, ListJobs, Reach};

use super::world::{Row, World};

impl World {
    pub(super) fn job(&self, reach: &Reach, id: JobId) -> Option<Found> {
        self.reached(reach, id).map(|row| self.found(row))
    }

    pub(super) fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Option<Vec<Event>> {
        let row = self.reached(reach, id)?;
        Some(row.events.iter().filter(|event| event.seq > after).take(limit).cloned().collect())
    }

    pub(super) fn result(&self, reach: &Reach, id: JobId) -> Option<Arc<str>> {
        self.reached(reach, id)?.result.clone()
    }

    pub(super) fn jobs(&self, list: &ListJobs) -> JobPage {
        let older = self.rows.range(..list.before.unwrap_or(u64::MAX)).rev();
        let mut matching = older.filter(|(_, row)| self.matches(list, row)).peekable();
        let page: Vec<_> = matching.by_ref().take(list.limit).collect();
        let next = matching.peek().and_then(|_| page.last()).map(|(position, _)| **position);
        JobPage { jobs: page.into_iter().map(|(_, row)| self.found(row)).collect(), next }
    }

    fn matches(&self, list: &ListJobs, row: &Row) -> bool {
        let (job, queue) = (&row.job, self.queue_of(&row.job));
        let has =
            |tag: &(String, String)| job.spec.tags.iter().any(|(name, value)| **name == *tag.0 && **value == *tag.1);
        list.reach.covers(queue)
            && list.queue.as_ref().is_none_or(|name| *name == queue.name)
            && list.status.is_none_or(|status| job.status() == status)
            && list.key.as_ref().is_none_or(|key| job.spec.key.as_deref() == Some(key))
            && list.tags.iter().all(has)
    }

    fn reached(&self, reach: &Reach, id: JobId) -> Option<&Row> {
        self.row(id).filter(|row| reach.covers(self.queue_of(&row.job)))
    }

    fn found(&self, row: &Row) -> Found {
        Found { job: row.job.clone(), queue: Arc::clone(self.queue_of(&row.job)) }
    }
}
