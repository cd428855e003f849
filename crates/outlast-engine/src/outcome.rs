//! Commands on jobs: reports from holders, cancel, replay, and the alarms the sweep serves. Whatever a command frees is
//! announced here, in one place.

use std::sync::atomic::Ordering;

use outlast_core::system_queue::SYSTEM_QUEUES;
use outlast_core::{Command, JobId, NamespaceId, OutcomeKind, Refusal, Status};
use outlast_store::Error;
use outlast_store::jobs::{Applied, Declined, Order};

use crate::engine::Engine;

impl Engine {
    /// Carries out each order on its own; durable when it returns. Answers in order.
    pub async fn apply(&self, orders: Vec<Order>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        self.tick();
        self.commit(|engine| async move {
            let named: Vec<_> = orders.iter().map(Named::of).collect();
            let answers = engine.shared.store.apply(orders).await;
            if matches!(answers, Err(Error::Indeterminate)) {
                named.iter().for_each(|named| engine.announce_maybe_applied(named));
            }
            let answered = answers?.into_iter().zip(named).map(|(answer, named)| {
                if let Ok(applied) = &answer {
                    engine.announce(applied);
                }
                // The job has failed, and the caller hears that its command had no effect.
                let answer = match answer {
                    Ok(applied) if applied.set_aside => Err(Declined::Refused(Refusal::SetAside)),
                    answer => answer,
                };
                engine.count(&answer, named.kind);
                answer
            });
            Ok(answered.collect())
        })
        .await
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
            self.shared.progress.forget(applied.id);
            self.may_have_scheduled_deletions();
        }
        if applied.deleted || applied.status == Status::Expired {
            // Also what was there before this process.
            self.has_scheduled_deletions();
        }
        self.shared.notifier.job_changed(applied.queue.namespace, &applied.queue.name, applied.id);
        self.jobs_published(applied.queue.namespace, &applied.published);
        if applied.queue.hold.is_some() && (applied.frees || applied.deleted) {
            // The end of a probe, or its receipt, may open the whole queue, not only make room for one. `queue` is as it was
            // before the command.
            self.shared.notifier.queue_changed(applied.queue.namespace, &applied.queue.name);
        } else if applied.frees {
            self.shared.notifier.jobs_ready(applied.queue.namespace, &applied.queue.name, 1);
        }
    }

    /// The store could not say whether a command was committed: those who may be concerned look.
    fn announce_maybe_applied(&self, named: &Named) {
        let shared = &self.shared;
        shared.progress.invalidate([&named.id]);
        shared.sweep.look_now();
        self.may_have_scheduled_deletions();
        if let Some(namespace) = named.namespace {
            SYSTEM_QUEUES.iter().for_each(|queue| shared.push.look_for(namespace, queue.name));
        }
        shared.notifier.job_changed_somewhere(named.id);
        shared.notifier.namespace_changed(named.namespace);
    }

    fn count(&self, answer: &Result<Applied, Declined>, kind: Option<OutcomeKind>) {
        let counters = &self.shared.counters;
        match (answer, kind) {
            (Err(_), Some(_)) => counters.refused_reports.add(1),
            (Ok(applied), Some(kind)) if applied.changed => match kind {
                OutcomeKind::Ack => counters.acked.add(1),
                OutcomeKind::Nack => counters.nacked.add(1),
                OutcomeKind::Defer => counters.deferred.add(1),
                OutcomeKind::Release => counters.released.add(1),
                OutcomeKind::Cancelled => {}
            },
            _ => {}
        }
    }
}

/// What is known of an order whatever becomes of it.
struct Named {
    id: JobId,
    /// `None` for the loops, which work for all namespaces.
    namespace: Option<NamespaceId>,
    kind: Option<OutcomeKind>,
}

impl Named {
    fn of(order: &Order) -> Named {
        Named { id: order.id, namespace: order.reach.namespace(), kind: kind(&order.command) }
    }
}

fn kind(command: &Command) -> Option<OutcomeKind> {
    match command {
        Command::Report { outcome, .. } => Some(outcome.kind()),
        _ => None,
    }
}
