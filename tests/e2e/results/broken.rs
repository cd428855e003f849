//! Uploads that end in the middle: the client goes, the worker dies, the server is killed. None becomes a result, none
//! is seen, and what is left over is known by name and goes. (I-36, F01, K9)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Lost};
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{job, make_queue, text};
use crate::results::losers::{HalfSent, until_bytes_arrive};
use crate::results::{DEADLINE, Rig, bytes, digest};

const KILLS: usize = 25;
const WORKERS: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_sender_goes_away_leaves_nothing() {
    let mut rig = Rig::on_folder().await;
    let held = rig.held().await;
    let begin = json!({"lease": held.lease});
    let begun = rig.client.post(&format!("/v1/jobs/{}/result/upload", held.id), begin).await.unwrap().expect(201);
    for path in [
        format!("/v1/jobs/{}/result", held.id),
        format!("/v1/jobs/{}/checkpoint/blob?schemaVersion=1", held.id),
        text(&begun["url"]),
    ] {
        let half = HalfSent::begin(&rig, &path, Some(&held.lease)).await;
        until_bytes_arrive(&rig).await;

        drop(half);

        wait::until_now("the bytes to go", DEADLINE, || rig.objects().is_empty().then_some(())).await;
        assert!(!rig.rows().iter().any(|row| row.kept), "{path}");
    }
    assert_eq!(rig.result(&held.id).await.status, 404);
    // The worker may try again in the same hand-out.
    rig.put(&held, "whole").await.expect(201);
    rig.ack(&held).await;
    rig.let_the_grace_pass().await;
    rig.until_only_live(1).await;
}

// F01: what the server had written of it stays on the disk, is no object, and goes with its hour.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_under_way_when_the_server_was_killed_is_collected() {
    let mut rig = Rig::on_folder().await;
    make_queue(&rig.client, "short", json!({"visibilityTimeout": 10})).await;
    let held = rig.held_of("short").await;
    let half = HalfSent::begin(&rig, &format!("/v1/jobs/{}/result", held.id), Some(&held.lease)).await;
    until_bytes_arrive(&rig).await;

    rig.restart().await;
    drop(half);

    let left = rig.objects();
    assert!(left.len() == 1 && left.keys().all(|key| key.ends_with(".part")), "{:?}", left.keys());
    rig.audit();
    let next = rig.next("short").await;
    assert_eq!(next.id, held.id, "its worker never reported again");
    assert_eq!(rig.result(&held.id).await.status, 404);
    rig.put(&next, "of the next").await.expect(201);
    rig.ack(&next).await;
    rig.let_the_grace_pass().await;
    rig.until_only_live(1).await;
}

// The connection of a link ends with the server; the same link is good for another try.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_by_link_can_be_sent_again_after_the_server_was_killed() {
    let mut rig = Rig::on_folder().await;
    let held = rig.held().await;
    let path = format!("/v1/jobs/{}/result", held.id);
    let begun = rig.client.post(&format!("{path}/upload"), json!({"lease": held.lease})).await.unwrap().expect(201);
    let half = HalfSent::begin(&rig, &text(&begun["url"]), None).await;
    until_bytes_arrive(&rig).await;
    rig.restart().await;
    drop(half);

    let sent = rig.send(&text(&begun["url"]), "whole").await;

    assert_eq!(sent.status, 200, "{}", String::from_utf8_lossy(&sent.body));
    let finalize = json!({"lease": held.lease, "uploadId": begun["uploadId"], "length": 5});
    rig.client.post(&format!("{path}/finalize"), finalize).await.unwrap().expect(201);
    rig.ack(&held).await;
    assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"whole");
    rig.audit();
}

/// The answers to a worker.
struct Told {
    id: String,
    sha256: String,
    acked: bool,
}

// I-36, K9: killed at any moment of uploads, finalising, acks and expiry, a job that has a result has these bytes.
#[tokio::test(flavor = "multi_thread")]
async fn no_kill_leaves_a_job_with_a_result_that_is_not_there() {
    let mut rig = Rig::on_folder().await;
    let mut chance = Chance::seeded(seed("K9 results"));
    make_queue(&rig.client, "brief", json!({"resultTtl": 2, "visibilityTimeout": 2})).await;
    make_queue(&rig.client, "kept", json!({"visibilityTimeout": 2})).await;
    let mut told: Vec<Told> = Vec::new();
    let under_way = Arc::new(AtomicU64::new(0));
    let mut struck = 0;
    for _ in 0..volume(KILLS, 400 * KILLS) {
        let mut workers = JoinSet::new();
        for number in 0..WORKERS {
            let (client, under_way) = (rig.client.clone(), Arc::clone(&under_way));
            let chance = Chance::seeded(chance.below(u64::MAX).wrapping_add(number));
            workers.spawn(async move { work(&client, chance, &under_way).await });
        }
        tokio::time::sleep(Duration::from_millis(chance.between(100, 900))).await;
        struck += usize::from(under_way.load(Ordering::SeqCst) > 0);
        rig.server.kill9().await;
        told.extend(workers.join_all().await.into_iter().flatten());
        under_way.store(0, Ordering::SeqCst);
        rig.server = rig.server.launch().clone().start().await;
        rig.client = rig.server.client();
        rig.audit();
    }
    let acked = told.iter().filter(|told| told.acked).count();
    println!("K9 results: {} uploads confirmed, {acked} acked, {struck} kills during an upload", told.len());
    assert!(struck > 0 && acked > 0, "{struck} kills in the middle, {acked} acks");
    check(&rig, &told).await;
    let live = rig.audit();
    rig.let_the_grace_pass().await;
    rig.audit();
    println!("K9 results: {live} live objects");
}

