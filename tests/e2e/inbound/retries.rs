//! I-30: a provider that retries until it gets a 200, and a server that is killed again and again meanwhile. Every
//! event makes exactly one job in each of its three queues, and never a job in some of them only.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, ending};
use outlast_tests::server::Server;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::provider::{Stripe, event};
use super::{PATH, SECRET, drain, shop, stored, waiting};
use crate::api::text;

/// Webhooks under way at once.
const LANES: usize = 8;
const QUEUES: [&str; 3] = ["one", "three", "two"];
const CONFIG: &str = "queues:
  one: {source: shop, events: [paid], visibility_timeout: 12h}
  two: {source: shop, events: [paid], visibility_timeout: 12h}
  three: {source: shop, events: [paid], visibility_timeout: 12h}";
/// An answer that takes longer is as good as lost, as it is for a provider.
const ANSWER_MAX: Duration = Duration::from_secs(10);

// I-30: a 200 means that the event is on disk, whatever happens in the next moment.
#[tokio::test(flavor = "multi_thread")]
async fn events_answered_with_200_survive_kill_9() {
    let mut server = shop(CONFIG).start().await;
    let (mut with_jobs, mut all) = (BTreeSet::new(), BTreeSet::new());

    for number in 0..volume(6, 500) {
        // The last thing before the kill is either an event with jobs or one that is only remembered.
        let kind = if number % 2 == 0 { "paid" } else { "ignored" };
        let told = Stripe::before(&server, PATH, SECRET).tell(&event(&format!("evt_{number}"), kind, 1)).await;
        server.crash_and_restart().await;

        assert_eq!(told["duplicate"], false, "{told}");
        all.insert(text(&told["event_id"]));
        if kind == "paid" {
            with_jobs.insert(text(&told["event_id"]));
        }
    }

    assert_all_there(&server.client(), &with_jobs, &all).await;
}

// I-30: lost = 0, dup = 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_tries_again_makes_one_job_per_event_and_queue() {
    let mut chance = Chance::seeded(seed("inbound retries"));
    let mut server = shop(CONFIG).start().await;
    let (where_to, listening) = watch::channel(server.base.clone());
    let crowd = Crowd::start(Stripe::before(&server, PATH, SECRET), &listening);

    for _ in 0..volume(12, 2000) {
        // Not a wait for anything: the moment of the crash is the random input of the rig.
        tokio::time::sleep(Duration::from_millis(chance.between(20, 400))).await;
        server.crash_and_restart().await;
        assert_all_or_none(&server).await;
        where_to.send_replace(server.base.clone());
    }
    let (told, unheard) = crowd.finish().await;

    println!("inbound retries: {} events, {unheard} webhooks without an answer", told.len());
    assert!(
        told.len() >= 50 && unheard >= 5,
        "{} events, {unheard} without an answer: too few to mean anything",
        told.len()
    );
    assert_all_there(&server.client(), &told, &told).await;
}

/// A provider with many events, which continues until the test stops it and every started event is accepted.
struct Crowd {
    stopping: Arc<AtomicBool>,
    unheard: Arc<AtomicUsize>,
    lanes: JoinSet<Vec<String>>,
}

impl Crowd {
    fn start(stripe: Stripe, listening: &watch::Receiver<String>) -> Crowd {
        let (stopping, unheard) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let next = Arc::<AtomicUsize>::default();
        let mut lanes = JoinSet::new();
        let client = Client::with_timeout("", "", ANSWER_MAX);
        for _ in 0..LANES {
            let stripe = Stripe { client: client.clone(), ..stripe.clone() };
            let (stopping, unheard, next) = (Arc::clone(&stopping), Arc::clone(&unheard), Arc::clone(&next));
            let listening = listening.clone();
            lanes.spawn(async move {
                let mut told = Vec::new();
                while !stopping.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    told.push(tell(&stripe, &listening, &format!("evt_{number}"), &unheard).await);
                }
                told
            });
        }
        Crowd { stopping, unheard, lanes }
    }

    /// The events that were taken, and how many webhooks had no answer.
    async fn finish(self) -> (BTreeSet<String>, usize) {
        self.stopping.store(true, Ordering::SeqCst);
        let lanes = self.lanes.join_all().await;
        let count: usize = lanes.iter().map(Vec::len).sum();
        let told: BTreeSet<String> = lanes.into_iter().flatten().collect();
        assert_eq!(told.len(), count, "two events have the same id");
        (told, self.unheard.load(Ordering::SeqCst))
    }
}

/// Sends an event until it is taken. Whatever is no 200 must be something that a provider tries again after.
async fn tell(stripe: &Stripe, listening: &watch::Receiver<String>, id: &str, unheard: &AtomicUsize) -> String {
    loop {
        let base = listening.borrow().clone();
        let answer = stripe.at(&base).send(&event(id, "paid", 1)).await;
        match &answer {
            Ok(reply) if reply.status == 200 => return text(&reply.body["event_id"]),
            Ok(reply) => assert!(reply.status >= 500, "a provider would give up: {:?}", ending(&answer)),
            Err(_) => _ = unheard.fetch_add(1, Ordering::SeqCst),
        }
        // Between two tries, as a provider does; a server that is gone refuses at once.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The kill may have come in the middle of many events; each is in all queues or in none.
async fn assert_all_or_none(server: &Server) {
    let client = server.client();
    let [one, two, three] = [0, 1, 2].map(|queue| waiting(&client, QUEUES[queue]));
    let (one, two, three) = tokio::join!(one, two, three);
    assert_eq!((one, one), (two, three), "an event is in some of its queues only");
}

async fn assert_all_there(client: &Client, with_jobs: &BTreeSet<String>, all: &BTreeSet<String>) {
    for queue in QUEUES {
        let messages = drain(client, queue).await;
        let ids: BTreeSet<String> = messages.iter().map(|message| text(&message["event_id"])).collect();
        assert_eq!((messages.len(), &ids), (with_jobs.len(), with_jobs), "one job per event in {queue}");
    }
    let events: Vec<Value> = stored(client, "").await;
    let ids: BTreeSet<String> = events.iter().map(|event| text(&event["id"])).collect();
    assert_eq!((events.len(), &ids), (all.len(), all), "every event is remembered once");
    for event in events {
        let jobs = if with_jobs.contains(&text(&event["id"])) { QUEUES.len() } else { 0 };
        assert_eq!(event["jobsCreated"], jobs, "{event}");
    }
}
