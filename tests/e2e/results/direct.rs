//! Uploads that do not pass through the server, or come to it by a link: announced, sent, finalised. The sender's
//! claims are checked, and uploads cannot be changed afterwards.

use std::time::Duration;

use outlast_tests::http::Reply;
use outlast_tests::s3::Mood;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{job, make_queue, text};
use crate::results::losers::{HalfSent, until_bytes_arrive};
use crate::results::{DEADLINE, Held, MIB, Rig, bytes, digest, header};

/// Long enough for another finalise and an ack.
const SLOW: Duration = Duration::from_secs(6);

async fn begin(rig: &Rig, held: &Held, mut request: Value) -> Value {
    request["lease"] = json!(held.lease);
    rig.client.post(&format!("/v1/jobs/{}/result/upload", held.id), request).await.unwrap().expect(201)
}

async fn finalize(rig: &Rig, held: &Held, upload: &Value, mut request: Value) -> Reply {
    request["lease"] = json!(held.lease);
    request["uploadId"] = upload["uploadId"].clone();
    rig.client.post(&format!("/v1/jobs/{}/result/finalize", held.id), request).await.unwrap()
}

/// The result that the job serves now.
async fn served(rig: &Rig, held: &Held) -> Vec<u8> {
    rig.open(&rig.link(&held.id).await).await.body.to_vec()
}

// I-36: one PUT to a link, without a key; then the server reads it once and makes it the result.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_by_link_becomes_the_result_when_it_is_finalised() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let (held, body) = (rig.held().await, bytes(2 * MIB));
        let upload = begin(&rig, &held, json!({"filename": "out.bin", "contentType": "image/png"})).await;
        assert_eq!((&upload["method"], upload["parts"].as_array().unwrap().len()), (&json!("PUT"), 1));
        let link = text(&upload["url"]);
        assert!(!link.contains(&rig.client.key[16..]), "the key is in the link");

        finalize(&rig, &held, &upload, json!({})).await.expect_problem(404, "upload_not_found");
        assert_eq!(rig.send(&link, body.clone()).await.status, 200);
        assert_eq!(job(&rig.client, &held.id).await["resultMeta"], json!(null), "sent is not finalised");
        let said = json!({"sha256": digest(&body), "length": body.len()});
        let made = finalize(&rig, &held, &upload, said.clone()).await.expect(201);

        assert_eq!((&made["sha256"], &made["length"]), (&said["sha256"], &said["length"]));
        assert_eq!((&made["filename"], &made["contentType"]), (&json!("out.bin"), &json!("image/png")));
        // The answer may have been lost: asked once more, it is the same.
        assert_eq!(finalize(&rig, &held, &upload, said).await.expect(201)["sha256"], made["sha256"]);
        assert_eq!(rig.ack(&held).await["status"], "succeeded");
        assert!(served(&rig, &held).await == body);
        rig.audit();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_parts_becomes_one_result() {
    let rig = Rig::on_bucket().await;
    let (held, body) = (rig.held().await, bytes(12 * MIB));
    let upload = begin(&rig, &held, json!({"parts": 3})).await;
    let mut parts = Vec::new();
    for (part, bytes) in upload["parts"].as_array().unwrap().iter().zip(body.chunks(5 * MIB)) {
        let sent = rig.send(&text(&part["url"]), bytes.to_vec()).await;
        assert_eq!(sent.status, 200);
        parts.push(json!({"number": part["number"], "etag": header(&sent, "etag")}));
    }
    for wrong in [json!([]), json!([parts[0], parts[2]]), json!([parts[0], parts[0], parts[1]])] {
        let refused = finalize(&rig, &held, &upload, json!({"parts": wrong})).await;
        assert_eq!(refused.expect_problem(400, "invalid_request")["errors"][0]["field"], "parts");
    }
    // All parts that were announced, not just the first of them.
    for (named, missing) in [(1, "missing: 2, 3"), (2, "missing: 3")] {
        let refused = finalize(&rig, &held, &upload, json!({"parts": parts[..named]})).await;
        let message = text(&refused.expect_problem(400, "invalid_request")["errors"][0]["message"]);
        assert!(message.contains("all 3 parts") && message.ends_with(missing), "{message}");
    }
    assert!(!rig.rows().iter().any(|row| row.kept), "nothing became a result");

    let said = json!({"parts": parts, "sha256": digest(&body)});
    let made = finalize(&rig, &held, &upload, said.clone()).await.expect(201);
    assert_eq!(made["length"], body.len());
    finalize(&rig, &held, &upload, said).await.expect(201);
    rig.ack(&held).await;

    assert!(served(&rig, &held).await == body);
    assert_eq!((rig.audit(), rig.s3().loose_parts()), (1, 0));
}

