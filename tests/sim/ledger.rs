//! The answers that clients got. Acknowledged data must be there from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::state::Ending;
use outlast_core::{EventKind, JobId, OutcomeKind, Status};
use outlast_store::jobs::Applied;
use outlast_tests::model::{Row, World};

#[derive(Default)]
pub struct Ledger {
    published: BTreeMap<JobId, Arc<str>>,
    /// How many reports of each kind were accepted, and the version that came with the last one.
    reported: BTreeMap<JobId, Reported>,
}

#[derive(Default)]
struct Reported {
    counts: BTreeMap<&'static str, usize>,
    version: u64,
    acked: bool,
}

impl Ledger {
    pub fn published(&mut self, id: JobId, payload: Arc<str>) {
        self.published.insert(id, payload);
    }

    pub fn jobs(&self) -> Vec<JobId> {
        self.published.keys().copied().collect()
    }

    /// A report that took effect.
    pub fn reported(&mut self, kind: OutcomeKind, applied: &Applied) {
        let reported = self.reported.entry(applied.id).or_default();
        reported.version = reported.version.max(applied.version);
        reported.acked |= kind == OutcomeKind::Ack;
        if applied.changed {
            *reported.counts.entry(kind.ending().as_str()).or_default() += 1;
        }
    }

    /// I-01, I-03: everything acknowledged is there, except expired jobs.
    pub fn check(&self, world: &World, purged: &BTreeSet<JobId>) -> Result<(), String> {
        for (id, payload) in &self.published {
            match world.row(*id) {
                Some(row) if row.job.spec.payload == *payload => {}
                None if purged.contains(id) => {}
                found => return Err(format!("I-01: an acknowledged publish is lost: {id} is {found:?}")),
            }
        }
        for (id, reported) in &self.reported {
            match world.row(*id) {
                Some(row) => reported.check(row)?,
                None if purged.contains(id) => {}
                None => return Err(format!("I-03: the job of an acknowledged report is lost: {id}")),
            }
        }
        Ok(())
    }
}

impl Reported {
    fn check(&self, row: &Row) -> Result<(), String> {
        let job = &row.job;
        let finished = matches!(job.status(), Status::Succeeded | Status::Expired);
        if job.version < self.version || (self.acked && !finished) {
            return Err(format!("I-03: an acknowledged report is lost: {job:?}"));
        }
        for (ending, count) in &self.counts {
            if endings(row, ending) < *count {
                return Err(format!("I-03: {count} reports of {ending} were acknowledged: {:?}", row.events));
            }
        }
        Ok(())
    }
}

fn endings(row: &Row, wanted: &str) -> usize {
    let is_wanted = |ending: Ending| ending.as_str() == wanted;
    row.events
        .iter()
        .filter(|event| matches!(&event.kind, EventKind::Attempt(attempt) if is_wanted(attempt.outcome)))
        .count()
}
