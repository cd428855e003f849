//! A hand-out's bytes are the result of that hand-out or of none: who lost its lease finds out, and what it brought goes.
//! (I-15, I-36)

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;

use crate::api::{events, job, make_queue, settle};
use crate::raw::Raw;
use crate::results::{DEADLINE, Held, Rig};

/// Half of what a slow worker announces.
const HALF: usize = 600_000;

/// An upload of which the first half has come, over a connection of its own.
pub(crate) struct HalfSent {
    connection: Raw,
}

impl HalfSent {
    /// Without the lease, where there is none to name.
    pub(crate) async fn begin(rig: &Rig, path: &str, lease: Option<&str>) -> HalfSent {
        let mut connection = Raw::connect(&rig.client.base).await.unwrap();
        let lease = lease.map_or(String::new(), |lease| format!("x-outlast-lease: {lease}\r\n"));
        let (key, length) = (&rig.client.key, 2 * HALF);
        let head = format!(
            "PUT {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{lease}content-length: {length}\r\n\r\n"
        );
        connection.send(head).await;
        connection.send(vec![b'1'; HALF]).await;
        HalfSent { connection }
    }

    /// The other half, and what the server says to all of it.
    pub(crate) async fn end(mut self) -> (u16, String) {
        self.connection.send(vec![b'1'; HALF]).await;
        let answer = self.connection.answer().await.expect("an upload is answered");
        (answer.status, answer.code())
    }
}

/// Waits until a new hand-out has begun to arrive on disk.
pub(crate) async fn until_bytes_arrive(rig: &Rig) {
    wait::until_now("bytes of an upload on disk", DEADLINE, || {
        rig.objects().iter().any(|(key, bytes)| key.ends_with(".part") && !bytes.is_empty()).then_some(())
    })
    .await;
}

// I-15, I-36: attempt 1 uploads slowly and loses its lease; attempt 2 is through long before. With a lease and without:
// who names none is held to the hand-out it began in.
#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_an_attempt_that_lost_its_lease_never_become_the_result() {
    let mut rig = Rig::on_folder().await;
    make_queue(&rig.client, "short", json!({"visibilityTimeout": 6, "maxAttempts": 5})).await;
    for named in [true, false] {
        let first = rig.held_of("short").await;
        let path = format!("/v1/jobs/{}/result", first.id);
        let slow = HalfSent::begin(&rig, &path, named.then_some(first.lease.as_str())).await;
        until_bytes_arrive(&rig).await;

        let second = rig.next("short").await;
        assert_eq!(second.id, first.id, "the lease of the first has run out");
        settle(&rig.client, &second.id, "heartbeat", json!({"lease": second.lease, "extend": 600})).await;
        // The second is at work when the first one's last byte comes.
        let (status, code) = slow.end().await;
        assert_eq!((status, code.as_str()), (409, "lease_lost"), "with a lease: {named}");
        rig.put(&second, "of the second").await.expect(201);
        assert_eq!(rig.ack(&second).await["status"], "succeeded");

        let got = rig.open(&rig.link(&second.id).await).await;
        assert_eq!(&got.body[..], b"of the second");
        rig.put(&first, "too late").await.expect_problem(409, "lease_lost");
        let late = json!({"lease": first.lease});
        let begin = rig.client.post(&format!("/v1/jobs/{}/result/upload", first.id), late).await.unwrap();
        begin.expect_problem(409, "lease_lost");
        assert!(!rig.objects().values().any(|bytes| bytes.starts_with(b"11")), "its bytes are gone at once");
    }
    rig.let_the_grace_pass().await;
    rig.until_only_live(2).await;
}

// I-36: a finalised result and the end of the lease meet again and again. Either the job has succeeded with these bytes,
// or the upload was refused and nothing of it is there.
#[tokio::test(flavor = "multi_thread")]
async fn finalize_racing_the_end_of_the_lease_has_one_winner() {
    let mut rig = Rig::on_folder().await;
    make_queue(&rig.client, "nacked", json!({"visibilityTimeout": 600, "backoff": {"type": "fixed", "delay": 0}}))
        .await;
    let lanes = (0..16_u64).map(|lane| race_in_lane(&rig, lane));
    let tallies = join_all(lanes).await;
    let [won, lost, adopted] = [0, 1, 2].map(|at| tallies.iter().map(|tally| tally[at]).sum::<usize>());
    println!("{won} uploads won, {lost} lost, {adopted} were adopted");
    let total = won + lost + adopted;
    assert!(10 * won.min(lost) > total, "a race that one side always wins shows nothing: {won}, {lost}, {adopted}");
    rig.audit();
    rig.let_the_grace_pass().await;
    rig.until_only_live(won + adopted).await;
}

