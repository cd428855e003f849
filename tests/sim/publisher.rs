//! A client that publishes. With a key it tries again until it has an answer; without one it does not dare to.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, Spec};
use outlast_store::Error;
use outlast_store::jobs::{NewJob, Published};
use outlast_tests::chance::Chance;
use tokio::time::{sleep, timeout};

use crate::run::Sim;

pub async fn publish(sim: Arc<Sim>, name: u64, mut chance: Chance) {
    let count = chance.between(2, 6);
    for number in 0..count {
        sleep(Duration::from_millis(chance.below(4000))).await;
        let spec = Arc::new(spec(&sim, &mut chance, name, number));
        // Batches are stored in one step, so a lost answer leaves all of it in doubt.
        let batch = chance.between(1, 2);
        publish_until_answered(&sim, &mut chance, &spec, batch).await;
    }
}

fn spec(sim: &Sim, chance: &mut Chance, name: u64, number: u64) -> Spec {
    let now = sim.clock.now();
    let key = match chance.below(10) {
        0..=1 => None,
        // A key that others use as well.
        2..=5 => Some(format!("shared-{}", chance.below(4))),
        _ => Some(format!("{name}-{number}")),
    };
    let payload = match &key {
        Some(key) => format!("\"{key}\""),
        None => format!("\"{name}-{number}\""),
    };
    Spec {
        payload: payload.into(),
        idempotency_key: key.map(Into::into),
        priority: [0, 0, 5, -5][chance.below(4) as usize],
        callback_url: (sim.calls_back && chance.percent(50)).then(|| "http://caller.test/done".into()),
        not_before: chance.percent(30).then(|| now.plus(Duration::from_millis(chance.below(6000)))),
        ..Spec::default()
    }
}

async fn publish_until_answered(sim: &Sim, chance: &mut Chance, spec: &Arc<Spec>, batch: u64) {
    let new = NewJob { namespace: sim.namespace, queue: Arc::clone(&sim.queue), spec: Arc::clone(spec) };
    loop {
        let answer = match sim.server.engine() {
            None => Err(Error::Stopped),
            Some(engine) => {
                let call = engine.jobs.publish((0..batch).map(|_| new.clone()).collect());
                match sim.patience(chance) {
                    // The client hangs up: the call is dropped wherever it is.
                    Some(patience) => timeout(patience, call).await.unwrap_or(Err(Error::Indeterminate)),
                    None => call.await,
                }
            }
        };
        match answer {
            Ok(published) => return note(sim, spec, &published),
            Err(Error::Indeterminate) if spec.idempotency_key.is_none() => return,
            Err(_) => sleep(Duration::from_millis(chance.between(10, 500))).await,
        }
    }
}

fn note(sim: &Sim, spec: &Spec, published: &[Published]) {
    let mut ledger = sim.server.witness.ledger();
    for answer in published {
        match answer {
            Published::Created { job, .. } | Published::Existing { job, .. } => {
                ledger.published(job.id, Arc::clone(&spec.payload));
            }
            other => sim.server.witness.fail(format!("a publish got {other:?}")),
        }
    }
    // I-09: one key, one job, also within a batch.
    let same = published.windows(2).all(|pair| id(&pair[0]) == id(&pair[1]));
    if spec.idempotency_key.is_some() && !same {
        sim.server.witness.fail(format!("I-09: one key made two jobs: {published:?}"));
    }
}

fn id(answer: &Published) -> Option<outlast_core::JobId> {
    match answer {
        Published::Created { job, .. } | Published::Existing { job, .. } => Some(job.id),
        _ => None,
    }
}
