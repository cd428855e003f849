//! Heartbeats that wait: the leases are renewed on arrival, and the answer comes when a worker has something to learn.

use std::time::{Duration, Instant};

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish_many, receive, settle, text};
use crate::http_edges::configured;
use crate::overload::wait_for_waiters;
use crate::time_limits::time;

/// Longer than anything here takes, and shorter than the waits that must end early.
const SOON: Duration = Duration::from_secs(20);
const LONG: &str = "28s";

/// A worker at the first node, an operator at the last one, and the jobs that the worker holds.
struct Held {
    server: Server,
    worker: Client,
    operator: Client,
    jobs: Vec<Value>,
}

impl Held {
    async fn begin(count: usize, settings: Value) -> Held {
        let server = Server::fresh().await;
        let worker = server.nodes[0].client();
        let operator = server.nodes.last().unwrap().client();
        make_queue(&worker, "work", settings).await;
        publish_many(&worker, "work", count).await;
        let jobs = receive(&worker, "work", json!({"batch": count})).await;
        assert_eq!(jobs.len(), count);
        Held { server, worker, operator, jobs }
    }

    fn id(&self, place: usize) -> String {
        text(&self.jobs[place]["id"])
    }

    /// The heartbeats of all jobs, with these directives seen by each.
    fn beats(&self, seen: &Value, wait: &str) -> Value {
        let beat = |job: &Value| json!({"id": job["id"], "lease": job["lease"], "seen": seen});
        json!({"heartbeats": self.jobs.iter().map(beat).collect::<Vec<_>>(), "wait": wait})
    }

    /// The same where directives do not end the wait.
    fn blind_beats(&self, wait: &str) -> Value {
        let beat = |job: &Value| json!({"id": job["id"], "lease": job["lease"]});
        json!({"heartbeats": self.jobs.iter().map(beat).collect::<Vec<_>>(), "wait": wait})
    }

    /// Sends the heartbeats, does something once they wait, and gives the results with the time since then.
    async fn meanwhile(&self, beats: Value, act: impl AsyncFnOnce()) -> (Vec<Value>, Duration) {
        let (results, began) = tokio::join!(send(&self.worker, beats), async {
            wait_for_waiters(&self.worker, self.jobs.len().div_ceil(4)).await;
            let began = Instant::now();
            act().await;
            began
        });
        (results, began.elapsed())
    }
}

