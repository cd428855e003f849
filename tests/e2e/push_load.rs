//! The load of the push rigs: publishers that ask for callbacks now and then, a sink that answers in every way there
//! is, and a worker that acks what the sink only took receipt of. All of them outlive the server; in the end every job
//! and every request is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use outlast_tests::chance::Chance;
use outlast_tests::deliveries::{self, Account};
use outlast_tests::http::{Client, Ending, ending};
use outlast_tests::server::Launch;
use outlast_tests::sink::{Arrival, Say, Sink};
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

use crate::api::{make_queue, text};

/// Standard mode, where only the job waits out a 429.
pub(crate) const WORK: &str = "work";
/// Standard mode, where the whole queue does.
pub(crate) const HELD: &str = "held";
/// Ack mode.
pub(crate) const ACK: &str = "ack";
const QUEUES: [&str; 4] = [WORK, HELD, ACK, "_callbacks"];
const CALLBACK: &str = "/callback";

/// Between a lost answer and the next try of the same actor.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// From the last publish to the last ending, on a busy machine.
const DRAIN_DEADLINE: Duration = Duration::from_secs(90);

/// Lets a server deliver to this machine, and nodes read each other's secrets.
pub(crate) fn pushing(launch: Launch) -> Launch {
    launch.with_env("OUTLAST_ALLOW_PRIVATE_TARGETS", "127.0.0.0/8").with_env("OUTLAST_SECRET_KEY", &"5e".repeat(32))
}

pub(crate) struct PushLoad {
    pub sink: Sink,
    shared: Arc<Shared>,
    publishers: JoinSet<Vec<String>>,
    acking: JoinHandle<()>,
    seed: u64,
}

struct Shared {
    /// Speaks to the present server.
    client: Mutex<Client>,
    chance: Mutex<Chance>,
    stopped: AtomicBool,
    published: AtomicUsize,
    mood: Mutex<Mood>,
    acks: Mutex<Acks>,
}

/// How the sink answers.
#[derive(Clone, Copy)]
pub(crate) enum Mood {
    /// In every way there is.
    Mixed,
    /// It takes everything, and its time.
    Slow,
    /// It takes everything at once.
    Kind,
}

#[derive(Default)]
struct Acks {
    sent: BTreeSet<String>,
    accepted: BTreeSet<String>,
}

/// A job that the sink has taken receipt of.
struct Taken {
    job: String,
    lease: String,
    after: Duration,
}

impl PushLoad {
    /// Opens the sink and makes the queues.
    pub(crate) async fn open(client: Client, seed: u64) -> PushLoad {
        let shared = Arc::new(Shared {
            client: Mutex::new(client.clone()),
            chance: Mutex::new(Chance::seeded(seed)),
            stopped: AtomicBool::new(false),
            published: AtomicUsize::new(0),
            mood: Mutex::new(Mood::Mixed),
            acks: Mutex::default(),
        });
        let (take, mut taken) = unbounded_channel::<Taken>();
        let acker = Arc::clone(&shared);
        let acking = tokio::spawn(async move {
            let mut acks = JoinSet::new();
            while let Some(taken) = taken.recv().await {
                acks.spawn(Arc::clone(&acker).ack(taken));
                while acks.try_join_next().is_some() {}
            }
        });
        let script = Arc::clone(&shared);
        let sink = Sink::open(move |arrival| script.answer(arrival, &take)).await;
        let load = PushLoad { sink, shared, publishers: JoinSet::new(), acking, seed };
        load.prepare(&client).await;
        load
    }

