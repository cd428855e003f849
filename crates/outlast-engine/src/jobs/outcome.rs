//! Commands on jobs: outcomes of holders, cancel, replay, and the alarms that the sweep serves.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Command, OutcomeKind, Refusal};
use outlast_store::Error;
use outlast_store::jobs::{Applied, Declined, JobCommand};
use tokio::time::Instant;

use super::Jobs;

impl Jobs {
    /// Carries out each order on its own; durable when it returns. Answers in order. A dropped call goes on and is announced.
    pub async fn apply(self: &Arc<Self>, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        self.pause_detector.tick(&*self.clock);
        let jobs = Arc::clone(self);
        let call = async move {
            let named: Vec<_> =
                orders.iter().map(|order| (order.id, order.reach.namespace(), kind(&order.command))).collect();
            let began = Instant::now();
            let answers = jobs.store.apply(orders).await;
            let commit = began.elapsed();
            if matches!(answers, Err(Error::Indeterminate)) {
                named.iter().for_each(|(id, namespace, _)| jobs.announcer.maybe_applied(*id, *namespace));
            }
            let answered = answers?.into_iter().zip(named).map(|(answer, (_, _, kind))| {
                if let Ok(applied) = &answer {
                    jobs.announcer.applied(applied);
                    jobs.measure(applied, kind.map(|_| commit));
                }
                // The job has failed, and the caller learns that its command had no effect.
                let answer = match answer {
                    Ok(applied) if applied.set_aside => Err(Declined::Refused(Refusal::SetAside)),
                    answer => answer,
                };
                jobs.count(&answer, kind);
                answer
            });
            Ok(answered.collect())
        };
        self.detached.commit(call).await
    }

    /// One order.
    pub async fn apply_one(self: &Arc<Self>, order: JobCommand) -> Result<Result<Applied, Declined>, Error> {
        let answer = self.apply(vec![order]).await?.pop();
        Ok(answer.unwrap_or(Err(Declined::NotFound)))
    }

    /// `commit` is how long a report took.
    fn measure(&self, applied: &Applied, commit: Option<Duration>) {
        if !applied.changed {
            return;
        }
        let figures = self.announcer.counters.queues.of(applied.queue.namespace, applied.queue.id);
        if let Some(commit) = commit {
            figures.commit.record(commit);
        }
        if let Some(ended) = &applied.ended {
            figures.work.record(ended.duration);
            figures.leases_lost.add(usize::from(ended.is_lost()));
        }
    }

    fn count(&self, answer: &Result<Applied, Declined>, kind: Option<OutcomeKind>) {
        let counters = &self.announcer.counters;
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

fn kind(command: &Command) -> Option<OutcomeKind> {
    match command {
        Command::Report { outcome, .. } => Some(outcome.kind()),
        _ => None,
    }
}
