//! The simulator with queues that deliver: the real dispatcher on the model store, endpoints that are drawn from the
//! seed, kills and faults of the store as ever, and callbacks for half of the jobs.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::queue::{DeferScope, Mode, RateLimit};
use outlast_core::retry::Backoff;
use outlast_core::system_queue::{CALLBACKS, system_queue};
use outlast_core::{JobId, Lease, Outcome, QueueSettings};
use outlast_tests::chance::{Chance, volume};
use outlast_tests::seeds;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::outside::Outside;
use crate::planted::{PUSH_BUGS, Plant};
use crate::run::{self, Sim};
use crate::worker;

const SEEDS: usize = 600;
const SEEDS_IN_SOAK: usize = 300_000;
/// Seeds a bug may survive before the simulator counts as blind to it.
const PATIENCE: u64 = 150;

/// F15, I-14, I-16, I-17, I-18, I-25, I-27, I-28.
#[test]
fn the_promises_of_deliveries_hold_under_faults() {
    let run = |seed| check(Plant::Nothing, seed).map(drop);
    seeds::all_hold(volume(SEEDS, SEEDS_IN_SOAK), run);
}

/// A suite proves nothing about a case that never occurred.
#[test]
fn runs_of_deliveries_meet_everything() {
    let mut seen = BTreeSet::new();
    for seed in 1..=40 {
        seen.extend(check(Plant::Nothing, seed).unwrap_or_else(|violation| panic!("{violation}")).seen);
    }

    let met = |what: &&str| seen.contains(*what);
    assert!(EVERYTHING.iter().all(met), "only {seen:?}");
}

#[test]
fn the_same_seed_is_the_same_run_of_deliveries() {
    for seed in 1..=20 {
        assert_eq!(check(Plant::Nothing, seed), check(Plant::Nothing, seed));
    }
}

/// M-2.
#[test]
fn the_simulator_finds_every_planted_bug_of_deliveries() {
    for bug in PUSH_BUGS {
        let found = (1..=PATIENCE).find_map(|seed| check(bug, seed).err().map(|violation| (seed, violation)));
        let Some((seed, violation)) = found else {
            panic!("{bug:?} was not found in {PATIENCE} runs");
        };
        println!("{bug:?}: found in run {seed}: {:.100}", violation);
    }
}

/// The cases that must occur: endings of hand-outs, causes of holds, and steps of deliveries.
const EVERYTHING: [&str; 11] = [
    "acked",
    "nacked",
    "deferred",
    "released",
    "unknown",
    "ack_timeout",
    "backpressure",
    "circuit",
    "probe",
    "delivering",
    "awaiting_ack",
];

/// Events of a run.
#[derive(Debug, PartialEq)]
struct Run {
    /// Equal runs have equal numbers.
    fingerprint: u64,
    seen: BTreeSet<&'static str>,
}

/// Runs one seed.
fn check(plant: Plant, seed: u64) -> Result<Run, String> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulate(plant, seed))));
    let outcome = outcome.unwrap_or_else(|panic| Err(run::words(panic.as_ref())));
    outcome.map_err(|violation| {
        format!("{violation}\nrepeat with: OUTLAST_SEED={seed} cargo test -p outlast-tests --test sim deliveries_hold")
    })
}

async fn simulate(plant: Plant, seed: u64) -> Result<Run, String> {
    let mut chance = Chance::seeded(seed);
    let (take, taken) = unbounded_channel();
    let queues = [("mail", settings(&mut chance)), (CALLBACKS, callback_settings())];
    let sim = run::prepare(plant, seed, &mut chance, &queues, |server, chance| {
        let outside = Outside::new(chance, &server.faults, (&server.disk, &server.witness), plant, take);
        server.with_outside(Arc::new(outside))
    })
    .await;
    let receiver = tokio::spawn(receive(Arc::clone(&sim), run::fork(&mut chance), taken));
    let outcome = run::live(&sim, &mut chance, 0).await;
    receiver.abort();
    let seen = sim.server.witness.deliveries().seen.clone();
    outcome.map(|fingerprint| Run { fingerprint, seen })
}

fn settings(chance: &mut Chance) -> QueueSettings {
    let settings = run::settings(chance);
    QueueSettings {
        mode: if chance.percent(60) { Mode::Standard } else { Mode::Ack },
        webhook_url: Some("http://endpoint.test/hook".to_owned()),
        webhook_timeout: Duration::from_millis(chance.between(1000, 3000)),
        ack_timeout: Duration::from_millis(chance.between(1000, 4000)),
        backpressure_delay: Duration::from_millis(chance.between(100, 3000)),
        backpressure_scope: if chance.percent(70) { DeferScope::Queue } else { DeferScope::Job },
        max_deferrals: chance.below(10) as u32,
        rate_limit: chance.percent(30).then_some(RateLimit { limit: 10, per: Duration::from_secs(1) }),
        ..settings
    }
}

/// Quick, so that a run is not mostly waiting, and never given up within it.
fn callback_settings() -> QueueSettings {
    let backoff = Backoff::Fixed { delay: Duration::from_millis(300), jitter: 0.2 };
    QueueSettings { backoff, max_attempts: 20, ..(system_queue(CALLBACKS).unwrap().settings)() }
}

/// The workers behind the endpoint: they tell the outcome of what was taken, in time, too late, or never.
async fn receive(sim: Arc<Sim>, mut chance: Chance, mut taken: UnboundedReceiver<(JobId, Lease)>) {
    let mut workers = JoinSet::new();
    while let Some((id, lease)) = taken.recv().await {
        workers.spawn(work(Arc::clone(&sim), run::fork(&mut chance), id, lease));
    }
}

async fn work(sim: Arc<Sim>, mut chance: Chance, id: JobId, lease: Lease) {
    if !sim.server.faults.is_calm() {
        sleep(Duration::from_millis(chance.below(2500))).await;
    }
    let outcome = match chance.below(100) {
        _ if sim.server.faults.is_calm() => Outcome::Ack { result: None },
        0..=59 => Outcome::Ack { result: chance.percent(30).then(|| "1".into()) },
        60..=74 => {
            sim.server.witness.deliveries().failed(id);
            Outcome::Nack { retryable: chance.percent(80), delay: None }
        }
        75..=82 => Outcome::Defer { retry_after: None, scope: None, cause: HoldCause::Backpressure },
        83..=88 => Outcome::Release,
        _ => return,
    };
    worker::report(&sim, &mut chance, id, lease, outcome).await;
}