    async fn prepare(&self, client: &Client) {
        let settings = |path: &str, mode: &str, scope: &str, attempts: u64| {
            json!({
                "webhookUrl": self.sink.url(path), "mode": mode, "backpressureScope": scope, "maxAttempts": attempts,
                "backoff": {"type": "fixed", "delay": 0.05}, "backpressureDelay": 0.1, "webhookTimeout": 2, "ackTimeout": 2,
            })
        };
        make_queue(client, WORK, settings("/work", "standard", "job", 8)).await;
        make_queue(client, HELD, settings("/held", "standard", "queue", 2)).await;
        make_queue(client, ACK, settings("/ack", "ack", "job", 8)).await;
        // The queue of callbacks is there with the first one; its own schedule would outlast the rig.
        let first = json!({"payload": 1, "callbackUrl": self.sink.url(CALLBACK)});
        client.post("/v1/queues/work/jobs", first).await.unwrap().expect(202);
        wait::until("the queue of callbacks", DRAIN_DEADLINE, async || {
            (client.get("/v1/queues/_callbacks").await.ok()?.status == 200).then_some(())
        })
        .await;
        let quick = json!({"backoff": {"type": "fixed", "delay": 0.05}, "maxAttempts": 20});
        client.patch("/v1/queues/_callbacks", quick).await.unwrap().expect(200);
    }

    /// Starts so many publishers, each of which leaves up to `pause` between two jobs.
    pub(crate) fn publish(&mut self, count: u64, pause: Duration) {
        for number in 0..count {
            let chance = Chance::seeded(self.seed.wrapping_add(number + 1));
            let callback = self.sink.url(CALLBACK);
            self.publishers.spawn(Arc::clone(&self.shared).publish(number, chance, callback, pause));
        }
    }

    /// From here on everybody speaks to another server.
    pub(crate) fn speak_to(&self, client: Client) {
        *lock(&self.shared.client) = client;
    }

    /// How many publishes were acknowledged so far.
    pub(crate) fn published(&self) -> usize {
        self.shared.published.load(Ordering::SeqCst)
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        *lock(&self.shared.mood) = mood;
    }

    /// Stops publishing, waits until everything has ended, and gives the account of it.
    pub(crate) async fn finish(&mut self, client: &Client) -> Account {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let mut ids = Vec::new();
        while let Some(published) = self.publishers.join_next().await {
            ids.extend(published.expect("no publisher panics"));
        }
        self.set_mood(Mood::Kind);
        for queue in QUEUES {
            drained(client, queue, DRAIN_DEADLINE).await;
        }
        let arrivals = self.sink.arrivals();
        let known: BTreeSet<&String> = ids.iter().collect();
        let (callbacks, deliveries): (Vec<Arrival>, Vec<Arrival>) =
            arrivals.into_iter().filter(|arrival| known.contains(&arrival.job)).partition(|it| it.path == CALLBACK);
        let (acks_sent, acks_accepted) = {
            let acks = lock(&self.shared.acks);
            (acks.sent.clone(), acks.accepted.clone())
        };
        let jobs = deliveries::read(client, &ids).await;
        let by_ack = jobs.iter().filter(|told| told.job["queue"] == ACK).map(|told| told.id.clone()).collect();
        Account { jobs, deliveries, callbacks, by_ack, acks_sent, acks_accepted }
    }
}

impl Drop for PushLoad {
    fn drop(&mut self) {
        self.acking.abort();
    }
}

/// Waits until no job of the queue is waiting or running.
pub(crate) async fn drained(client: &Client, queue: &str, deadline: Duration) {
    wait::until(&format!("the end of all jobs of {queue}"), deadline, async || {
        let queue = client.get(&format!("/v1/queues/{queue}")).await.ok()?;
        let open: u64 = ["pending", "queued", "running"]
            .map(|state| queue.body["counts"][state].as_u64())
            .into_iter()
            .sum::<Option<u64>>()?;
        (open == 0).then_some(())
    })
    .await;
}

/// How often each ending occurs, over all jobs.
pub(crate) fn endings(account: &Account) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for attempt in account.jobs.iter().flat_map(|told| told.attempts()) {
        *counts.entry(text(&attempt["outcome"])).or_default() += 1;
    }
    counts
}

/// I-31: not one attempt was burned, whatever was stopped in between.
#[track_caller]
pub(crate) fn assert_nothing_charged(rig: &str, account: &Account) {
    assert_sound(rig, account);
    let burned: Vec<_> = account.jobs.iter().filter(|told| told.job["attempt"] != 1).collect();
    assert!(burned.is_empty(), "{rig}: {} jobs had a second attempt, first {:?}", burned.len(), burned.first());
    let known = |ending: &String| ending == "acked" || ending == "released";
    assert!(endings(account).keys().all(known), "{rig}: {:?}", endings(account));
    assert!(account.jobs.iter().all(|told| told.status() == "succeeded"), "{rig}: not everything succeeded");
}

