//! Handing out: ask the gate how many, take the first in order.

use outlast_core::checkpoint::CheckpointData;
use outlast_core::gate::Gate;
use outlast_core::{Command, Status};
use outlast_store::jobs::{ClaimRequest, Claimed};

use super::world::{Done, Row, World};

/// A checkpoint in the row, and the names of the sections.
fn saved_bytes(row: &Row) -> usize {
    let checkpoint = match row.checkpoint.as_ref().map(|checkpoint| &checkpoint.data) {
        Some(CheckpointData::Inline(text)) => text.len(),
        _ => 0,
    };
    checkpoint + row.sections.keys().map(|name| name.len() + 3).sum::<usize>()
}

impl World {
    pub(super) fn claim(&mut self, want: &ClaimRequest) -> Option<Claimed> {
        let queue = self.find_queue(want.namespace, &want.queue)?;
        let runs = |row: &&Row| row.job.queue == queue.id && row.job.status() == Status::Running;
        let running = self.rows.values().filter(runs).count() as u64;
        let gate = (self.rules.gate)(&queue, want.phase, running, self.now);
        let mut claimed = Claimed::none(queue);
        let limit = match gate {
            Gate::Open { limit, more_at } => {
                claimed.held_until = more_at.filter(|_| limit as usize <= want.limit);
                want.limit.min(limit as usize)
            }
            Gate::Probe => want.limit.min(1),
            Gate::Shut => 0,
            Gate::PushOnly => {
                claimed.push_only = true;
                0
            }
            Gate::HeldUntil(until) => {
                claimed.held_until = Some(until);
                0
            }
        };
        while !claimed.is_full(limit) {
            let Some(position) = self.first(&claimed) else {
                break;
            };
            let command =
                Command::Claim { phase: want.phase, visibility: want.visibility, worker: want.worker.clone() };
            match self.command(position, command) {
                Ok(Done::Changed { published, .. }) => claimed.published.extend(published),
                Ok(Done::Unchanged | Done::Deleted) => {}
                Err(refusal) => panic!("a queued job was not handed out: {refusal}"),
            }
            // A job that timed out while it waited has been cancelled instead.
            let row = &self.rows[&position];
            if row.job.status() == Status::Running {
                let (job, wake_at, saved) = (row.job.clone(), row.wake_at, saved_bytes(row));
                claimed.add(job, saved);
                claimed.wake_at = claimed.wake_at.into_iter().chain(wake_at).min();
            } else {
                claimed.ended.push(row.job.id);
            }
        }
        claimed.came_up_short_of(limit);
        Some(claimed)
    }

    /// The first in order; the older one where all else is equal.
    fn first(&self, claimed: &Claimed) -> Option<u64> {
        let of_queue = self.rows.iter().filter(|(_, row)| row.job.queue == claimed.queue.id);
        let ranked = of_queue.filter_map(|(position, row)| Some(((self.rules.rank)(&row.job)?, *position)));
        ranked.min().map(|(_, position)| position)
    }
}
