//! I-24: a bulk replay replays each job once, however often the server dies in the middle.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_tests::chance::volume;
use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use outlast_tests::workload::snapshot::{listed, read_jobs};
use serde_json::{Value, json};

use crate::api::{dead, events, job, make_queue, publish_many, receive, settle, text};

/// From a start of the server to more progress, or to the end of the whole.
const PROGRESS_DEADLINE: Duration = Duration::from_secs(60);

// The latest failure is the one that an operator looks for.
#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_by_time_of_failure_newest_first() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let ids = publish_many(&client, "work", 3).await;
    let held = receive(&client, "work", json!({"batch": 3})).await;
    let lease = |id: &str| held.iter().find(|job| job["id"] == json!(id)).unwrap()["lease"].clone();

    for id in [&ids[2], &ids[0], &ids[1]] {
        settle(&client, id, "nack", json!({"lease": lease(id), "retryable": false})).await;
    }

    assert_eq!(dead(&client, "work").await, [&*ids[1], &*ids[0], &*ids[2]]);
    let page = client.get("/v1/queues/work/dead?limit=1").await.unwrap().expect(200);
    let cursor = text(&page["nextCursor"]);
    let rest = client.get(&format!("/v1/queues/work/dead?limit=9&cursor={cursor}")).await.unwrap().expect(200);
    assert_eq!(
        rest["items"].as_array().unwrap().iter().map(|job| text(&job["id"])).collect::<Vec<_>>(),
        [&*ids[0], &*ids[2]]
    );
    for wrong in ["j1", "d1", "dx-1", "d-1-1"] {
        let reply = client.get(&format!("/v1/queues/work/dead?cursor={wrong}")).await.unwrap();
        reply.expect_problem(400, "invalid_request");
    }
}

// I-24: kill -9 in the middle of a bulk replay, several times, leaves no doubles and no holes.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_killed_in_the_middle_leaves_no_doubles_and_no_holes() {
    let count = volume(2_000, 100_000);
    let kills = volume(4, 200);
    let mut server = Server::fresh().await;
    let ids = make_dead_letters(&server.client(), count).await;
    let operation = start_replay(&server.client(), count).await;

    for kill in 1..=kills {
        let client = server.client();
        let target = (count * kill / (kills + 1)) as u64;
        let processed = wait_for_progress(&client, &operation, target).await;
        assert!(processed < count as u64, "the replay ended before kill {kill}: slow it down");
        server.crash_and_restart().await;
    }
    let client = server.client();
    let done = wait_until_done(&client, &operation).await;

    assert_eq!((&done["status"], &done["processed"]), (&json!("done"), &json!(count)));
    assert_eq!(listed(&client, "work").await.len(), count, "no job was made or lost");
    let jobs = read_jobs(&client, ids).await;
    let mut replays: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs.values() {
        *replays.entry(format!("replays {} {}", job["replays"], job["status"])).or_default() += 1;
    }
    assert_eq!(replays, BTreeMap::from([("replays 1 \"queued\"".to_owned(), count)]));
    assert_eq!(dead(&client, "work").await, Vec::<String>::new());
    assert_replayed_once(&client, jobs.keys()).await;
}

// I-24: a job that fails again while the same bulk replay is under way is not replayed by it a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_again_during_the_bulk_is_not_replayed_twice() {
    let count = 400;
    let mut server = Server::fresh().await;
    let ids = make_dead_letters(&server.client(), count).await;
    let operation = start_replay(&server.client(), count).await;
    wait_for_progress(&server.client(), &operation, count as u64 / 4).await;
    fail_everything(&server.client(), count / 8).await;
    server.crash_and_restart().await;

    let client = server.client();
    fail_everything(&client, count - count / 8).await;
    let done = wait_until_done(&client, &operation).await;

    assert_eq!(done["processed"], count);
    let jobs = read_jobs(&client, ids).await;
    for job in jobs.values() {
        assert_eq!((&job["replays"], &job["status"]), (&json!(1), &json!("failed")), "{job}");
    }
    assert_eq!(dead(&client, "work").await.len(), count);
}

// I-24: a dry run counts and changes nothing; a limit is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_a_limit_is_kept() {
    let server = Server::fresh().await;
    let client = server.client();
    make_dead_letters(&client, 30).await;

    let dry = client.post("/v1/queues/work/dead/replay", json!({"dryRun": true})).await.unwrap().expect(200);
    assert_eq!((&dry["dryRun"], &dry["matched"]), (&json!(true), &json!(30)));
    assert_eq!(dead(&client, "work").await.len(), 30);

    let reply = client.post("/v1/queues/work/dead/replay", json!({"limit": 10})).await.unwrap();
    let operation = text(&reply.expect(202)["id"]);
    assert_eq!(wait_until_done(&client, &operation).await["processed"], 10);
    assert_eq!(dead(&client, "work").await.len(), 20);
}

