//! A command that breaks a rule of the server sets its job aside and nothing else: the job is readable, listed with its
//! reason, counted and replayable; the server, its alarms and all other jobs go on.

use std::time::Duration;

use outlast_tests::server::{Launch, Server};
use outlast_tests::violation;
use outlast_tests::wait::until;
use serde_json::{Value, json};

use crate::api::{dead, job, make_queue, publish, receive, receive_one, settle, text};

const QUEUE: &str = "work";
const SECRET: &str = "do-not-log-me";
const DEADLINE: Duration = Duration::from_secs(60);

/// How often all nodes of the server have set a job aside.
async fn counted(server: &Server) -> u64 {
    let mut count = 0;
    for node in &server.nodes {
        let page = node.client().get("/metrics").await.unwrap().expect(200);
        let sample = page.as_str().unwrap().lines().find_map(|line| line.strip_prefix("outlast_jobs_set_aside_total "));
        count += sample.expect("the metric").parse::<u64>().unwrap();
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_breaks_a_rule_is_set_aside_and_others_go_on() {
    let launch = Launch::fresh();
    let mut server = launch.start().await;
    let client = server.client();
    make_queue(&client, QUEUE, json!({"visibilityTimeout": 600})).await;
    let with_secret = |more: Value| {
        let mut request = json!({"payload": {"token": SECRET}, "key": SECRET});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    // One each for an alarm, a report and a hand-out.
    let path = format!("/v1/queues/{QUEUE}/jobs");
    let due = text(&client.post(&path, with_secret(json!({"delay": 5}))).await.unwrap().expect(202)["id"]);
    let held = text(&client.post(&path, with_secret(json!({}))).await.unwrap().expect(202)["id"]);
    let handed_out = receive_one(&client, QUEUE).await;
    let waiting = text(&client.post(&path, with_secret(json!({}))).await.unwrap().expect(202)["id"]);
    let sound = publish(&client, QUEUE, json!(1)).await;
    let sound_later = text(&client.post(&path, json!({"payload": 2, "delay": 5})).await.unwrap().expect(202)["id"]);
    assert!(server.terminate().await.success());
    match launch.database() {
        None => violation::plant_in_sqlite(&launch.data, 3),
        Some(database) => violation::plant_in_postgres(database, 3),
    }

    let mut server = launch.start().await;
    let client = server.client();
    let ack = client.post(&format!("/v1/jobs/{held}/ack"), json!({"lease": handed_out["lease"]})).await.unwrap();
    ack.expect_problem(500, "job_set_aside");
    let mut received = Vec::new();
    while received.len() < 2 {
        received.push(text(&receive_one(&client, QUEUE).await["id"]));
    }

    assert_eq!(received, [sound.clone(), sound_later.clone()]);
    until("the alarm of the third sets it aside", DEADLINE, async || {
        (job(&client, &due).await["status"] == "failed").then_some(())
    })
    .await;
    for id in [&due, &held, &waiting] {
        let shown = job(&client, id).await;
        assert_eq!((&shown["status"], &shown["error"]["reason"]), (&json!("failed"), &json!("set_aside")), "{shown}");
        assert!(shown["error"]["message"].to_string().contains("I-17"), "{shown}");
    }
    let mut listed = dead(&client, QUEUE).await;
    listed.sort();
    let mut expected = vec![due, held, waiting];
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(counted(&server).await, 3);
    client.get("/readyz").await.unwrap().expect(200);
    assert!(!server.log().contains(SECRET), "the log shows a payload or a key");
    assert!(server.log().contains("I-17"), "the log does not say which rule");

    for id in &expected {
        settle(&client, id, "replay", json!({})).await;
    }
    let again = receive(&client, QUEUE, json!({"batch": 10, "wait": 10})).await;
    assert_eq!(again.len(), 3, "replayed, they are jobs like all others");
    assert_eq!(counted(&server).await, 3);
    assert!(server.is_running());
}
