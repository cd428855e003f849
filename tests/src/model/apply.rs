//! Commands on single jobs, and the jobs whose alarm has rung.

use std::sync::Arc;

use outlast_core::gate::loosens;
use outlast_core::inbound_event::EVENT_RETENTION;
use outlast_core::{Status, Timestamp};
use outlast_store::alarms::{AlarmKind, Due};
use outlast_store::jobs::{Applied, Declined, EndedHandout, JobCommand};
use outlast_store::operations::{Operation, OperationStatus};

use super::world::{Done, World};

impl World {
    pub(super) fn apply(&mut self, order: &JobCommand) -> Result<Applied, Declined> {
        let position = *self.positions.get(&order.id).ok_or(Declined::NotFound)?;
        let before = self.rows[&position].job.clone();
        let queue = Arc::clone(self.queue_of(&before));
        if !order.reach.covers(&queue) {
            return Err(Declined::NotFound);
        }
        let done = self.command(position, order.command.clone()).map_err(Declined::Refused)?;
        let row = self.rows.get(&position);
        let job = row.map_or(&before, |row| &row.job);
        let published = match &done {
            Done::Changed { published, .. } => published.clone(),
            Done::Unchanged | Done::Deleted => Vec::new(),
        };
        let loosened = matches!(done, Done::Changed { .. }) && loosens(queue.hold, self.queue_of(&before).hold);
        Ok(Applied {
            id: order.id,
            queue,
            status: job.status(),
            version: job.version,
            changed: !matches!(done, Done::Unchanged),
            deleted: matches!(done, Done::Deleted),
            frees: frees(&done, job.status()) || loosened,
            stalled: matches!(done, Done::Changed { stalled: true, .. }),
            published,
            set_aside: false,
            wake_at: row.and_then(|row| row.wake_at),
            ended: row.and_then(|row| {
                EndedHandout::between(before.running().map(|running| running.began_at), &row.job, self.now)
            }),
            running: (job.status() == Status::Running).then(|| Box::new(job.clone())),
        })
    }

    pub(super) fn due(&self, limit: usize) -> Due {
        let mut alarms: Vec<_> =
            self.rows.iter().filter_map(|(at, row)| Some((row.wake_at?, *at, row.job.id))).collect();
        alarms.sort();
        let rung = alarms.iter().take_while(|(at, _, _)| *at <= self.now).count().min(limit);
        let jobs = alarms[..rung].iter().map(|(_, _, id)| *id).collect();
        Due { jobs, next: alarms.get(rung).map(|(at, _, _)| *at), others: self.other_alarms() }
    }

    fn other_alarms(&self) -> Vec<(AlarmKind, Timestamp)> {
        let objects = self.objects.values().filter_map(|(_, stored)| stored.delete_after).min();
        let events = self.inbound_events.iter().map(|(_, inbound_event)| inbound_event.at.plus(EVENT_RETENTION)).min();
        let is_open = |operation: &&Operation| operation.status == OperationStatus::Running;
        let operations = self.operations.values().filter(is_open).map(|operation| operation.created_at).min();
        let firsts = [(AlarmKind::Object, objects), (AlarmKind::Event, events), (AlarmKind::Operation, operations)];
        firsts.into_iter().filter_map(|(kind, at)| Some((kind, at?))).collect()
    }
}

/// Is there something new to hand out: this job, or another one in the room it leaves?
fn frees(done: &Done, after: Status) -> bool {
    match done {
        Done::Changed { before, .. } => {
            after == Status::Queued || (*before == Status::Running && after != Status::Running)
        }
        Done::Unchanged | Done::Deleted => false,
    }
}