// A finalise is slow, the worker asks again, and is through with the job before the first one ends: that one takes
// nothing away.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalise_that_ends_after_the_ack_takes_nothing_away() {
    let rig = Rig::on_bucket().await;
    let (held, body) = (rig.held().await, bytes(6 * MIB));
    let upload = begin(&rig, &held, json!({"parts": 2})).await;
    let mut parts = Vec::new();
    for (part, bytes) in upload["parts"].as_array().unwrap().iter().zip(body.chunks(5 * MIB)) {
        let sent = rig.send(&text(&part["url"]), bytes.to_vec()).await;
        parts.push(json!({"number": part["number"], "etag": header(&sent, "etag")}));
    }
    let said = json!({"parts": parts});
    let asked = rig.s3().requests().len();
    rig.s3().set(Mood::Slow(SLOW));
    let first = finalize(&rig, &held, &upload, said.clone());
    let second = async {
        wait::until_now("the first to reach the bucket", DEADLINE, || {
            (rig.s3().requests().len() > asked).then_some(())
        })
        .await;
        rig.s3().set(Mood::Fine);
        finalize(&rig, &held, &upload, said.clone()).await.expect(201);
        rig.ack(&held).await
    };

    let (late, acked) = tokio::join!(first, second);

    assert_eq!(acked["status"], "succeeded");
    late.expect_problem(409, "lease_lost");
    assert!(served(&rig, &held).await == body);
    assert_eq!(rig.audit(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_not_what_was_said_is_refused_and_nothing_is_kept() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let held = rig.held().await;
        let upload = begin(&rig, &held, json!({})).await;
        rig.send(&text(&upload["url"]), "what was sent").await;

        for said in [
            json!({"sha256": digest(b"what was meant")}),
            json!({"length": 12}),
            json!({"length": 13, "sha256": digest(b"what was meant")}),
        ] {
            finalize(&rig, &held, &upload, said).await.expect_problem(400, "invalid_request");
        }

        assert!(!rig.rows().iter().any(|row| row.kept));
        rig.ack(&held).await;
        assert_eq!(job(&rig.client, &held.id).await["resultUrl"], json!(null));
        rig.audit();
    }
}

// A link to write outlives the upload it was made for; the result does not care.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_the_link_cannot_change_the_result() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let held = rig.held().await;
        let upload = begin(&rig, &held, json!({})).await;
        let link = text(&upload["url"]);
        rig.send(&link, "the result").await;
        finalize(&rig, &held, &upload, json!({})).await.expect(201);

        // Before the ack and after it; a bucket accepts the bytes, and they belong to no job.
        rig.send(&link, "something else").await;
        assert_eq!(rig.ack(&held).await["status"], "succeeded");
        assert_eq!(served(&rig, &held).await, b"the result");
        rig.send(&link, "something else").await;

        assert_eq!(served(&rig, &held).await, b"the result");
        assert_eq!(job(&rig.client, &held.id).await["resultMeta"]["sha256"], digest(b"the result"));
        assert_eq!(rig.audit(), 1);
    }
}

