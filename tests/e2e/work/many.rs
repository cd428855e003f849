//! A worker with many jobs speaks for all of them in one call; each is taken or refused on its own.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish_many, receive, settle, text};
use crate::time_limits::time;

const JOBS: usize = 40;
const DEADLINE: Duration = Duration::from_secs(30);

/// Jobs that one worker holds.
async fn held(client: &Client) -> Vec<Value> {
    make_queue(client, "work", json!({"visibilityTimeout": 600})).await;
    publish_many(client, "work", JOBS).await;
    let held = receive(client, "work", json!({ "batch": JOBS })).await;
    assert_eq!(held.len(), JOBS);
    held
}

async fn results(client: &Client, path: &str, body: Value) -> Vec<Value> {
    let answer = client.post(path, body).await.unwrap().expect(200);
    answer["results"].as_array().expect("there are results").clone()
}

fn entry(job: &Value, more: Value) -> Value {
    let mut entry = json!({"id": job["id"], "lease": job["lease"]});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_brings_the_progress_of_all_and_each_is_judged_alone() {
    let server = Server::fresh().await;
    let client = server.client();
    let held = held(&client).await;
    settle(&client, &text(&held[1]["id"]), "ack", json!({"lease": held[1]["lease"]})).await;

    for round in [10, 20] {
        let mut reports: Vec<Value> =
            held.iter().map(|job| entry(job, json!({"itemsDone": round, "itemsTotal": 100}))).collect();
        reports.push(json!({"id": held[0]["id"], "lease": held[2]["lease"], "pct": 99}));
        reports.push(json!({"id": held[0]["id"], "lease": held[0]["lease"], "pct": 101}));
        reports.push(json!({"id": "01a1e137-0000-7000-8000-000000000000", "pct": 1}));
        let results = results(&client, "/v1/progress", json!({ "reports": reports })).await;

        assert_eq!(results.len(), JOBS + 3);
        for (place, result) in results.iter().enumerate() {
            let (accepted, code) = (&result["accepted"], &result["error"]["code"]);
            match place {
                1 => assert_eq!((accepted, code), (&json!(false), &json!("lease_lost")), "{result}"),
                JOBS => assert_eq!((accepted, code), (&json!(false), &json!("lease_lost")), "{result}"),
                place if place == JOBS + 1 => {
                    assert_eq!((accepted, code), (&json!(false), &json!("invalid_request")), "{result}");
                    assert!(result["error"].to_string().contains("reports[41].pct"), "{result}");
                }
                place if place == JOBS + 2 => assert_eq!(code, "job_not_found", "{result}"),
                _ => assert_eq!((accepted, &result["progress"]["pct"]), (&json!(true), &json!(round))),
            }
            if place < JOBS {
                assert_eq!(result["id"], held[place]["id"]);
            }
        }
    }

    for (place, one) in held.iter().enumerate().filter(|(place, _)| *place != 1) {
        // Other nodes hear of it within a second.
        wait::until(&format!("progress of job {place}"), DEADLINE, async || {
            (job(&client, &text(&one["id"])).await["progress"]["pct"] == 20).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_keeps_all_leases_with_checkpoints_and_brings_back_what_each_should_know() {
    let mut server = Server::fresh().await;
    let client = server.client();
    let held = held(&client).await;
    client.delete(&format!("/v1/jobs/{}", text(&held[3]["id"]))).await.unwrap().expect(200);
    settle(&client, &text(&held[1]["id"]), "release", json!({"lease": held[1]["lease"]})).await;

    let beats: Vec<Value> = held
        .iter()
        .enumerate()
        .map(|(place, job)| {
            let checkpoint = json!({"schemaVersion": 1, "data": {"place": place}});
            entry(job, json!({"extend": 3600, "progress": {"pct": 50}, "checkpoint": checkpoint}))
        })
        .collect();
    let results = results(&client, "/v1/heartbeats", json!({ "heartbeats": beats })).await;

    for (place, result) in results.iter().enumerate() {
        assert_eq!(result["id"], held[place]["id"]);
        match place {
            1 => assert_eq!(result["error"]["code"], "lease_lost", "{result}"),
            3 => assert_eq!((&result["accepted"], &result["directives"][0]), (&json!(true), &json!("cancel"))),
            _ => assert_eq!((&result["accepted"], &result["directives"]), (&json!(true), &json!([])), "{result}"),
        }
    }
    // All of it is on disk.
    server.crash_and_restart().await;
    let client = server.client();
    for (place, one) in held.iter().enumerate().filter(|(place, _)| *place != 1) {
        let id = text(&one["id"]);
        let checkpoint = client.get(&format!("/v1/jobs/{id}/checkpoint")).await.unwrap().expect(200);
        assert_eq!(checkpoint["data"]["place"], place);
        let after = job(&client, &id).await;
        // The lease is extended by the downtime.
        assert!(time(&after["leaseExpiresAt"]) >= time(&results[place]["leaseExpiresAt"]), "{after}");
        assert_eq!(after["progress"]["pct"], 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_about_too_many_or_about_nothing_is_refused_whole() {
    let server = Server::fresh().await;
    let client = server.client();
    for (path, list) in [("/v1/progress", "reports"), ("/v1/heartbeats", "heartbeats")] {
        let one = json!({"id": "01a1e137-0000-7000-8000-000000000000"});
        let too_many = client.post(path, json!({list: vec![one; 1001]})).await.unwrap();
        let text = too_many.expect_problem(400, "invalid_request").to_string();
        assert!(text.contains(list) && text.contains("1000"), "{text}");
        let nothing = client.post(path, json!({})).await.unwrap();
        assert!(nothing.expect_problem(400, "invalid_request").to_string().contains(list));
        assert_eq!(results(&client, path, json!({list: []})).await, Vec::<Value>::new());
    }
}
