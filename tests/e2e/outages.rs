//! I-20: no worker loses a lease because it could not reach the server. The whole server is paused, or is killed and
//! comes back later, with a thousand leases out (300 on a database in `make test`), all of which run out meanwhile:
//! workers that go on reporting keep theirs, those who are gone lose theirs when the outage has been granted on top.
//! `cluster::outage` has what only several nodes can do.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use outlast_tests::chance::volume;
use outlast_tests::http::{Client, Lost};
use outlast_tests::server::{Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{events, job, make_queue, publish_many, receive, settle, text};
use crate::time_limits::{LATE_MAX, time};

/// One lease in so many has no worker any more.
const GONE_EVERY: usize = 10;
/// Heartbeats under way at once, so that on a busy machine all workers report well within a lease.
const LANES: usize = 64;
/// Heartbeats that are sent while the server is paused.
const CALLS_HELD_UP: usize = 16;
const DEADLINE: Duration = Duration::from_secs(120);
/// By how much the server's idea of an outage may differ from ours: it counts from its last sign of life.
const SLACK: Duration = Duration::from_secs(2);

/// Few, so that all report within the shortest lease on a busy machine.
const SHORT_LEASES: usize = 10;

/// How long the server is away, and how long leases are: all of them run out meanwhile.
pub(crate) fn lengths() -> (Duration, Duration) {
    let (lease, away) = (volume(15, 30), volume(17, 60));
    (Duration::from_secs(lease as u64), Duration::from_secs(away as u64))
}

/// How many leases are out. A database on the same two cores as three nodes serves fewer workers in time.
fn leases(server: &Server) -> usize {
    if server.launch().database().is_some() { volume(300, 1000) } else { 1000 }
}

/// All who hold leases: those who go on, and those who are gone.
pub(crate) struct Crew {
    lease: Duration,
    healthy: Vec<Held>,
    gone: Vec<Held>,
}

#[derive(Clone, Debug)]
struct Held {
    id: String,
    lease: String,
    /// The end of the lease in the last answer.
    told: Timestamp,
}

// I-20, F14: the process is paused for longer than its leases.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_takes_no_lease_from_workers_that_go_on() {
    let server = Server::fresh().await;
    let (lease, away) = lengths();
    let mut crew = Crew::hire(&server, lease).await;
    crew.beat(&server).await;
    let frozen_at = Timestamp::now();
    server.freeze().await;
    // Some calls are under way; they are answered when the server goes on.
    let hanging = crew.call_some(&server.client());

    // Not a wait for anything: the length of the outage is the input of the rig.
    tokio::time::sleep(away).await;
    crew.assert_all_ran_out();
    for node in &server.nodes {
        node.resume();
    }
    let back_at = Timestamp::now();
    for answer in hanging.join_all().await {
        answer.expect("an answer that was held up").expect(200);
    }

    crew.go_on_until_the_gone_are_lost(&server, frozen_at, back_at).await;
    crew.finish(&server).await;
}

// I-20, F01: the process is killed, and started again after its leases have run out.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_takes_no_lease_from_workers_that_go_on() {
    let mut server = Server::fresh().await;
    let (lease, away) = lengths();
    let mut crew = Crew::hire(&server, lease).await;
    crew.beat(&server).await;
    let killed_at = Timestamp::now();
    server.kill9().await;

    tokio::time::sleep(away).await;
    crew.assert_all_ran_out();
    server = server.launch().clone().start().await;
    let back_at = Timestamp::now();

    crew.go_on_until_the_gone_are_lost(&server, killed_at, back_at).await;
    crew.finish(&server).await;
}

// I-20: an outage that is shorter than anybody would notice takes no lease either. All nodes are killed and started
// again, and the leases end meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_outage_takes_no_lease_from_workers_that_go_on() {
    let mut server = Server::fresh().await;
    for lease in [2, 3, 4, 5] {
        let lease = Duration::from_secs(lease);
        let mut crew = Crew::hire_some(&server, lease, SHORT_LEASES).await;
        crew.beat(&server).await;
        let killed = Stopwatch::start();
        server.kill9().await;

        wait::until_now("the leases to run out", DEADLINE, || crew.have_all_run_out().then_some(())).await;
        server = server.launch().clone().start().await;
        println!("away for {:?}", killed.elapsed());

        crew.beat(&server).await;
        crew.finish(&server).await;
    }
}

// Negative control: where there was no outage there is no grace, also when the server has just been idle.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_takes_leases_at_their_deadline() {
    let server = Launch::fresh().start().await;
    let client = server.client();
    let stopwatch = Stopwatch::start();
    make_queue(&client, "work", json!({"visibilityTimeout": 7})).await;
    publish_many(&client, "work", 20).await;
    let held = receive(&client, "work", json!({"batch": 20})).await;

    for held in held {
        let lost_at = lost_at(&client, &text(&held["id"])).await;
        let late = lost_at.duration_since(time(&held["leaseExpiresAt"]));
        let most = LATE_MAX + stopwatch.withheld();
        assert!(!late.is_negative() && late.unsigned_abs() <= most, "lost {late:?} after its deadline");
    }
}

impl Crew {
    pub(crate) async fn hire(server: &Server, lease: Duration) -> Crew {
        Crew::hire_some(server, lease, leases(server)).await
    }

