//! Handing out inside the writer: the order comes from the index, the effect from `decide`.

use outlast_core::Status;

use super::faults::Fault;
use super::writer::WriterState;
use crate::checked_decide::{admit, lease_of};
use crate::error::Error;
use crate::jobs::{ClaimRequest, Claimed};
use crate::transition::hand_out;

impl WriterState<'_> {
    pub(super) fn claim(&mut self, want: &ClaimRequest) -> Result<Option<Claimed>, Fault> {
        let Some(queue) = self.registry.find(want.namespace, &want.queue).cloned() else {
            return Ok(None);
        };
        let running = self.index.counts(queue.id).get(Status::Running);
        let (mut claimed, limit) = admit(queue, want, running, self.now, &self.handouts);
        while !claimed.is_full(limit) {
            let Some(seq) = self.index.first(claimed.queue.id) else {
                break;
            };
            let gone = || Error::Corrupt(format!("job row {seq} is indexed but gone"));
            let taken = self.take(seq).and_then(|record| Ok(record.ok_or_else(gone)?));
            match taken.and_then(|record| hand_out(self, record, want, &mut claimed)) {
                // One damaged row must not stop the queue.
                Err(Fault::Unsound(error)) => {
                    self.note_damage(&error);
                    self.index.skip_first(claimed.queue.id);
                }
                done => done?,
            }
        }
        claimed.came_up_short_of(limit);
        claimed.hold(&self.handouts);
        Ok(Some(claimed))
    }

    /// The receiver has gone: hand back what it would have got.
    pub(super) fn orphan(&mut self, claimed: Option<Claimed>) {
        let jobs = claimed.into_iter().flat_map(|claimed| claimed.jobs);
        self.orphans.extend(jobs.filter_map(|job| lease_of(&job).map(|lease| (job.id, lease))));
    }
}
