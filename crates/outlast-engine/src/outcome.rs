//! Commands on jobs: reports from holders, cancel, replay, and the alarms the sweep serves. Whatever a command frees is
//! announced here, in one place.

use std::sync::atomic::Ordering;

use outlast_core::{Command, OutcomeKind, Status};
use outlast_store::Error;
use outlast_store::jobs::{Applied, Declined, Order};

use crate::engine::Engine;

impl Engine {
    /// Carries out each order on its own; durable when it returns. Answers in order.
    pub async fn apply(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        self.give_sign();
        let kinds: Vec<Option<OutcomeKind>> = orders.iter().map(|order| kind(&order.command)).collect();
        let unheard = self.unheard(orders.iter().map(|order| order.reach.namespace()).collect());
        let answers = unheard.heard(self.shared.store.apply(orders).await)?;
        for (answer, kind) in answers.iter().zip(kinds) {
            self.count(answer, kind);
            if let Ok(applied) = answer {
                self.announce(applied);
            }
        }
        Ok(answers)
    }

    /// One order.
    pub async fn apply_one(&self, order: Order) -> Result<Result<Applied, Declined>, Error> {
        let answer = self.apply(vec![order]).await?.pop();
        Ok(answer.unwrap_or(Err(Declined::NotFound)))
    }

    fn announce(&self, applied: &Applied) {
        if !applied.changed {
            return;
        }
        self.note_alarm(applied.wake_at);
        if applied.running.as_ref().is_some_and(|job| job.headway.has_checkpoint || job.headway.has_upload) {
            self.shared.has_objects.store(true, Ordering::Relaxed);
        }
        if applied.status != Status::Running {
            self.shared.reports.forget(applied.id);
            self.may_have_doomed();
        }
        if applied.deleted || applied.status == Status::Expired {
            // Also what was there before this process.
            self.shared.doomed.notify_one();
        }
        self.shared.wakes.job_changed(applied.queue.namespace, &applied.queue.name, applied.id);
        if applied.callback {
            self.callbacks_wait(applied.queue.namespace);
        }
        if applied.queue.hold.is_some() && (applied.frees || applied.deleted) {
            // The end of a probe, or its receipt, may open the whole queue, not only make room for one. `queue` is as it was
            // before the command.
            self.shared.wakes.queue_changed(applied.queue.namespace, &applied.queue.name);
        } else if applied.frees {
            self.shared.wakes.queue_has(applied.queue.namespace, &applied.queue.name, 1);
        }
    }

    fn count(&self, answer: &Result<Applied, Declined>, kind: Option<OutcomeKind>) {
        let meters = &self.shared.meters;
        match (answer, kind) {
            (Err(_), Some(_)) => meters.refused_reports.add(1),
            (Ok(applied), Some(kind)) if applied.changed => match kind {
                OutcomeKind::Ack => meters.acked.add(1),
                OutcomeKind::Nack => meters.nacked.add(1),
                OutcomeKind::Defer => meters.deferred.add(1),
                OutcomeKind::Release => meters.released.add(1),
                OutcomeKind::Cancelled => {}
            },
            _ => {}
        }
    }
}

fn kind(command: &Command) -> Option<OutcomeKind> {
    match command {
        Command::Report { outcome, .. } => Some(outcome.kind()),
        _ => None,
    }
}
