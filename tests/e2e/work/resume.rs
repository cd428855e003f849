//! The worker is gone in the middle: what it finished is not done again. The same when the server is killed as well,
//! and when it is killed at any moment while checkpoints are being saved. (I-35, K9)

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Reply};
use outlast_tests::server::Server;
use serde_json::{Value, json};

use super::{Work, raw};
use crate::api::{make_queue, publish, receive_one, settle, text};

const SECTIONS: usize = 161;
/// How far the first worker gets.
const DONE: usize = 140;

/// A worker as anybody would write it: takes the job, skips what is there, does the rest, and is killed after `most`.
/// Gives the sections that it did itself.
async fn work_until(client: &Client, most: usize) -> (Value, Vec<String>) {
    let held = receive_one(client, "report").await;
    let id = text(&held["id"]);
    let there: Vec<String> = serde_json::from_value(held["sections"].clone()).unwrap();
    let mut done = Vec::new();
    for number in 1..=SECTIONS {
        let name = format!("section-{number:03}");
        if there.contains(&name) {
            continue;
        }
        if done.len() == most {
            return (held, done);
        }
        // The call to the model would be here.
        let request = client.request(reqwest::Method::PUT, &format!("/v1/jobs/{id}/sections/{name}"));
        let request = request.header("x-outlast-lease", text(&held["lease"])).json(&json!({ "text": name }));
        client.send(request).await.unwrap().expect(200);
        done.push(name);
        if number % 10 == 0 {
            let beat = json!({"lease": held["lease"], "progress": {"itemsDone": number, "itemsTotal": SECTIONS}});
            client.post(&format!("/v1/jobs/{id}/heartbeat"), beat).await.unwrap().expect(200);
        }
    }
    (held, done)
}

async fn report_queue(client: &Client) -> String {
    let settings = json!({"visibilityTimeout": 8, "backoff": {"type": "fixed", "delay": 0}});
    make_queue(client, "report", settings).await;
    publish(client, "report", json!({"sections": SECTIONS})).await
}

async fn finish(client: &Client, id: &str) {
    let (held, done) = work_until(client, usize::MAX).await;

    assert_eq!(held["id"], json!(id));
    assert_eq!(held["sections"].as_array().map(Vec::len), Some(DONE), "the next attempt receives what is finished");
    assert_eq!(done.len(), SECTIONS - DONE, "and does the rest, never all of it");
    assert_eq!(done[0], format!("section-{:03}", DONE + 1));
    assert_eq!(held["attempt"], json!(2));
    let page = client.get(&format!("/v1/jobs/{id}/sections?limit=200")).await.unwrap().expect(200);
    let texts: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|item| &item["value"]["text"]).collect();
    let wanted: Vec<Value> = (1..=SECTIONS).map(|number| json!(format!("section-{number:03}"))).collect();
    assert_eq!(texts, wanted.iter().collect::<Vec<_>>());
    settle(client, id, "ack", json!({"lease": held["lease"], "result": {"pages": SECTIONS}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_at_section_140_of_161_leaves_21_to_the_next() {
    let server = Server::fresh().await;
    let client = server.client();
    let id = report_queue(&client).await;

    let (_, done) = work_until(&client, DONE).await;
    assert_eq!(done.len(), DONE);
    // It says nothing any more; its lease runs out.
    finish(&client, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_when_the_server_is_killed_with_it() {
    let mut server = Server::fresh().await;
    let id = report_queue(&server.client()).await;

    let (_, done) = work_until(&server.client(), DONE).await;
    assert_eq!(done.len(), DONE);
    server.crash_and_restart().await;

    finish(&server.client(), &id).await;
}

/// The answers to the worker, and its requests without an answer.
#[derive(Default)]
struct Told {
    /// The last checkpoint that was acknowledged, with its progress.
    saved: u64,
    /// The last one that was sent.
    sent: u64,
    acknowledged: usize,
    unknown: usize,
}

// I-35, K9: whatever the moment of the crash, the next attempt gets the last acknowledged checkpoint, or the one whose
// answer was lost; never an older one, never a mixture; and its progress is the same one's.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_checkpoint_survives_kill_9_with_its_progress() {
    let seed = seed("K9 checkpoints");
    let mut chance = Chance::seeded(seed);
    let mut work = Work::begin(json!({"maxAttempts": 20, "visibilityTimeout": "12h"})).await;
    let cycles = volume(8, 200);
    let mut told = Told::default();
    for cycle in 0..cycles {
        let saving = tokio::spawn(save_on(work.client.clone(), work.id.clone(), work.lease.clone(), told.sent));
        tokio::time::sleep(Duration::from_millis(100 + chance.below(400))).await;
        work.crash().await;
        let said = saving.await.unwrap();
        told = Told {
            saved: told.saved.max(said.saved),
            acknowledged: told.acknowledged + said.acknowledged,
            unknown: told.unknown + said.unknown,
            sent: said.sent,
        };

        let shown = raw(&work.client, &work.path("checkpoint")).await;
        let job = work.job().await;
        // Free of charge, so that the attempts last.
        settle(&work.client, &work.id, "release", json!({"lease": work.lease})).await;
        let held = work.take().await;

        let kept: Value = serde_json::from_str(&shown).unwrap();
        let step = kept["data"]["step"].as_u64().unwrap();
        assert!(
            (told.saved..=told.sent).contains(&step),
            "cycle {cycle}: {step} is not {}..={}",
            told.saved,
            told.sent
        );
        assert!(shown.contains(&data(step)), "cycle {cycle}, byte for byte: {shown}");
        assert_eq!(held["checkpoint"], kept, "cycle {cycle}");
        assert_eq!(job["progress"]["itemsDone"], json!(step), "cycle {cycle}: progress and checkpoint are one");
        told.saved = step;
    }
    println!("{} acknowledged, {} unknown over {cycles} crashes", told.acknowledged, told.unknown);
    assert!(told.acknowledged > 2 * cycles, "too few to mean anything: {}", told.acknowledged);
    assert!(told.unknown > 0, "no crash came in the middle of a call");
}

/// Saves one checkpoint after the other until the server is gone.
async fn save_on(client: Client, id: String, lease: String, from: u64) -> Told {
    let mut told = Told { sent: from, ..Told::default() };
    loop {
        told.sent += 1;
        let step = told.sent;
        let body = format!(
            "{{\"schemaVersion\":1,\"data\":{},\"progress\":{{\"itemsDone\":{step}}},\"lease\":\"{lease}\"}}",
            data(step)
        );
        let request = client.request(reqwest::Method::PUT, &format!("/v1/jobs/{id}/checkpoint"));
        match client.send(request.header("content-type", "application/json").body(body)).await {
            Ok(Reply { status: 200, .. }) => {
                told.saved = step;
                told.acknowledged += 1;
            }
            Ok(reply) => panic!("a worker with its lease is refused: {} {}", reply.status, reply.body),
            Err(_) => {
                told.unknown += 1;
                return told;
            }
        }
    }
}

/// Long enough to span pages of a store, different each time, with a number that no double holds.
fn data(step: u64) -> String {
    format!(
        "{{\"step\":{step},\"exact\":{step}12345678901234567890.10,\"fill\":\"{}\"}}",
        format!("{step:06}").repeat(700)
    )
}
