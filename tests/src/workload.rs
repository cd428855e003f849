//! A mixed load with accounting: publishers that also cancel, replay and change queues, and workers that ack, nack and
//! defer. Each call goes into the history with its answer. The actors live on across crashes of the server and
//! repeat some of the calls whose answer was lost, as a careful client does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::history::{Action, Answer, Operation};
use crate::http::Client;

mod publisher;
pub mod snapshot;
mod worker;

use publisher::Publisher;
use worker::Worker;

/// The queue that all jobs of a workload go through.
pub const QUEUE: &str = "work";
/// Longer than any rig runs: the checker counts on leases that do not expire.
const LEASE_SECONDS: u64 = 3600;
/// The setting that queue changes move: harmless, and far from being due.
const RETENTION_SECONDS: u64 = 7 * 24 * 3600;
/// Between a lost answer and the next call of the same actor.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

pub struct Workload {
    actors: Vec<Actor>,
    shared: Arc<Shared>,
    first_version: u64,
}

enum Actor {
    Publisher(Publisher),
    Worker(Worker),
}

struct Shared {
    tick: AtomicU64,
    stop: AtomicBool,
    /// Whether an actor that lost an answer continues: other nodes can serve it.
    goes_on: AtomicBool,
    /// Jobs that are cancelled or failed for all we know: food for replays.
    dead: Mutex<Vec<String>>,
}

/// One actor's notes. Merged only at the end, so that recording costs the actors nothing.
struct Recorder {
    shared: Arc<Shared>,
    operations: Vec<Operation>,
}

/// Whether an actor goes on after a step.
#[derive(PartialEq, Eq)]
enum Step {
    Done,
    /// The answer was lost: the server is gone.
    ServerGone,
}

impl Workload {
    pub fn new(seed: u64, publishers: u64, workers: u64) -> Workload {
        let shared = Arc::new(Shared {
            tick: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            dead: Mutex::new(Vec::new()),
        });
        let mut chance = Chance::seeded(seed);
        let mut actors = Vec::new();
        for number in 0..publishers {
            let chance = Chance::seeded(chance.below(u64::MAX));
            actors.push(Actor::Publisher(Publisher::new(number, chance, Recorder::new(&shared))));
        }
        for _ in 0..workers {
            let chance = Chance::seeded(chance.below(u64::MAX));
            actors.push(Actor::Worker(Worker::new(chance, Recorder::new(&shared))));
        }
        Workload { actors, shared, first_version: 0 }
    }

    /// Actors that lose an answer go on after a breath, instead of waiting for the next `run_until`.
    pub fn going_on(self) -> Workload {
        self.shared.goes_on.store(true, Ordering::SeqCst);
        self
    }

    /// Makes the queues and learns which version a fresh job has.
    pub async fn prepare(&mut self, client: &Client) {
        let settings = json!({
            "maxAttempts": 20,
            "visibilityTimeout": LEASE_SECONDS,
            "backpressureScope": "job",
            "maxDeferrals": 1000,
        });
        let path = format!("/v1/queues/{QUEUE}");
        created(client.put(&path, settings).await.expect("the server answers"));
        let mut queues = vec!["probe".to_owned()];
        for actor in &self.actors {
            if let Actor::Publisher(publisher) = actor {
                queues.push(publisher.own_queue());
            }
        }
        for queue in queues {
            created(client.put(&format!("/v1/queues/{queue}"), json!({})).await.expect("the server answers"));
        }

        let probe = client.post("/v1/queues/probe/jobs", json!({"payload": 1})).await;
        let id = probe.expect("the server answers").expect(202)["id"].as_str().expect("an id").to_owned();
        let job = client.get(&format!("/v1/jobs/{id}")).await.expect("the server answers").expect(200);
        self.first_version = job["version"].as_u64().expect("a version");
    }

    /// Runs all actors while `fault` takes its course. When it ends, the actors stop after their current call.
    pub async fn run_until<Fault: Future<Output = ()>>(&mut self, client: &Client, fault: Fault) {
        self.shared.stop.store(false, Ordering::SeqCst);
        let mut running = JoinSet::new();
        for mut actor in std::mem::take(&mut self.actors) {
            let client = client.clone();
            running.spawn(async move {
                match &mut actor {
                    Actor::Publisher(publisher) => publisher.run(&client).await,
                    Actor::Worker(worker) => worker.run(&client).await,
                }
                actor
            });
        }
        fault.await;
        self.shared.stop.store(true, Ordering::SeqCst);
        self.actors = running.join_all().await;
    }

    /// Everything that was called so far.
    pub fn history(&self) -> Vec<Operation> {
        let recorders = self.actors.iter().map(|actor| match actor {
            Actor::Publisher(publisher) => &publisher.recorder,
            Actor::Worker(worker) => &worker.recorder,
        });
        recorders.flat_map(|recorder| recorder.operations.iter().cloned()).collect()
    }
}

impl Recorder {
    fn new(shared: &Arc<Shared>) -> Recorder {
        Recorder { shared: Arc::clone(shared), operations: Vec::new() }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    /// Whether to go on after a lost answer. The pause is what any client leaves between two tries.
    async fn goes_on(&self) -> bool {
        let goes_on = self.shared.goes_on.load(Ordering::SeqCst);
        if goes_on {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        goes_on
    }

    /// Runs one call and notes it; the answer is given back for the actor to act on.
    async fn record<Call: Future<Output = Answer>>(&mut self, action: Action, call: Call) -> Answer {
        let started = self.shared.tick.fetch_add(1, Ordering::SeqCst);
        let answer = call.await;
        let ended = self.shared.tick.fetch_add(1, Ordering::SeqCst);
        self.operations.push(Operation { started, ended, action, answer: answer.clone() });
        answer
    }

    fn add_dead(&self, job: String) {
        self.shared.dead.lock().expect("no actor panics with the lock").push(job);
    }

    fn take_dead(&self, chance: &mut Chance) -> Option<String> {
        chance.take(&mut self.shared.dead.lock().expect("no actor panics with the lock"))
    }
}

#[track_caller]
fn created(reply: crate::http::Reply) {
    assert!(matches!(reply.status, 200 | 201), "unexpected answer: {} {}", reply.status, reply.body);
}

/// Reads a whole answer by `read`; what it cannot read is noted as an answer that says nothing.
fn answer_of(
    reply: Result<crate::http::Reply, crate::http::Lost>,
    read: impl FnOnce(&Value) -> Option<Answer>,
) -> Answer {
    use crate::http::{Ending, ending};
    match ending(&reply) {
        Ending::Refused { status, code } => Answer::Refused { status, code },
        Ending::Unknown(reason) => Answer::Unknown(reason),
        Ending::Acknowledged => {
            let body = reply.map(|reply| reply.body).unwrap_or_default();
            read(&body).unwrap_or_else(|| Answer::Unknown(format!("status 2xx with an unreadable body: {body}")))
        }
    }
}

/// The state and version that outcome, cancel and replay answers name.
fn read_change(body: &Value) -> Option<Answer> {
    Some(Answer::Changed { status: body["status"].as_str()?.to_owned(), version: body["version"].as_u64()? })
}
