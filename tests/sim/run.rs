//! One run: a disk, a process, clients and faults for a while; then calm, in which everything must come to an end.

use std::any::Any;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_core::queue::DeferScope;
use outlast_core::retry::Backoff;
use outlast_core::{Clock, NamespaceId, QueueSettings};
use outlast_store::JobStore;
use outlast_store::operations::OperationStatus;
use outlast_store::queues::ExpectedVersion;
use outlast_tests::chance::Chance;
use outlast_tests::model::ModelDisk;
use outlast_tests::ports::{RuntimeClock, SeededEntropy};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::faults::Faults;
use crate::planted::Plant;
use crate::server::Server;
use crate::{operator, publisher, worker};

/// How long everything may take once nothing fails any more: longer than any delay, backoff, lease and time limit
/// together, far shorter than a worker's long poll.
const CALM_MAX: Duration = Duration::from_secs(120);
/// How late an alarm may be served in calm.
const ALARM_LATE_MAX: Duration = Duration::from_secs(2);

pub struct Sim {
    pub server: Server,
    pub clock: RuntimeClock,
    pub namespace: NamespaceId,
    pub queue: Arc<str>,
    /// Half of the jobs ask for a callback.
    pub calls_back: bool,
    over: AtomicBool,
}

impl Sim {
    pub fn has_ended(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// How long a client waits before it hangs up; `None` for as long as it takes.
    pub fn patience(&self, chance: &mut Chance) -> Option<Duration> {
        let hangs_up = chance.percent(15) && !self.server.faults.is_calm();
        hangs_up.then(|| Duration::from_millis(chance.below(25)))
    }
}

/// Runs one seed. The number identifies what happened: equal runs have equal numbers.
pub fn check(plant: Plant, seed: u64) -> Result<u64, String> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(plant, seed))));
    let violation = match outcome {
        Ok(Ok(fingerprint)) => return Ok(fingerprint),
        Ok(Err(violation)) => violation,
        Err(panic) => words(panic.as_ref()),
    };
    Err(format!("{violation}\nrepeat with: OUTLAST_SEED={seed} cargo test -p outlast-tests --test sim promises_hold"))
}

/// The message of a panic.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

async fn run(plant: Plant, seed: u64) -> Result<u64, String> {
    let mut chance = Chance::seeded(seed);
    let queues = [("mail", settings(&mut chance))];
    let sim = prepare(plant, seed, &mut chance, &queues, |server, _| server).await;
    let workers = chance.between(1, 3);
    live(&sim, &mut chance, workers).await
}

/// The life of a run, from the first start to calm: publishers, the operator, and so many workers that pull.
pub async fn live(sim: &Arc<Sim>, chance: &mut Chance, workers: u64) -> Result<u64, String> {
    sim.server.start();
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    for name in 0..chance.between(1, 3) {
        clients.push(tokio::spawn(publisher::publish(Arc::clone(sim), name, fork(chance))));
    }
    clients.push(tokio::spawn(operator::operate(Arc::clone(sim), fork(chance))));
    let workers: Vec<_> = (0..workers).map(|_| tokio::spawn(worker::work(Arc::clone(sim), fork(chance)))).collect();

    for client in clients {
        client.await.map_err(|panic| panic.to_string())?;
    }
    let settled = settle(sim).await;
    sim.over.store(true, Ordering::SeqCst);
    sim.server.finish().await;
    for worker in workers {
        worker.await.map_err(|panic| panic.to_string())?;
    }
    match sim.server.witness.verdict() {
        Some(violation) => Err(violation),
        None => settled.map(|()| fingerprint(sim)),
    }
}