// The same with a second upload that was under way when the first was finalised.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_ends_after_the_finalise_does_not_change_the_result() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    let upload = begin(&rig, &held, json!({})).await;
    let link = text(&upload["url"]);
    assert_eq!(rig.send(&link, "the result").await.status, 200);
    let slow = HalfSent::begin(&rig, &link, None).await;
    until_bytes_arrive(&rig).await;

    finalize(&rig, &held, &upload, json!({})).await.expect(201);
    rig.ack(&held).await;
    slow.end().await;

    assert_eq!(served(&rig, &held).await, b"the result");
    assert_eq!(rig.audit(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_out_may_announce_a_hundred_uploads() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    for _ in 0..100 {
        begin(&rig, &held, json!({})).await;
    }

    let full = rig.client.post(&format!("/v1/jobs/{}/result/upload", held.id), json!({"lease": held.lease})).await;
    full.unwrap().expect_problem(409, "uploads_full");
    rig.put(&held, "one more").await.expect_problem(409, "uploads_full");

    let unknown = json!({"uploadId": "0123456789abcdef"});
    finalize(&rig, &held, &unknown, json!({})).await.expect_problem(404, "upload_not_found");
    // It can still be given back, and the next hand-out has room.
    let release = json!({"lease": held.lease});
    rig.client.post(&format!("/v1/jobs/{}/release", held.id), release).await.unwrap().expect(200);
    let next = rig.next("work").await;
    rig.put(&next, "of the next").await.expect(201);
    rig.ack(&next).await;
    assert_eq!(served(&rig, &next).await, b"of the next");
}

// The rows of many lost hand-outs wait for their hour; the result is found behind all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_found_among_the_remains_of_many_hand_outs() {
    let rig = Rig::on_folder().await;
    let mut held = rig.held().await;
    for _ in 0..10 {
        for _ in 0..25 {
            begin(&rig, &held, json!({})).await;
        }
        let release = json!({"lease": held.lease});
        rig.client.post(&format!("/v1/jobs/{}/release", held.id), release).await.unwrap().expect(200);
        held = rig.next("work").await;
    }

    let upload = begin(&rig, &held, json!({})).await;
    rig.send(&text(&upload["url"]), "found").await;
    finalize(&rig, &held, &upload, json!({})).await.expect(201);
    rig.ack(&held).await;

    assert!(rig.rows().len() > 250, "the remains are still known");
    assert_eq!(served(&rig, &held).await, b"found");
}

// Bytes sent to a link of a bucket are copied, and the copy is the result; then the sent bytes are deleted.
// Bytes sent again over the link belong to no job, and are deleted when the link has expired.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_sent_to_a_bucket_do_not_stay_beside_the_result() {
    let mut rig = Rig::on_bucket().await;
    make_queue(&rig.client, "short", json!({"resultTtl": 5})).await;
    let held = rig.held_of("short").await;
    let upload = begin(&rig, &held, json!({})).await;
    let link = text(&upload["url"]);
    assert_eq!(rig.send(&link, "the result").await.status, 200);

    finalize(&rig, &held, &upload, json!({})).await.expect(201);

    assert_eq!(rig.objects().into_values().collect::<Vec<_>>(), [b"the result"]);
    // The answer may have been lost.
    finalize(&rig, &held, &upload, json!({"length": 10})).await.expect(201);
    rig.ack(&held).await;
    assert_eq!(served(&rig, &held).await, b"the result");
    wait::until("the result to expire", DEADLINE, async || (rig.result(&held.id).await.status == 410).then_some(()))
        .await;
    wait::until_now("the result to be deleted", DEADLINE, || rig.objects().is_empty().then_some(())).await;

    assert_eq!(rig.send(&link, "once more").await.status, 200);
    assert_eq!(rig.objects().len(), 1);
    rig.let_the_grace_pass().await;
    rig.until_only_live(0).await;
}
