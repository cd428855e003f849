//! A client that works: takes jobs and ends them in every way there is, in time, too late, or never.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::queue::DeferScope;
use outlast_core::state::Phase;
use outlast_core::{Command, Evidence, Job, JobId, Lease, Outcome, OutcomeKind, Refusal, State};
use outlast_store::jobs::{ClaimRequest, Declined, JobCommand, Reach};
use outlast_tests::chance::Chance;
use tokio::time::{sleep, timeout};

use crate::run::Sim;

/// Longer than the rest of a run: a worker that is not woken never works again.
const LONG_POLL: Duration = Duration::from_secs(3600);
const REPORTS_MAX: u32 = 6;

pub async fn work(sim: Arc<Sim>, mut chance: Chance) {
    while !sim.has_ended() {
        let Some(engine) = sim.server.engine() else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let want = ClaimRequest {
            namespace: sim.namespace,
            queue: Arc::clone(&sim.queue),
            limit: chance.between(1, 2) as usize,
            phase: Phase::Leased,
            visibility: None,
            worker: None,
        };
        let call = engine.jobs.claim(want, LONG_POLL);
        let answer = match sim.patience(&mut chance) {
            Some(patience) => timeout(patience, call).await.ok(),
            None => Some(call.await),
        };
        match answer {
            Some(Ok(Some(claimed))) => {
                for job in &claimed.jobs {
                    handle(&sim, &mut chance, job).await;
                }
            }
            Some(Ok(None)) => sim.server.witness.fail("the queue is gone".to_owned()),
            Some(Err(_)) => sleep(Duration::from_millis(chance.between(10, 300))).await,
            None => {}
        }
    }
}

async fn handle(sim: &Sim, chance: &mut Chance, job: &Job) {
    let State::Running(running) = &job.state else {
        return sim.server.witness.fail(format!("a job was handed out that does not run: {job:?}"));
    };
    let lease = running.lease;
    if sim.server.faults.is_calm() {
        return report(sim, chance, job.id, lease, Outcome::Ack { result: None }).await;
    }
    sleep(Duration::from_millis(chance.below(1500))).await;
    let outcome = match chance.below(100) {
        0..=39 => Outcome::Ack { result: chance.percent(30).then(|| "1".into()) },
        40..=51 => Outcome::Nack { retryable: true, delay: None },
        52..=56 => Outcome::Nack { retryable: false, delay: None },
        57..=66 => Outcome::Defer {
            retry_after: Some(Duration::from_millis(chance.below(3000))),
            scope: chance.percent(50).then_some(DeferScope::Queue),
            cause: HoldCause::Deferred,
        },
        67..=72 => Outcome::Release,
        // Vanishes: the lease runs out.
        73..=82 => return,
        // Comes back when the lease has long been lost, and perhaps given to another.
        _ => {
            sleep(running.extension + Duration::from_millis(chance.below(4000))).await;
            Outcome::Ack { result: None }
        }
    };
    report(sim, chance, job.id, lease, outcome).await;
}

/// Reports until there is an answer. The same report may be repeated: it never conflicts with itself.
pub async fn report(sim: &Sim, chance: &mut Chance, id: JobId, lease: Lease, outcome: Outcome) {
    let kind = outcome.kind();
    for attempt in 0..REPORTS_MAX {
        let Some(engine) = sim.server.engine() else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let command = Command::Report { lease: Some(lease), outcome: outcome.clone(), evidence: Evidence::default() };
        let call = engine.jobs.apply_one(JobCommand { id, reach: Reach::Namespace(sim.namespace), command });
        let answer = match sim.patience(chance) {
            Some(patience) => timeout(patience, call).await.ok(),
            None => Some(call.await),
        };
        match answer {
            Some(Ok(Ok(applied))) => return sim.server.witness.ledger().reported(kind, &applied),
            Some(Ok(Err(declined))) => return check_declined(sim, id, kind, attempt, &declined),
            Some(Err(_)) | None => sleep(Duration::from_millis(chance.between(10, 300))).await,
        }
    }
}

fn check_declined(sim: &Sim, id: JobId, kind: OutcomeKind, attempt: u32, declined: &Declined) {
    let is_expected = match declined {
        Declined::Refused(Refusal::LeaseLost) => true,
        // The endpoint's own answer was the outcome of this hand-out already, or was lost.
        Declined::Refused(Refusal::OutcomeConflict { .. }) => sim.calls_back,
        // Purged while the worker slept.
        Declined::NotFound => true,
        _ => false,
    };
    if !is_expected {
        sim.server.witness.fail(format!("report {attempt} of {kind:?} on {id} got {declined:?}"));
    }
}
