//! Killed at each step of a delivery: the server dies at the k-th call of one kind, counted by strace, and what the
//! sink saw before says which step that was. In the end everything is accounted for, at every k. And a job that kills
//! the server that delivers it, which ends with its attempts. (I-17, I-19, I-27, I-28, F27)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast_tests::chance::volume;
use outlast_tests::deliveries::{self, Account};
use outlast_tests::http::Client;
use outlast_tests::server::{Launch, Server};
use outlast_tests::sink::{Arrival, Say, Sink};
use outlast_tests::trace::{Death, strace_is_installed};
use outlast_tests::wait;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use crate::api::{make_queue, publish, text};
use crate::push_load::{assert_sound, drained, pushing};

const JOBS: usize = 3;
const DEADLINE: Duration = Duration::from_secs(60);
const CALLBACK: &str = "/callback";

/// The step at which the server died, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The attempt was committed, and no byte of it left.
    Unsent,
    /// The endpoint had answered, and the outcome was not committed.
    Unrecorded,
    /// The end was committed, and no callback was sent.
    Untold,
    /// The callback had been taken, and that was not committed.
    ToldUnrecorded,
}

const STEPS: [Step; 4] = [Step::Unsent, Step::Unrecorded, Step::Untold, Step::ToldUnrecorded];

/// The calls at which it dies: syncs and writes of the store, connecting, sending and hearing. The first ones belong to
/// the start; a transaction has many writes.
const CALLS: [(&str, [u32; 6]); 5] = [
    ("fdatasync", [3, 4, 5, 6, 7, 8]),
    ("pwrite64", [7, 10, 13, 16, 19, 22]),
    ("connect", [1, 2, 3, 4, 5, 6]),
    ("writev,sendto,sendmsg", [1, 2, 3, 4, 5, 6]),
    ("recvfrom", [2, 3, 4, 5, 6, 8]),
];
const ORDINAL_MAX_IN_SOAK: u32 = 60;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_of_a_delivery_everything_is_accounted_for() {
    assert!(strace_is_installed(), "strace is missing: `make test` installs it, or install the package strace");
    let mut hit: BTreeMap<Step, usize> = BTreeMap::new();
    let in_soak: Vec<u32> = (1..=ORDINAL_MAX_IN_SOAK).collect();
    for (calls, in_test) in &CALLS {
        let ordinals = if volume(0, 1) == 1 { in_soak.as_slice() } else { in_test };
        for &ordinal in ordinals {
            let Some(steps) = die_and_recover(Death { calls, ordinal }).await else { break };
            println!("push steps: {calls} {ordinal}: {steps:?}");
            for step in steps {
                *hit.entry(step).or_default() += 1;
            }
        }
    }
    println!("push steps: {hit:?}");
    assert!(STEPS.iter().all(|step| hit.contains_key(step)), "not every step was hit: {hit:?}");
}

/// One run into its death and out of it; `None` where the server did all its work without that many calls.
async fn die_and_recover(death: Death) -> Option<BTreeSet<Step>> {
    let launch = pushing(Launch::embedded());
    let sink = Sink::open(|_| Say::Status(200)).await;
    let ids = prepare(&launch, &sink).await;

    let traced = launch.clone().wrapped_by(death.wrapper(&launch.scratch().join("strace.log")));
    let has_died = match traced.try_start().await {
        Err(_) => true,
        Ok(mut server) => deliver_until_it_dies(&mut server).await,
    };
    let before = sink.count();
    let server = launch.start().await;
    let _ = server.client().post("/v1/queues/work/resume", json!({})).await.unwrap().expect(200);
    for queue in ["work", "_callbacks"] {
        drained(&server.client(), queue, DEADLINE).await;
    }

    let account = account(&server.client(), &sink, &ids).await;
    let violations = account.violations();
    assert!(violations.is_empty(), "{death:?}: {violations:?}");
    has_died.then(|| steps(&account, before))
}

/// A queue that is paused, with jobs that have a callback URL; nothing has been delivered yet.
async fn prepare(launch: &Launch, sink: &Sink) -> Vec<String> {
    let mut server = launch.start().await;
    let client = server.client();
    let settings = json!({"webhookUrl": sink.url("/work"), "backoff": {"type": "fixed", "delay": 0.02}});
    make_queue(&client, "work", settings).await;
    let body = json!({"payload": 1, "callbackUrl": sink.url(CALLBACK)});
    client.post("/v1/queues/work/jobs", body.clone()).await.unwrap().expect(202);
    wait::until_now("the first callback", DEADLINE, || (!sink.arrivals_at(CALLBACK).is_empty()).then_some(())).await;
    let quick = json!({"backoff": {"type": "fixed", "delay": 0.02}});
    client.patch("/v1/queues/_callbacks", quick).await.unwrap().expect(200);
    client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        let reply = client.post("/v1/queues/work/jobs", body.clone()).await.unwrap();
        ids.push(text(&reply.expect(202)["id"]));
    }
    drained(&client, "_callbacks", DEADLINE).await;
    assert!(server.terminate().await.success());
    ids
}

