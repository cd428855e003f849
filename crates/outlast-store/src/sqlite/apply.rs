//! Commands on single jobs inside the writer, and the jobs whose alarm has rung.

use outlast_core::{JobId, Status};

use super::faults::Fault;
use super::write::Transition;
use super::writer::Core;
use crate::jobs::{Applied, Declined, Due, Order};

impl Core<'_> {
    pub(super) fn apply(&mut self, orders: &[Order]) -> Result<Vec<Result<Applied, Declined>>, Fault> {
        orders.iter().map(|order| self.apply_one(order)).collect()
    }

    fn apply_one(&mut self, order: &Order) -> Result<Result<Applied, Declined>, Fault> {
        let Some(record) = self.take_by_id(order.id)? else {
            return Ok(Err(Declined::NotFound));
        };
        let Some(queue) = self.registry.get(record.job.queue).filter(|queue| order.reach.covers(queue)).cloned() else {
            self.keep(record);
            return Ok(Err(Declined::NotFound));
        };
        let (record, transition) = self.transition(record, &queue, order.command.clone())?;
        let mut applied = Applied {
            id: order.id,
            queue,
            status: record.job.status(),
            version: record.job.version,
            changed: false,
            deleted: false,
            frees: false,
            stalled: false,
            published: Vec::new(),
            wake_at: record.wake_at,
            running: (record.job.status() == Status::Running).then(|| Box::new(record.job.clone())),
        };
        match transition {
            Transition::Refused(refusal) => {
                self.keep(record);
                return Ok(Err(Declined::Refused(refusal)));
            }
            Transition::Unchanged => self.keep(record),
            Transition::Changed { frees, stalled, published } => {
                applied.changed = true;
                applied.frees = frees;
                applied.stalled = stalled;
                applied.published = published;
                self.keep(record);
            }
            Transition::Deleted => {
                applied.changed = true;
                applied.deleted = true;
                applied.wake_at = None;
            }
        }
        Ok(Ok(applied))
    }

    pub(super) fn due(&mut self, limit: usize) -> Result<Due, Fault> {
        let (rows, next) = self.index.due(self.now, limit);
        let mut due = Due { jobs: Vec::with_capacity(rows.len()), next };
        for seq in rows {
            match self.take(seq) {
                Ok(Some(record)) => {
                    due.jobs.push(record.job.id);
                    self.keep(record);
                }
                Ok(None) => {
                    self.damage.note(&format!("job row {seq}: it is indexed but gone"));
                    self.index.silence(seq);
                }
                // One damaged row must not stop the alarms of all others.
                Err(Fault::Unsound(error)) => {
                    self.note_damage(&error);
                    self.index.silence(seq);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(due)
    }

    pub(super) fn interrupted(&mut self) -> Result<Vec<JobId>, Fault> {
        let mut jobs = Vec::new();
        for seq in self.interrupted.clone() {
            match self.take(seq) {
                Ok(record) => {
                    jobs.extend(record.as_ref().map(|record| record.job.id));
                    record.into_iter().for_each(|record| self.keep(record));
                }
                // Listed already; its alarm is silenced when it rings.
                Err(Fault::Unsound(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(jobs)
    }
}