#[track_caller]
pub(crate) fn assert_sound(rig: &str, account: &Account) {
    let status = |wanted: &str| account.jobs.iter().filter(|told| told.status() == wanted).count();
    println!(
        "{rig}: {} jobs, {} succeeded, {} failed, {} requests, {} callbacks, endings {:?}",
        account.jobs.len(),
        status("succeeded"),
        status("failed"),
        account.deliveries.len(),
        account.callbacks.len(),
        endings(account)
    );
    let violations = account.violations();
    let shown = violations.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(violations.is_empty(), "{rig}: {} violations:\n{shown}", violations.len());
}

impl Shared {
    fn client(&self) -> Client {
        lock(&self.client).clone()
    }

    async fn publish(
        self: Arc<Shared>,
        number: u64,
        mut chance: Chance,
        callback: String,
        pause: Duration,
    ) -> Vec<String> {
        let mut published = Vec::new();
        for count in 0.. {
            if self.stopped.load(Ordering::SeqCst) {
                break;
            }
            let queue = [WORK, WORK, HELD, ACK][chance.below(4) as usize];
            let mut body = json!({"payload": {"number": count}, "idempotencyKey": format!("{number}-{count}")});
            if chance.percent(50) {
                body["callbackUrl"] = json!(callback);
            }
            published.push(self.publish_until_acknowledged(queue, body).await);
            self.published.fetch_add(1, Ordering::SeqCst);
            // The pace of the load, not a wait for anything.
            tokio::time::sleep(Duration::from_millis(chance.below(pause.as_millis() as u64 + 1))).await;
        }
        published
    }

    async fn publish_until_acknowledged(&self, queue: &str, body: Value) -> String {
        loop {
            let answer = self.client().post(&format!("/v1/queues/{queue}/jobs"), body.clone()).await;
            match (ending(&answer), answer) {
                (Ending::Acknowledged, Ok(reply)) => return text(&reply.body["id"]),
                (Ending::Refused { status, code }, _) if status < 500 => panic!("{status} {code}"),
                _ => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Reports the outcome until a node has answered.
    async fn ack(self: Arc<Shared>, taken: Taken) {
        tokio::time::sleep(taken.after).await;
        lock(&self.acks).sent.insert(taken.job.clone());
        let path = format!("/v1/jobs/{}/ack", taken.job);
        loop {
            let answer = self.client().post(&path, json!({"lease": taken.lease})).await;
            match ending(&answer) {
                Ending::Acknowledged => {
                    lock(&self.acks).accepted.insert(taken.job);
                    return;
                }
                Ending::Refused { status, .. } if status < 500 => return,
                _ => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    fn answer(&self, arrival: &Arrival, take: &UnboundedSender<Taken>) -> Say {
        let mut chance = lock(&self.chance);
        let (drawn, millis) = (chance.below(100), Duration::from_millis(chance.below(250)));
        let drawn = match *lock(&self.mood) {
            Mood::Mixed => drawn,
            Mood::Slow if arrival.path != "/ack" => return Say::Slowly(millis, 200),
            Mood::Slow | Mood::Kind => 0,
        };
        let receipt = |status| {
            let taken = Taken { job: arrival.job.clone(), lease: arrival.lease.clone(), after: millis };
            let _ = take.send(taken);
            Say::Status(status)
        };
        match (arrival.path.as_str(), drawn) {
            ("/ack", 0..=79) => receipt(200),
            // Accepted, and never reported.
            ("/ack", 80..=84) => Say::Status(202),
            ("/held", 70..=71) => Say::Later(429, 0),
            ("/held", 72..=73) => Say::Status(503),
            ("/work", 58..=64) => receipt(202),
            (CALLBACK | "/held", 0..=79) | (_, 0..=57) => Say::Status(200),
            (_, 65..=69) => Say::Later(429, millis.as_millis() as u64 % 2),
            (_, 70..=74) => Say::Status(429),
            (_, 75..=84) => Say::Slowly(millis, 200),
            (_, 85..=89) => Say::Reset,
            _ => Say::Status(500),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with the lock")
}