/// Publishes, uploads, acks, one job after another, until the server is gone.
async fn work(client: &Client, mut chance: Chance, under_way: &AtomicU64) -> Vec<Told> {
    let mut told = Vec::new();
    while let Ok(told_of) = one_job(client, &mut chance, under_way).await {
        told.extend(told_of);
    }
    told
}

async fn one_job(client: &Client, chance: &mut Chance, under_way: &AtomicU64) -> Result<Option<Told>, Lost> {
    let queue = if chance.percent(50) { "brief" } else { "kept" };
    client.post(&format!("/v1/queues/{queue}/jobs"), json!({"payload": 1})).await?;
    let got = client.post(&format!("/v1/queues/{queue}/receive"), json!({"wait": 1})).await?;
    let Some(held) = got.body["jobs"].get(0).cloned() else {
        return Ok(None);
    };
    let (id, lease) = (text(&held["id"]), text(&held["lease"]));
    let body = bytes(chance.between(1, 2_000_000) as usize);
    let sha256 = digest(&body);
    let path = format!("/v1/jobs/{id}/result");
    under_way.fetch_add(1, Ordering::SeqCst);
    let put = match chance.percent(50) {
        true => {
            let request = client.request(Method::PUT, &path).header("x-outlast-lease", &lease);
            client.send(request.body(body)).await?
        }
        false => by_link(client, &path, &lease, body.to_vec()).await?,
    };
    under_way.fetch_sub(1, Ordering::SeqCst);
    if put.status != 201 {
        return Ok(None);
    }
    assert_eq!(put.body["sha256"], sha256);
    let ack = client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": lease})).await;
    let acked = ack.as_ref().is_ok_and(|reply| reply.status == 200);
    Ok(Some(Told { id, sha256, acked }))
}

async fn by_link(client: &Client, path: &str, lease: &str, body: Vec<u8>) -> Result<outlast_tests::http::Reply, Lost> {
    let begun = client.post(&format!("{path}/upload"), json!({"lease": lease})).await?;
    let Some(url) = begun.body["url"].as_str() else {
        return Ok(begun);
    };
    client.send(client.keyless(Method::PUT, url).body(body)).await?;
    let finalize = json!({"lease": lease, "uploadId": begun.body["uploadId"]});
    client.post(&format!("{path}/finalize"), finalize).await
}

/// A confirmed upload is the result of its hand-out, whether its ack arrived or not.
async fn check(rig: &Rig, told: &[Told]) {
    for told in told {
        let seen = wait::until("the job to be done with", DEADLINE, async || {
            let reply = rig.client.get(&format!("/v1/jobs/{}", told.id)).await.unwrap();
            let status = text(&reply.body["status"]);
            (status == "succeeded" || status == "expired").then_some(reply.body)
        })
        .await;
        if seen["status"] == "succeeded" {
            assert_eq!(seen["resultMeta"]["sha256"], told.sha256, "{seen}");
            let live = job_or_gone(rig, &told.id).await;
            assert!(live.is_none_or(|bytes| digest(&bytes) == told.sha256), "{}", told.id);
        }
    }
}

/// The bytes, unless they expire at this moment.
async fn job_or_gone(rig: &Rig, id: &str) -> Option<Vec<u8>> {
    let answer = rig.result(id).await;
    if answer.status == 410 {
        return None;
    }
    assert_eq!(answer.status, 307);
    let got = rig.open(&rig.whole(answer.headers["location"].to_str().unwrap())).await;
    let seen: Value = rig.client.get(&format!("/v1/jobs/{id}")).await.unwrap().body;
    assert!(got.status == 200 || seen["status"] == "expired", "{} of {seen}", got.status);
    (got.status == 200).then(|| got.body.to_vec())
}

// The control of the audit: it does notice bytes that are gone, changed, or unknown.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_notices_what_is_missing_changed_or_unknown() {
    let rig = Rig::on_folder().await;
    let held = rig.succeeded("work", "all is well").await;
    assert_eq!(job(&rig.client, &held.id).await["status"], "succeeded");
    let crate::results::Place::Folder(folder) = &rig.place else {
        panic!("the rig has a folder");
    };
    let key = rig.objects().into_keys().next().unwrap();
    let notices = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.audit())).is_err();
    assert!(!notices());

    std::fs::write(folder.join(&key), "all is WELL").unwrap();
    assert!(notices(), "changed");
    std::fs::write(folder.join(&key), "all is well").unwrap();
    std::fs::write(folder.join("stray"), "whose?").unwrap();
    assert!(notices(), "unknown");
    std::fs::remove_file(folder.join("stray")).unwrap();
    std::fs::remove_file(folder.join(&key)).unwrap();
    assert!(notices(), "missing");
}
