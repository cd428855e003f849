//! The one who pulls the strings: kills and restarts the process, freezes it, cancels, replays, pauses.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::state::CancelReason;
use outlast_core::{Command, JobId};
use outlast_engine::Engine;
use outlast_store::jobs::{JobCommand, Reach};
use outlast_store::operations::{NewOperation, OperationFilter, OperationKind};
use outlast_tests::chance::Chance;
use tokio::time::{advance, sleep};

use crate::run::Sim;

pub async fn operate(sim: Arc<Sim>, mut chance: Chance) {
    for _ in 0..chance.between(3, 12) {
        sleep(Duration::from_millis(chance.below(5000))).await;
        match chance.below(100) {
            0..=29 => {
                sim.server.kill();
                sleep(Duration::from_millis(chance.below(3000))).await;
                sim.server.start();
            }
            // The process is frozen while time goes on: everything that was due in between comes at once.
            30..=39 => advance(Duration::from_millis(chance.below(15_000))).await,
            _ => {
                if let Some(engine) = sim.server.engine() {
                    command(&sim, &mut chance, &engine).await;
                }
            }
        }
    }
}

/// The answer to a command is ignored: the judge sees its effect.
async fn command(sim: &Sim, chance: &mut Chance, engine: &Engine) {
    let jobs = sim.server.witness.ledger().jobs();
    match chance.below(60) {
        0..=19 => {
            if let Some(id) = pick(chance, &jobs) {
                let command = match chance.percent(50) {
                    true => Command::Cancel { reason: CancelReason::User },
                    false => Command::Replay { fresh: false, payload: None },
                };
                let _ = engine.jobs.apply_one(JobCommand { id, reach: Reach::Namespace(sim.namespace), command }).await;
            }
        }
        20..=39 => {
            let kind = if chance.percent(70) { OperationKind::Replay } else { OperationKind::Purge };
            let operation = NewOperation {
                namespace: sim.namespace,
                queue: sim.queue.to_string(),
                kind,
                filter: OperationFilter::default(),
                limit: chance.percent(30).then(|| chance.between(1, 3)),
                rate_per_second: chance.percent(50).then_some(10),
            };
            let _ = engine.jobs.start_operation(operation).await;
        }
        _ => {
            let _ = engine.queues.set_paused(sim.namespace, &sim.queue, true).await;
            sleep(Duration::from_millis(chance.below(2000))).await;
            let _ = engine.queues.set_paused(sim.namespace, &sim.queue, false).await;
        }
    }
}

fn pick(chance: &mut Chance, jobs: &[JobId]) -> Option<JobId> {
    if jobs.is_empty() {
        return None;
    }
    Some(jobs[chance.below(jobs.len() as u64) as usize])
}
