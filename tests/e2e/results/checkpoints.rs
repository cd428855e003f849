//! Checkpoints that are too large for the database: the next attempt goes on from exactly the last one.

use reqwest::Method;
use serde_json::json;

use crate::api::{job, make_queue, receive_one, settle, text};
use crate::results::{Held, MIB, Rig, bytes, digest};

// I-35: replaced, handed on over a crash, and gone with the success of the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_checkpoint_is_handed_to_the_next_attempt_and_goes_with_success() {
    for mut rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        make_queue(&rig.client, "long", json!({"backoff": {"type": "fixed", "delay": 0}})).await;
        let held = rig.held_of("long").await;
        let (first, last) = (bytes(MIB), bytes(3 * MIB + 17));
        for body in [&first, &last] {
            let saved = rig.put_as(&held, "/checkpoint/blob?schemaVersion=3", "text/plain", body.clone()).await;
            assert_eq!(saved.expect(200)["accepted"], true);
        }
        // The one that was replaced goes without being asked for.
        rig.until_only_live(1).await;
        rig.restart().await;
        settle(&rig.client, &held.id, "nack", json!({"lease": held.lease})).await;

        let next = receive_one(&rig.client, "long").await;
        let checkpoint = &next["checkpoint"];
        assert_eq!((&checkpoint["schemaVersion"], &checkpoint["data"]), (&json!(3), &json!(null)));
        assert_eq!(checkpoint["length"], last.len());
        assert_eq!(checkpoint["sha256"], digest(&last));
        let url = rig.whole(&text(&checkpoint["blobUrl"]));
        let got = rig.fetch(Method::GET, &url, &[], Some(&rig.client.key)).await;
        assert_eq!((got.status, got.body == last), (200, true));
        let part = rig.fetch(Method::GET, &url, &[("range", "bytes=1-3")], Some(&rig.client.key)).await;
        assert_eq!((part.status, &part.body[..]), (206, &last[1..4]));
        assert_eq!(rig.fetch(Method::GET, &url, &[], None).await.status, 401, "not without a key");

        let next = Held { id: text(&next["id"]), lease: text(&next["lease"]) };
        let stale = rig.put_as(&held, "/checkpoint/blob?schemaVersion=3", "text/plain", "late").await;
        stale.expect_problem(409, "lease_lost");
        rig.ack(&next).await;
        assert_eq!(rig.fetch(Method::GET, &url, &[], Some(&rig.client.key)).await.status, 404);
        rig.let_the_grace_pass().await;
        rig.until_only_live(0).await;
    }
}

// A checkpoint in the database and one in the object store take each other's place.
#[tokio::test(flavor = "multi_thread")]
async fn inline_and_large_checkpoints_replace_each_other() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;
    let path = format!("/v1/jobs/{}/checkpoint", held.id);

    rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", "large").await.expect(200);
    let inline = json!({"schemaVersion": 2, "data": {"page": 7}, "lease": held.lease});
    rig.client.put(&path, inline).await.unwrap().expect(200);

    assert_eq!(rig.client.get(&path).await.unwrap().expect(200)["data"], json!({"page": 7}));
    let blob = rig.client.get(&format!("{path}/blob")).await.unwrap();
    blob.expect_problem(404, "checkpoint_not_found");
    rig.until_only_live(0).await;
    rig.put_as(&held, "/checkpoint/blob?schemaVersion=3", "text/plain", "large again").await.expect(200);
    assert_eq!(rig.client.get(&path).await.unwrap().expect(200)["schemaVersion"], 3);
    rig.until_only_live(1).await;
}

// More checkpoints than uploads may be announced at once: those that were replaced do not count for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_may_save_large_checkpoints_as_often_as_it_likes() {
    let rig = Rig::on_folder().await;
    let held = rig.held().await;

    for number in 0..150 {
        let body = format!("checkpoint {number}");
        rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", body).await.expect(200);
    }

    assert_eq!(job(&rig.client, &held.id).await["checkpoint"]["length"], "checkpoint 149".len());
    rig.until_only_live(1).await;
}