/// How many races ended in which way.
async fn race_in_lane(rig: &Rig, lane: u64) -> [usize; 3] {
    let mut chance = Chance::seeded(seed("results race").wrapping_add(lane));
    let short = format!("race-{lane}");
    make_queue(&rig.client, &short, json!({"visibilityTimeout": 1})).await;
    let mut tally = [0; 3];
    let mut usual = Duration::from_millis(20);
    for round in 0..volume(125, 12_500) {
        // Leases of a second are awaited by few; most races are against another report of the same holder.
        let ending = match round % 50 {
            0 => race_with_the_clock(rig, &mut chance, &short).await,
            _ => race_with_a_nack(rig, &mut chance, &mut usual).await,
        };
        tally[ending] += 1;
    }
    tally
}

/// 0: the upload was in time and stays with the job; 1: it was refused.
async fn race_with_a_nack(rig: &Rig, chance: &mut Chance, usual: &mut Duration) -> usize {
    let held = rig.held_of("nacked").await;
    // Somewhere in the time that an upload takes here, or a little later.
    let pause = usual.mul_f64(chance.below(130) as f64 / 100.0);
    let upload = async {
        let started = Instant::now();
        let put = rig.put(&held, held.lease.clone()).await;
        *usual = (*usual + started.elapsed()) / 2;
        put
    };
    let nack = async {
        tokio::time::sleep(pause).await;
        settle(&rig.client, &held.id, "nack", json!({"lease": held.lease, "retryable": false})).await
    };

    let (put, _) = tokio::join!(upload, nack);

    assert!(put.status == 201 || (put.status, put.code()) == (409, "lease_lost"), "{} {}", put.status, put.body);
    let seen = job(&rig.client, &held.id).await;
    assert_eq!(seen["status"], "failed");
    assert_eq!(seen["resultMeta"]["partial"] == true, put.status == 201, "{seen}");
    usize::from(put.status != 201)
}

/// 0: the upload won and was acked; 1: it was refused; 2: the lease ended with it, and it became the result.
async fn race_with_the_clock(rig: &Rig, chance: &mut Chance, queue: &str) -> usize {
    let held = rig.held_of(queue).await;
    tokio::time::sleep(Duration::from_millis(chance.between(940, 1_010))).await;
    let put = rig.put(&held, held.lease.clone()).await;
    if put.status != 201 {
        put.expect_problem(409, "lease_lost");
        let next = rig.next(queue).await;
        assert_eq!((&next.id, &rig.ack(&next).await["status"]), (&held.id, &json!("succeeded")));
        assert_eq!(job(&rig.client, &held.id).await["resultUrl"], json!(null));
        return 1;
    }
    let ack = rig.client.post(&format!("/v1/jobs/{}/ack", held.id), json!({"lease": held.lease})).await.unwrap();
    let seen = wait::until("the job to succeed", DEADLINE, async || {
        let seen = job(&rig.client, &held.id).await;
        (seen["status"] == "succeeded").then_some(seen)
    })
    .await;
    assert_eq!(seen["attempt"], 1, "an upload that was confirmed is not done again: {seen}");
    let got = rig.open(&rig.link(&held.id).await).await;
    assert_eq!(&got.body[..], held.lease.as_bytes());
    if ack.status == 200 { 0 } else { 2 }
}

