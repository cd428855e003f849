//! `POST /v1/jobs/wait`: one request that waits for many jobs. (I-39)

use std::time::{Duration, Instant};

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish_many, receive, settle, text};
use crate::overload::wait_for_waiters;

const SOON: Duration = Duration::from_secs(20);
const LONG: &str = "28s";

async fn wait(client: &Client, jobs: &[(String, u64)], wait: &str) -> Vec<Value> {
    let jobs: Vec<Value> = jobs.iter().map(|(id, version)| json!({"id": id, "version": version})).collect();
    let answer = client.post("/v1/jobs/wait", json!({"jobs": jobs, "wait": wait})).await.unwrap().expect(200);
    answer["jobs"].as_array().unwrap().clone()
}

async fn published(client: &Client, count: usize) -> Vec<(String, u64)> {
    make_queue(client, "work", json!({"visibilityTimeout": 600})).await;
    publish_many(client, "work", count).await.into_iter().map(|id| (id, 1)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_many_jobs_gets_each_change_once_until_all_have_ended() {
    let server = Server::fresh().await;
    let (waiter, worker) = (server.nodes[0].client(), server.nodes.last().unwrap().client());
    let mut known = published(&waiter, 60).await;
    let work = async {
        for _ in 0..6 {
            let held = receive(&worker, "work", json!({"batch": 10})).await;
            for one in held {
                settle(&worker, &text(&one["id"]), "ack", json!({"lease": one["lease"]})).await;
            }
        }
    };
    let follow = async {
        let mut requests = 0;
        while !known.is_empty() {
            let changed = wait(&waiter, &known, LONG).await;
            requests += 1;
            assert!(!changed.is_empty(), "a job changes before the wait ends");
            for one in &changed {
                let place = known.iter().position(|(id, _)| *id == text(&one["id"])).expect("a job that was asked for");
                let version = one["version"].as_u64().unwrap();
                assert!(version > known[place].1, "{one}");
                assert!(one.get("payload").is_none() && one.get("events").is_none(), "{one}");
                match one["status"] == "succeeded" {
                    true => drop(known.remove(place)),
                    false => known[place].1 = version,
                }
            }
        }
        requests
    };

    let ((), requests) = tokio::join!(work, follow);

    assert!(requests <= 122, "{requests} requests for 120 changes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_a_change_ends_empty_and_a_change_ends_it_early() {
    let server = Server::fresh().await;
    let (waiter, worker) = (server.nodes[0].client(), server.nodes.last().unwrap().client());
    let known = published(&waiter, 9).await;

    let began = Instant::now();
    assert_eq!(wait(&waiter, &known, "1s").await, Vec::<Value>::new());
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(wait(&waiter, &known, "0").await, Vec::<Value>::new());

    let (changed, began) = tokio::join!(wait(&waiter, &known, LONG), async {
        wait_for_waiters(&waiter, 3).await;
        worker.delete(&format!("/v1/jobs/{}", known[7].0)).await.unwrap().expect(200);
        Instant::now()
    });
    assert!(began.elapsed() < SOON);
    assert_eq!(changed.len(), 1);
    assert_eq!((&changed[0]["id"], &changed[0]["status"]), (&json!(known[7].0), &json!("cancelled")));
    wait_for_waiters(&waiter, 0).await;
    let all: Vec<(String, u64)> = known.into_iter().map(|(id, _)| (id, 0)).collect();
    assert_eq!(wait(&waiter, &all, LONG).await.len(), 9, "what is newer is shown at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_jobs_are_named_at_once_and_jobs_out_of_reach_are_unknown() {
    let server = Server::fresh().await;
    let client = server.client();
    let known = published(&client, 1).await;
    let request = json!({"name": "bound", "scopes": ["read:other"]});
    let key = client.post("/v1/keys", request).await.unwrap().expect(201);
    let bound = Client::new(&client.base, &text(&key["key"]));
    let nowhere = ("01a1e137-0000-7000-8000-000000000000".to_owned(), 0);

    let began = Instant::now();
    let changed = wait(&client, &[known[0].clone(), nowhere.clone()], LONG).await;
    let hidden = wait(&bound, &known, LONG).await;

    assert!(began.elapsed() < SOON);
    assert_eq!(changed.len(), 1);
    assert_eq!((&changed[0]["id"], &changed[0]["error"]["code"]), (&json!(nowhere.0), &json!("job_not_found")));
    assert_eq!((hidden.len(), &hidden[0]["error"]["code"]), (1, &json!("job_not_found")));
    assert_eq!(job(&client, &known[0].0).await["version"], 1, "waiting changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_nothing_or_too_much_is_refused() {
    let server = Server::fresh().await;
    let client = server.client();
    let one = json!({"id": "01a1e137-0000-7000-8000-000000000000"});
    for (body, named) in [
        (json!({}), "jobs"),
        (json!({"jobs": []}), "at least one"),
        (json!({"jobs": vec![one.clone(); 1001]}), "1000"),
        (json!({"jobs": [one], "wait": 31}), "wait"),
        (json!({"jobs": [{"id": "x"}]}), "jobs[0].id"),
        (json!({"jobs": [{"id": "01a1e137-0000-7000-8000-000000000000", "version": -1}]}), "jobs[0].version"),
        (json!({"jobs": [7]}), "jobs[0]"),
    ] {
        let refused = client.post("/v1/jobs/wait", body).await.unwrap().expect_problem(400, "invalid_request");
        assert!(refused.to_string().contains(named), "{named}: {refused}");
    }
}