/// A disk with these queues, of which the first is the one that all is about, and a process that is not started yet.
pub async fn prepare(
    plant: Plant,
    seed: u64,
    chance: &mut Chance,
    queues: &[(&str, QueueSettings)],
    outside: impl FnOnce(Server, Chance) -> Server,
) -> Arc<Sim> {
    let clock = RuntimeClock::start();
    let disk = ModelDisk::new(plant.rules(), Arc::new(clock), Box::new(SeededEntropy::new(seed)));
    let store = disk.open();
    let namespace = store.namespace("default").await.expect("the model is open");
    for (name, settings) in queues {
        let saved = store.save_queue(namespace, name, settings.clone().into(), ExpectedVersion::Absent).await;
        saved.expect("the model is open").expect("the queue is new");
    }
    let faults = Arc::new(Faults::new(fork(chance)));
    let server = outside(Server::new(disk, faults, Arc::new(clock), plant), fork(chance));
    let (queue, calls_back) = (queues[0].0.into(), queues.len() > 1);
    Arc::new(Sim { server, clock, namespace, queue, calls_back, over: AtomicBool::new(false) })
}

pub fn settings(chance: &mut Chance) -> QueueSettings {
    let mut millis = |least, most| Duration::from_millis(chance.between(least, most));
    let settings = QueueSettings {
        visibility_timeout: millis(1000, 4000),
        backoff: Backoff::Exponential { delay: millis(0, 500), factor: 3.0, max_delay: millis(500, 3000), jitter: 0.5 },
        max_age: millis(5000, 40_000),
        drain_timeout: millis(0, 2000),
        result_ttl: millis(1000, 20_000),
        retention: millis(20_000, 60_000),
        dedupe_window: Some(millis(1000, 15_000)),
        ..QueueSettings::default()
    };
    QueueSettings {
        max_attempts: chance.between(1, 4) as u32,
        max_deferrals: chance.below(4) as u32,
        backpressure_scope: if chance.percent(50) { DeferScope::Queue } else { DeferScope::Job },
        concurrency: chance.percent(40).then(|| chance.between(1, 3) as u32),
        job_timeout: chance.percent(30).then(|| Duration::from_millis(chance.between(3000, 20_000))),
        hard_time_limit: chance.percent(30).then(|| Duration::from_millis(chance.between(1000, 3000))),
        ..settings
    }
}

pub fn fork(chance: &mut Chance) -> Chance {
    Chance::seeded(chance.below(u64::MAX))
}

/// Nothing fails any more: every job must be finished and every operation done, by the engine's own doing.
async fn settle(sim: &Sim) -> Result<(), String> {
    sim.server.faults.calm_down();
    if sim.server.engine().is_none() {
        sim.server.start();
    }
    let engine = sim.server.engine().expect("it was just started");
    engine.queues.set_paused(sim.namespace, &sim.queue, false).await.map_err(|error| error.to_string())?;
    let deadline = Instant::now() + CALM_MAX;
    while Instant::now() < deadline && sim.server.witness.verdict().is_none() {
        sleep(Duration::from_millis(500)).await;
        if is_settled(sim) {
            return check_alarms(sim).await;
        }
    }
    let world = sim.server.disk.world();
    let open: Vec<_> = world.rows.values().filter(|row| !row.job.status().is_terminal()).collect();
    Err(format!("the service makes no progress: {open:?} {:?}", world.operations))
}

fn is_settled(sim: &Sim) -> bool {
    let world = sim.server.disk.world();
    let finished = world.rows.values().all(|row| row.job.status().is_terminal());
    finished && world.operations.values().all(|operation| operation.status != OperationStatus::Running)
}

/// Alarms that fire without calls: results expire, jobs are purged.
async fn check_alarms(sim: &Sim) -> Result<(), String> {
    sleep(Duration::from_secs(70)).await;
    let world = sim.server.disk.world();
    let now = sim.clock.now();
    let late = world.rows.values().find(|row| row.wake_at.is_some_and(|at| at.plus(ALARM_LATE_MAX) < now));
    match late {
        Some(row) => Err(format!("an alarm was not served: {row:?}")),
        None => Ok(()),
    }
}

fn fingerprint(sim: &Sim) -> u64 {
    let mut hasher = DefaultHasher::new();
    sim.server.faults.calls().hash(&mut hasher);
    let world = sim.server.disk.world();
    world.now.hash(&mut hasher);
    format!("{:?}", world.rows).hash(&mut hasher);
    hasher.finish()
}