// The worker died between upload and ack: the work is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_with_a_finalised_result_succeeds() {
    let rig = Rig::on_folder().await;
    make_queue(&rig.client, "short", json!({"visibilityTimeout": 5})).await;
    let held = rig.held_of("short").await;
    rig.put(&held, "the work").await.expect(201);

    let seen = wait::until("the end of the lease", DEADLINE, async || {
        let seen = job(&rig.client, &held.id).await;
        (seen["status"] != "running").then_some(seen)
    })
    .await;

    assert_eq!((&seen["status"], &seen["attempt"]), (&json!("succeeded"), &json!(1)));
    let log = events(&rig.client, &held.id).await;
    assert_eq!(log.last().unwrap()["reason"], "result_adopted");
    assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"the work");
    assert_eq!(rig.audit(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upload_of_a_released_job_is_dropped() {
    let mut rig = Rig::on_folder().await;
    make_queue(&rig.client, "again", json!({"backoff": {"type": "fixed", "delay": 0}})).await;
    for (verb, body) in
        [("nack", json!({})), ("release", json!({})), ("defer", json!({"retryAfter": 0, "scope": "job"}))]
    {
        let held = rig.held_of("again").await;
        rig.put(&held, "first").await.expect(201);
        let mut report = body.clone();
        report["lease"] = json!(held.lease);
        settle(&rig.client, &held.id, verb, report).await;

        let next = rig.next("again").await;
        assert_eq!(next.id, held.id, "{verb}");
        assert_eq!(rig.ack(&next).await["status"], "succeeded");

        let seen = job(&rig.client, &held.id).await;
        assert_eq!((&seen["resultUrl"], &seen["resultMeta"]), (&json!(null), &json!(null)), "{verb}");
        assert_eq!(rig.result(&held.id).await.status, 404, "{verb}");
    }
    rig.let_the_grace_pass().await;
    rig.until_only_live(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_result_does_not_replace_an_uploaded_one() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    rig.put(&held, "uploaded").await.expect(201);

    let ack = json!({"lease": held.lease, "result": {"inline": true}});
    let refused = rig.client.post(&format!("/v1/jobs/{}/ack", held.id), ack).await.unwrap();

    refused.expect_problem(409, "result_exists");
    assert_eq!(job(&rig.client, &held.id).await["status"], "running");
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"uploaded");
}

// Within a hand-out the last upload counts, and the one before goes at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_upload_of_the_same_hand_out_takes_the_place_of_the_first() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let held = rig.held().await;
        for body in ["one", "two", "three"] {
            rig.put(&held, body).await.expect(201);
        }
        rig.ack(&held).await;

        assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"three");
        rig.until_only_live(1).await;
    }
}

// Partial results stay after a cancel; a replay starts without them.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_keeps_what_it_had_uploaded_until_it_is_replayed() {
    let mut rig = Rig::on_folder().await;
    let held = rig.held().await;
    rig.put(&held, "half of it").await.expect(201);
    settle(&rig.client, &held.id, "cancel", json!({})).await;
    settle(&rig.client, &held.id, "cancelled", json!({"lease": held.lease})).await;

    let seen = job(&rig.client, &held.id).await;
    assert_eq!((&seen["status"], &seen["resultMeta"]["partial"]), (&json!("cancelled"), &json!(true)), "{seen}");
    assert_eq!(seen["resultUrl"], format!("/v1/jobs/{}/result", held.id), "{seen}");
    let link = rig.link(&held.id).await;
    assert_eq!(&rig.open(&link).await.body[..], b"half of it");
    settle(&rig.client, &held.id, "replay", json!({})).await;

    let next = rig.next("work").await;
    assert_eq!(next.id, held.id);
    assert_eq!((rig.result(&held.id).await.status, rig.open(&link).await.status), (404, 404));
    rig.ack(&next).await;
    assert_eq!(job(&rig.client, &held.id).await["resultMeta"], json!(null));
    rig.let_the_grace_pass().await;
    rig.until_only_live(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_accepted_only_from_the_holder() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    let stranger = Held { id: held.id.clone(), lease: "0".repeat(held.lease.len()) };
    rig.put(&stranger, "not mine").await.expect_problem(409, "lease_lost");
    let reader = json!({"name": "reader", "scopes": ["read"]});
    let key = rig.client.post("/v1/keys", reader).await.unwrap().expect(201)["key"].clone();
    let url = format!("{}/v1/jobs/{}/result", rig.client.base, held.id);
    let refused = rig.fetch(Method::PUT, &url, &[], key.as_str()).await;
    assert_eq!(refused.status, 403);
    rig.ack(&held).await;
    rig.put(&held, "after the end").await.expect_problem(409, "lease_lost");

    assert_eq!(rig.objects().len(), 0);
}