/// Says whether it has died; if not, all its work is done.
async fn deliver_until_it_dies(server: &mut Server) -> bool {
    let client = Client::with_timeout(&server.base, &server.launch().key, Duration::from_secs(5));
    let _ = client.post("/v1/queues/work/resume", json!({})).await;
    wait::until("its death, or the end of its work", DEADLINE, async || {
        if !server.is_running() {
            return Some(true);
        }
        let mut is_done = true;
        for queue in ["work", "_callbacks"] {
            let counts = client.get(&format!("/v1/queues/{queue}")).await.ok()?.body["counts"].clone();
            is_done &= ["pending", "queued", "running"].iter().all(|state| counts[*state] == json!(0));
        }
        is_done.then_some(false)
    })
    .await
}

async fn account(client: &Client, sink: &Sink, ids: &[String]) -> Account {
    let arrivals = sink.arrivals().into_iter().filter(|arrival| ids.contains(&arrival.job));
    let (callbacks, deliveries): (Vec<Arrival>, Vec<Arrival>) = arrivals.partition(|it| it.path == CALLBACK);
    Account { jobs: deliveries::read(client, ids).await, deliveries, callbacks, ..Account::default() }
}

/// The step at which the server died, after the first `before` requests.
fn steps(account: &Account, before: usize) -> BTreeSet<Step> {
    let mut steps = BTreeSet::new();
    for told in &account.jobs {
        let sent: Vec<&Arrival> = account.deliveries.iter().filter(|arrival| arrival.job == told.id).collect();
        let copies: Vec<&Arrival> = account.callbacks.iter().filter(|arrival| arrival.job == told.id).collect();
        for attempt in told.attempts().filter(|attempt| attempt["outcome"] == "unknown") {
            let request = sent.iter().find(|arrival| json!(arrival.attempt) == attempt["number"]);
            match request.map(|arrival| arrival.answered) {
                None => steps.insert(Step::Unsent),
                Some(Some(200)) => steps.insert(Step::Unrecorded),
                Some(_) => false,
            };
        }
        let was_done = told.endings("unknown") == 0 && sent.iter().all(|arrival| arrival.number < before);
        let told_before = copies.iter().filter(|arrival| arrival.number < before).count();
        if was_done && told_before == 0 {
            steps.insert(Step::Untold);
        }
        if told_before > 0 && copies.len() > told_before {
            steps.insert(Step::ToldUnrecorded);
        }
    }
    steps
}

// I-19: a job that kills the server is charged each time and dead after its attempts; the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_delivery_kills_the_server_ends_with_its_attempts() {
    let launch = pushing(Launch::embedded());
    let (kill, mut kills) = unbounded_channel();
    let sink = Sink::open(move |arrival| match arrival.body["payload"].as_str() {
        Some("poison") => {
            let _ = kill.send(());
            Say::Nothing
        }
        _ => Say::Status(200),
    })
    .await;
    let mut server = launch.start().await;
    let settings = json!({"webhookUrl": sink.url("/"), "maxAttempts": 10, "backoff": {"type": "fixed", "delay": 0.02}});
    make_queue(&server.client(), "work", settings).await;
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(match number % 20 {
            10 => {
                let body = json!({"payload": "poison", "maxAttempts": 3});
                let reply = server.client().post("/v1/queues/work/jobs", body).await;
                reply.map_or_else(|_| String::new(), |reply| text(&reply.expect(202)["id"]))
            }
            _ => publish(&server.client(), "work", json!(number)).await,
        });
        let mut deaths = 0;
        while number % 20 == 10 && deaths < 3 {
            wait::within(DEADLINE, kills.recv()).await.expect("the poison is delivered").unwrap();
            server.crash_and_restart().await;
            deaths += 1;
        }
    }
    drained(&server.client(), "work", DEADLINE).await;

    let account = account(&server.client(), &sink, &ids).await;
    assert_sound("poison", &account);
    let poison: Vec<_> = account.jobs.iter().filter(|told| told.job["payload"] == "poison").collect();
    assert_eq!(poison.len(), 2);
    for told in poison {
        let reason = &told.job["error"]["reason"];
        assert_eq!((told.status(), reason), ("failed", &json!("attempts_exhausted")), "{told:?}");
        assert_eq!((told.attempts().count(), told.endings("unknown")), (3, 3), "{told:?}");
    }
    let others = account.jobs.iter().filter(|told| told.job["payload"] != "poison");
    assert!(others.into_iter().all(|told| told.status() == "succeeded"));
    assert!(kills.try_recv().is_err(), "it was delivered once too often");
}