async fn send(client: &Client, beats: Value) -> Vec<Value> {
    let answer = client.post("/v1/heartbeats", beats).await.unwrap().expect(200);
    answer["results"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_on_any_node_ends_the_wait_of_the_worker() {
    let held = Held::begin(5, json!({"visibilityTimeout": 600})).await;

    let (results, took) = held
        .meanwhile(held.beats(&json!([]), LONG), async || {
            held.operator.post(&format!("/v1/jobs/{}/cancel", held.id(3)), json!({})).await.unwrap().expect(200);
        })
        .await;

    assert!(took < SOON, "{took:?}");
    for (place, result) in results.iter().enumerate() {
        assert_eq!((&result["id"], &result["accepted"]), (&held.jobs[place]["id"], &json!(true)));
        let wanted = if place == 3 { json!(["cancel", "checkpoint_now"]) } else { json!([]) };
        assert_eq!((&result["directives"], &result["cancelRequested"]), (&wanted, &json!(place == 3)), "{result}");
    }
    wait_for_waiters(&held.worker, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_cancels_at_once_come_with_few_answers() {
    let held = Held::begin(12, json!({"visibilityTimeout": 600})).await;

    let (first, _) = held
        .meanwhile(held.beats(&json!([]), LONG), async || {
            for place in 0..12 {
                held.operator.delete(&format!("/v1/jobs/{}", held.id(place))).await.unwrap().expect(200);
            }
        })
        .await;
    let second = send(&held.worker, held.beats(&json!([]), "0")).await;

    let cancelled = |results: &[Value]| results.iter().filter(|result| result["cancelRequested"] == true).count();
    assert!(cancelled(&first) >= 1);
    assert_eq!(cancelled(&second), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn directives_that_were_seen_do_not_end_the_wait_and_others_do_in_any_order() {
    let held = Held::begin(1, json!({"visibilityTimeout": 600})).await;
    held.operator.delete(&format!("/v1/jobs/{}", held.id(0))).await.unwrap().expect(200);

    for (seen, waits) in [
        (json!(["checkpoint_now", "cancel"]), true),
        (json!(["cancel", "checkpoint_now", "cancel"]), true),
        (json!(["cancel"]), false),
        (json!(["cancel", "checkpoint_now", "slow_down"]), false),
        (json!([]), false),
    ] {
        let began = Instant::now();
        let wait = if waits { "1s" } else { LONG };
        let results = send(&held.worker, held.beats(&seen, wait)).await;

        assert_eq!(results[0]["directives"], json!(["cancel", "checkpoint_now"]), "{seen}");
        match waits {
            true => assert!(began.elapsed() >= Duration::from_secs(1), "{seen}"),
            false => assert!(began.elapsed() < SOON, "{seen}"),
        }
    }
    let blind = held.blind_beats("1s");
    let began = Instant::now();
    send(&held.worker, blind).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "an entry without seen waits through its directives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_ends_the_wait_also_of_an_entry_without_seen() {
    let held = Held::begin(2, json!({"visibilityTimeout": 600})).await;

    let (results, took) = held
        .meanwhile(held.blind_beats(LONG), async || {
            settle(&held.operator, &held.id(1), "release", json!({"lease": held.jobs[1]["lease"]})).await;
        })
        .await;

    assert!(took < SOON, "{took:?}");
    assert_eq!(results[0]["accepted"], true);
    assert_eq!((&results[1]["accepted"], &results[1]["error"]["code"]), (&json!(false), &json!("lease_lost")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_refused_on_arrival_is_answered_at_once() {
    let held = Held::begin(1, json!({"visibilityTimeout": 600})).await;
    let good = json!({"id": held.jobs[0]["id"], "lease": held.jobs[0]["lease"], "seen": []});
    let lost = json!({"id": held.jobs[0]["id"], "lease": "0".repeat(32)});
    let wrong = json!({"id": held.jobs[0]["id"], "seen": ["stop"]});

    for (bad, code) in [(lost, "lease_lost"), (wrong, "invalid_request")] {
        let began = Instant::now();
        let results = send(&held.worker, json!({"heartbeats": [good, bad], "wait": LONG})).await;

        assert!(began.elapsed() < SOON, "{code}");
        assert_eq!((&results[0]["accepted"], &results[1]["error"]["code"]), (&json!(true), &json!(code)));
    }
    let too_long = held.worker.post("/v1/heartbeats", json!({"heartbeats": [], "wait": 31})).await.unwrap();
    assert!(too_long.expect_problem(400, "invalid_request").to_string().contains("wait"));
}

// A worker that waits for as long as it may and comes back at once keeps its lease.
#[tokio::test(flavor = "multi_thread")]
async fn no_wait_is_longer_than_a_third_of_the_shortest_lease() {
    let held = Held::begin(2, json!({"visibilityTimeout": 6})).await;
    let began = Instant::now();
    let mut answers = 0;

    while began.elapsed() < Duration::from_secs(9) {
        let results = send(&held.worker, held.beats(&json!([]), LONG)).await;
        assert!(results.iter().all(|result| result["accepted"] == true), "{results:?}");
        answers += 1;
    }

    assert!(answers >= 2, "{answers}");
    assert_eq!(job(&held.worker, &held.id(0)).await["attempt"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_limit_ends_the_wait_when_it_is_reached() {
    let held = Held::begin(1, json!({"visibilityTimeout": 600, "softTimeLimit": 3, "hardTimeLimit": 500})).await;
    let began = Instant::now();

    let results = send(&held.worker, held.beats(&json!([]), LONG)).await;

    assert!(began.elapsed() < SOON);
    assert_eq!(
        (&results[0]["softLimitReached"], &results[0]["directives"]),
        (&json!(true), &json!(["checkpoint_now"]))
    );
}

// The queue is held by the report of another job of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_the_queue_ends_the_wait_with_slow_down() {
    let held = Held::begin(2, json!({"visibilityTimeout": 600})).await;
    let beat = json!({"id": held.jobs[0]["id"], "lease": held.jobs[0]["lease"], "seen": []});
    let beats = json!({"heartbeats": [beat], "wait": LONG});

    let (results, ()) = tokio::join!(send(&held.worker, beats), async {
        wait_for_waiters(&held.worker, 1).await;
        let defer = json!({"lease": held.jobs[1]["lease"], "retryAfter": 300, "scope": "queue"});
        settle(&held.operator, &held.id(1), "defer", defer).await;
    });

    assert_eq!(results[0]["directives"], json!(["slow_down"]), "{results:?}");
}

// A client that hangs up leaves nothing behind, and its leases were renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_up_has_renewed_its_leases_and_frees_its_place() {
    let held = Held::begin(3, json!({"visibilityTimeout": 600})).await;
    let before = job(&held.worker, &held.id(0)).await;
    let (worker, beats) = (held.worker.clone(), held.beats(&json!([]), LONG));

    let waiting = tokio::spawn(async move { worker.post("/v1/heartbeats", beats).await });
    wait_for_waiters(&held.worker, 1).await;
    waiting.abort();
    wait_for_waiters(&held.worker, 0).await;

    let after = job(&held.worker, &held.id(0)).await;
    assert!(time(&after["leaseExpiresAt"]) > time(&before["leaseExpiresAt"]), "{before} {after}");
    assert_eq!(after["version"].as_u64().unwrap(), before["version"].as_u64().unwrap() + 1);
    drop(held.server);
}

// Waiting for many jobs takes as many places as it costs; a heartbeat that gets none is answered, and another key has its own.
#[tokio::test(flavor = "multi_thread")]
async fn waits_are_charged_by_their_jobs_and_heartbeats_are_never_refused_for_it() {
    let server = configured("limits:\n  waiting_requests: 60\n  waiting_requests_per_key: 5\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({"visibilityTimeout": 600})).await;
    publish_many(&client, "work", 40).await;
    let jobs = receive(&client, "work", json!({"batch": 40})).await;
    let beats = |count: usize, wait: &str| {
        let beat = |job: &Value| json!({"id": job["id"], "lease": job["lease"], "seen": []});
        json!({"heartbeats": jobs[..count].iter().map(beat).collect::<Vec<_>>(), "wait": wait})
    };

    let began = Instant::now();
    let crowded = send(&client, beats(40, LONG)).await;
    assert!(began.elapsed() < SOON, "ten places are more than the key may have");
    assert!(crowded.iter().all(|result| result["accepted"] == true));

    let (waiter, twenty) = (client.clone(), beats(20, LONG));
    let waiting = tokio::spawn(async move { waiter.post("/v1/heartbeats", twenty).await });
    wait_for_waiters(&client, 5).await;
    let ids: Vec<Value> = jobs.iter().map(|job| json!({"id": job["id"], "version": 1000})).collect();
    let refused = client.post("/v1/jobs/wait", json!({"jobs": ids, "wait": 20})).await.unwrap();
    refused.expect_problem(429, "too_many_requests");
    let other = client.post("/v1/keys", json!({"name": "victim", "scopes": ["consume"]})).await.unwrap().expect(201);
    let other = Client::new(&client.base, &text(&other["key"]));
    let began = Instant::now();
    other.post("/v1/queues/work/receive", json!({"wait": "1s"})).await.unwrap().expect(200);
    assert!(began.elapsed() >= Duration::from_secs(1), "another key can wait");
    waiting.abort();
    wait::until("the places to be free", SOON, async || {
        wait_for_waiters(&client, 0).await;
        Some(())
    })
    .await;
}