    async fn hire_some(server: &Server, lease: Duration, leases: usize) -> Crew {
        let client = server.client();
        let queue = format!("work-{}", lease.as_secs());
        make_queue(&client, &queue, json!({"visibilityTimeout": lease.as_secs()})).await;
        publish_many(&client, &queue, leases).await;
        let (mut healthy, mut gone) = (Vec::new(), Vec::new());
        while healthy.len() + gone.len() < leases {
            for job in receive(&client, &queue, json!({"batch": 100, "wait": 1})).await {
                assert_eq!(job["attempt"], 1, "a lease ran out before the test began");
                let held =
                    Held { id: text(&job["id"]), lease: text(&job["lease"]), told: time(&job["leaseExpiresAt"]) };
                let side = if (healthy.len() + gone.len()) % GONE_EVERY == 0 { &mut gone } else { &mut healthy };
                side.push(held);
            }
        }
        Crew { lease, healthy, gone }
    }

    /// Every worker that is there reports once, through any node. One whose call got no answer tries again; one who has
    /// lost his lease fails the test.
    pub(crate) async fn beat(&mut self, server: &Server) {
        let clients = server.clients();
        let share = self.healthy.len().div_ceil(LANES);
        let mut lanes = JoinSet::new();
        for (number, part) in self.healthy.chunks(share).enumerate() {
            let (client, mut part) = (clients[number % clients.len()].clone(), part.to_vec());
            lanes.spawn(async move {
                for held in &mut part {
                    held.told = beat(&client, held).await;
                }
                part
            });
        }
        self.healthy = lanes.join_all().await.into_iter().flatten().collect();
    }

    /// Heartbeats whose answers are not waited for.
    fn call_some(&self, client: &Client) -> JoinSet<Result<outlast_tests::http::Reply, Lost>> {
        let mut calls = JoinSet::new();
        for held in self.healthy.iter().take(CALLS_HELD_UP).cloned() {
            let client = Client::with_timeout(&client.base, &client.key, DEADLINE);
            calls.spawn(async move {
                client.post(&format!("/v1/jobs/{}/heartbeat", held.id), json!({"lease": held.lease})).await
            });
        }
        calls
    }

    /// The outage has really outlasted every lease.
    pub(crate) fn assert_all_ran_out(&self) {
        assert!(self.have_all_run_out(), "leases that have not run out");
    }

    fn have_all_run_out(&self) -> bool {
        let now = Timestamp::now();
        self.healthy.iter().chain(&self.gone).all(|held| held.told < now)
    }

    /// The healthy report on and on, until all who are gone have lost their leases: after the grace, not long after it.
    pub(crate) async fn go_on_until_the_gone_are_lost(&mut self, server: &Server, from: Timestamp, to: Timestamp) {
        let client = server.client();
        let (away, started) = (to.duration_since(from).unsigned_abs(), Stopwatch::start());
        let mut left: BTreeSet<usize> = (0..self.gone.len()).collect();
        while !left.is_empty() {
            assert!(!started.has_passed(DEADLINE), "{} dead workers still hold their leases", left.len());
            self.beat(server).await;
            for number in left.clone() {
                let held = &self.gone[number];
                if job(&client, &held.id).await["attempt"] == 1 {
                    continue;
                }
                left.remove(&number);
                let lost_at = lost_at(&client, &held.id).await;
                let (granted, most) = (held.told + away, to + self.lease);
                let earliest = granted.min(most) - SLACK;
                let latest = granted.max(most) + SLACK + LATE_MAX + started.withheld();
                assert!(
                    lost_at >= earliest && lost_at <= latest,
                    "{held:?} was lost at {lost_at}, away {from} to {to}"
                );
            }
        }
        println!(
            "away for {away:?}; {} dead workers lost their leases within {:?}",
            self.gone.len(),
            started.elapsed()
        );
    }

    /// Every worker that was there is at its first attempt still, and its outcome is taken.
    pub(crate) async fn finish(&self, server: &Server) {
        let client = server.client();
        let mut lanes = JoinSet::new();
        for part in self.healthy.chunks(self.healthy.len().div_ceil(LANES)) {
            let (client, part) = (client.clone(), part.to_vec());
            lanes.spawn(async move {
                for held in part {
                    let answer = settle(&client, &held.id, "ack", json!({"lease": held.lease})).await;
                    assert_eq!(answer["status"], "succeeded");
                }
            });
        }
        lanes.join_all().await;
        for held in self.healthy.iter().step_by(50) {
            assert_eq!(job(&client, &held.id).await["attempt"], 1);
        }
        println!("{} workers have kept their leases", self.healthy.len());
    }
}

/// One heartbeat that must be accepted, retried while the server is unreachable. Gives the new end of the lease.
async fn beat(client: &Client, held: &Held) -> Timestamp {
    let started = Stopwatch::start();
    loop {
        let sent = client.post(&format!("/v1/jobs/{}/heartbeat", held.id), json!({"lease": held.lease})).await;
        match sent {
            Ok(reply) if reply.status == 200 => return time(&reply.body["leaseExpiresAt"]),
            Ok(reply) if reply.status < 500 => {
                let log = events(client, &held.id).await;
                panic!("at {} a living worker was refused: {} {held:?} {log:?}", Timestamp::now(), reply.body)
            }
            Ok(_) | Err(_) => assert!(!started.has_passed(DEADLINE), "no answer for {held:?}"),
        }
        // Between two tries, as a worker does.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// When the job's first lease was taken away, once it was.
async fn lost_at(client: &Client, id: &str) -> Timestamp {
    wait::until("a lease to be lost", DEADLINE, async || {
        let events = events(client, id).await;
        let end = events.into_iter().find(|event| event["type"] == "attempt")?;
        assert_eq!(end["outcome"], "lease_expired", "{end}");
        Some(time(&end["at"]))
    })
    .await
}
