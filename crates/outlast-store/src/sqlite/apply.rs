//! The jobs whose alarm has rung, and deliveries that a crash interrupted.

use outlast_core::JobId;

use super::faults::Fault;
use super::writer::WriterState;
use crate::alarms::Due;

impl WriterState<'_> {
    pub(super) fn due(&mut self, limit: usize) -> Result<Due, Fault> {
        let (rows, next) = self.index.due(self.now, limit);
        let mut due = Due { jobs: Vec::with_capacity(rows.len()), next, others: self.other_alarms()? };
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