// I-09: a job whose idempotency key has passed on to another job cannot be replayed, alone or in bulk.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_key_another_job_has_is_not_replayed() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({"dedupe": "unless_failed"})).await;
    let publish = async |key: &str| {
        let body = json!({"payload": 1, "idempotencyKey": key});
        text(&client.post("/v1/queues/work/jobs", body).await.unwrap().expect(202)["id"])
    };
    let (first, free) = (publish("k").await, publish("free").await);
    fail_everything(&client, 2).await;
    let second = publish("k").await;

    let refused = client.post(&format!("/v1/jobs/{first}/replay"), json!({})).await.unwrap();
    let detail = text(&refused.expect_problem(409, "key_taken")["detail"]);
    let reply = client.post("/v1/queues/work/dead/replay", json!({})).await.unwrap();
    let done = wait_until_done(&client, &text(&reply.expect(202)["id"])).await;

    assert!(detail.contains(&second), "{detail}");
    assert_eq!((&done["processed"], &done["skipped"]), (&json!(1), &json!(1)));
    assert_eq!(dead(&client, "work").await, std::slice::from_ref(&first));
    assert_eq!(job(&client, &free).await["status"], json!("queued"));
    client.post(&format!("/v1/jobs/{second}/cancel"), json!({})).await.unwrap().expect(200);
    client.post(&format!("/v1/jobs/{first}/replay"), json!({})).await.unwrap().expect(200);
}

// I-09: replays of a job race with publishes of its key, over HTTP and, where there are several, over all nodes: at the
// end one job of the key is live.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_racing_publishes_of_its_key_leaves_one_live_job() {
    let server = Server::fresh().await;
    let clients = server.clients();
    make_queue(&clients[0], "work", json!({"dedupe": "unless_failed", "visibilityTimeout": 3600})).await;
    for round in 0..volume(15, 300) {
        let body = json!({"payload": 1, "idempotencyKey": format!("k{round}")});
        let made = clients[0].post("/v1/queues/work/jobs", body.clone()).await.unwrap().expect(202);
        let first = text(&made["id"]);
        fail_everything(&clients[0], 1).await;

        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let (client, first, body) = (clients[racer % clients.len()].clone(), first.clone(), body.clone());
            racers.spawn(async move {
                match racer % 4 {
                    0 => client.post(&format!("/v1/jobs/{first}/replay"), json!({})).await.unwrap(),
                    _ => client.post("/v1/queues/work/jobs", body).await.unwrap(),
                }
            });
        }
        for reply in racers.join_all().await {
            assert!(matches!(reply.status, 200 | 202 | 409), "{} {}", reply.status, reply.body);
        }

        let live = receive(&clients[0], "work", json!({"batch": 10, "wait": 5})).await;
        assert_eq!(live.len(), 1, "round {round}: {live:?}");
        assert_eq!(receive(&clients[0], "work", json!({"batch": 10})).await.len(), 0);
        let lease = &live[0]["lease"];
        clients[0]
            .post(&format!("/v1/jobs/{}/ack", text(&live[0]["id"])), json!({"lease": lease}))
            .await
            .unwrap()
            .expect(200);
    }
}

async fn make_dead_letters(client: &Client, count: usize) -> Vec<String> {
    make_queue(client, "work", json!({"visibilityTimeout": 3600})).await;
    let ids = publish_many(client, "work", count).await;
    fail_everything(client, count).await;
    assert_eq!(dead(client, "work").await.len(), count);
    ids
}

/// Receives and finally fails `count` jobs, waiting for them where they are still to come.
async fn fail_everything(client: &Client, count: usize) {
    let mut failed = 0;
    while failed < count {
        let batch = (count - failed).min(100);
        let jobs = receive(client, "work", json!({"batch": batch, "wait": 20})).await;
        assert!(!jobs.is_empty(), "{failed} of {count} came");
        let report =
            |job: &Value| json!({"id": job["id"], "lease": job["lease"], "outcome": "nack", "retryable": false});
        let outcomes: Vec<Value> = jobs.iter().map(report).collect();
        let results = client.post("/v1/outcomes", json!({ "outcomes": outcomes })).await.unwrap().expect(200);
        for result in results["results"].as_array().unwrap() {
            assert_eq!((&result["accepted"], &result["status"]), (&json!(true), &json!("failed")), "{result}");
        }
        failed += jobs.len();
    }
}

/// Slow enough to be hit in the middle, some seconds in all.
async fn start_replay(client: &Client, count: usize) -> String {
    let request = json!({"ratePerSecond": (count / 4).max(100)});
    let reply = client.post("/v1/queues/work/dead/replay", request).await.unwrap();
    let location = reply.headers.get("location").map(|value| value.to_str().unwrap().to_owned());
    let operation = reply.expect(202);
    assert_eq!(operation["kind"], "replay");
    assert_eq!(location, Some(format!("/v1/operations/{}", text(&operation["id"]))));
    text(&operation["id"])
}

async fn wait_for_progress(client: &Client, operation: &str, target: u64) -> u64 {
    wait::until("progress of the bulk replay", PROGRESS_DEADLINE, async || {
        let processed = read_operation(client, operation).await["processed"].as_u64().unwrap();
        (processed >= target).then_some(processed)
    })
    .await
}

async fn wait_until_done(client: &Client, operation: &str) -> Value {
    wait::until("the end of the bulk replay", PROGRESS_DEADLINE, async || {
        let operation = read_operation(client, operation).await;
        (operation["status"] != "running").then_some(operation)
    })
    .await
}

async fn read_operation(client: &Client, operation: &str) -> Value {
    client.get(&format!("/v1/operations/{operation}")).await.unwrap().expect(200)
}

/// The log of each job shows one replay, not two that undid each other. A sample, since each is a call.
async fn assert_replayed_once<'a>(client: &Client, ids: impl Iterator<Item = &'a String>) {
    for id in ids.step_by(20) {
        let events = events(client, id).await;
        let replays = events.iter().filter(|event| event["type"] == "state" && event["reason"] == "replayed").count();
        assert_eq!(replays, 1, "job {id}: {events:?}");
    }
}
