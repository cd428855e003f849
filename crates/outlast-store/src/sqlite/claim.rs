//! Handing out inside the writer: the order comes from the index, the effect from `decide`.

use std::sync::Arc;

use outlast_core::{Command, Status};

use super::faults::Fault;
use super::rows::Record;
use super::write::Transition;
use super::writer::Core;
use crate::jobs::{Claim, Claimed};
use crate::step::{admit, lease_of};

/// A checkpoint in the row, and the names of the sections.
const SAVED_BYTES: &str = "
    SELECT coalesce((SELECT octet_length(data) FROM checkpoint WHERE seq = ?1), 0)
        + coalesce((SELECT sum(octet_length(name) + 3) FROM section WHERE job = ?1), 0)";

impl Core<'_> {
    pub(super) fn claim(&mut self, want: &Claim) -> Result<Option<Claimed>, Fault> {
        let Some(queue) = self.registry.find(want.namespace, &want.queue).cloned() else {
            return Ok(None);
        };
        let running = self.index.counts(queue.id).get(Status::Running);
        let (mut claimed, limit) = admit(queue, want, running, self.now);
        if limit > 0 && !claimed.fit_into(&self.handouts) {
            return Ok(Some(claimed));
        }
        while !claimed.is_full(limit) {
            let Some(seq) = self.index.first(claimed.queue.id) else {
                break;
            };
            match self.hand_out(seq, want, &mut claimed) {
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

    fn hand_out(&mut self, seq: i64, want: &Claim, claimed: &mut Claimed) -> Result<(), Fault> {
        let record = self
            .take(seq)?
            .ok_or_else(|| Fault::Unsound(crate::Error::Corrupt(format!("job row {seq} is indexed but gone"))))?;
        let command = Command::Claim { phase: want.phase, visibility: want.visibility, worker: want.worker.clone() };
        // With each hand-out the queue's rate is used a little more.
        let queue = self.registry.get(claimed.queue.id).cloned().unwrap_or_else(|| Arc::clone(&claimed.queue));
        let (record, transition) = self.transition(record, &queue, command)?;
        if let Transition::Refused(refusal) = transition {
            return Err(Fault::Unsound(crate::Error::Corrupt(format!(
                "job row {seq} is indexed as queued: {refusal}"
            ))));
        }
        if let Transition::Changed { published, .. } = transition {
            claimed.published.extend(published);
        }
        // A job whose time was over while it waited is cancelled by this and not handed out.
        if record.job.status() == Status::Running {
            claimed.wake_at = claimed.wake_at.into_iter().chain(record.wake_at).min();
            claimed.add(record.job.clone(), self.saved_bytes(&record)?);
        } else {
            claimed.ended.push(record.job.id);
        }
        self.keep(record);
        Ok(())
    }

    /// What an answer brings of earlier attempts beside the payload.
    fn saved_bytes(&self, record: &Record) -> Result<usize, Fault> {
        let headway = &record.job.headway;
        if !headway.has_checkpoint && !headway.has_sections {
            return Ok(0);
        }
        let bytes: i64 = self.connection.prepare_cached(SAVED_BYTES)?.query_row([record.seq], |row| row.get(0))?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// The receiver has gone: hand back what it would have got.
    pub(super) fn orphan(&mut self, claimed: Option<Claimed>) {
        let jobs = claimed.into_iter().flat_map(|claimed| claimed.jobs);
        self.orphans.extend(jobs.filter_map(|job| lease_of(&job).map(|lease| (job.id, lease))));
    }
}
