//! The end of a result: it expires, or its job or queue is deleted. The object is deleted from the disk or the bucket,
//! links that were made before lead nowhere, and nothing else is ever touched.

use std::time::Duration;

use outlast_tests::wait;
use serde_json::json;

use crate::api::{job, make_queue, publish_many, receive, text};
use crate::results::{DEADLINE, Held, Rig};

// I-37: 410 after the TTL, also over a crash.
#[tokio::test(flavor = "multi_thread")]
async fn after_its_time_a_result_is_gone_and_the_job_says_so() {
    for mut rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        make_queue(&rig.client, "short", json!({"resultTtl": 8})).await;
        let stays = rig.succeeded("work", "stays").await;
        let inline = rig.held_of("short").await;
        let ack = json!({"lease": inline.lease, "result": {"inline": true}});
        rig.client.post(&format!("/v1/jobs/{}/ack", inline.id), ack).await.unwrap().expect(200);
        let held = rig.succeeded("short", "goes").await;
        let link = rig.link(&held.id).await;
        assert_eq!(&rig.open(&link).await.body[..], b"goes");
        let before = rig.objects().len();
        rig.restart().await;

        for id in [&held.id, &inline.id] {
            wait::until("the result to expire", DEADLINE, async || (rig.result(id).await.status == 410).then_some(()))
                .await;
            let seen = rig.client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(410);
            assert_eq!(seen["status"], "expired");
            rig.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect_problem(410, "job_expired");
        }

        assert_eq!(before, 2);
        rig.until_only_live(1).await;
        // The port is another one since the restart; what was signed is the same.
        let path = link.split_once("/v1/").map(|(_, rest)| format!("{}/v1/{rest}", rig.client.base));
        assert_eq!(rig.open(path.as_deref().unwrap_or(&link)).await.status, 404);
        assert_eq!(&rig.open(&rig.link(&stays.id).await).await.body[..], b"stays");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_jobs_go_their_objects_go() {
    let mut rig = Rig::on_folder().await;
    make_queue(&rig.client, "brief", json!({"resultTtl": 1, "retention": 1})).await;
    make_queue(&rig.client, "doomed", json!({})).await;
    let stays = rig.succeeded("work", "stays").await;
    let brief = rig.succeeded("brief", "for a second").await;
    rig.succeeded("doomed", "until its queue goes").await;
    let running = rig.held_of("doomed").await;
    rig.put(&running, "never acked").await.expect(201);
    rig.put_as(&running, "/checkpoint/blob?schemaVersion=1", "text/plain", "nor this").await.expect(200);
    let begun = json!({"lease": running.lease});
    let begun = rig.client.post(&format!("/v1/jobs/{}/result/upload", running.id), begun).await.unwrap().expect(201);
    assert_eq!(rig.send(&text(&begun["url"]), "nor finalised").await.status, 200);

    rig.client.delete("/v1/queues/doomed?force=true").await.unwrap();
    wait::until("the job to be deleted", DEADLINE, async || {
        let gone = rig.client.get(&format!("/v1/jobs/{}", brief.id)).await.unwrap().status == 404;
        let queue = rig.client.get("/v1/queues/doomed").await.unwrap().status == 404;
        (gone && queue).then_some(())
    })
    .await;

    // A holder of the link may still write an upload without finalize, so it is kept for an hour.
    wait::until_now("what was kept to go", DEADLINE, || (rig.objects().len() == 2).then_some(())).await;
    rig.audit();
    rig.let_the_grace_pass().await;
    rig.until_only_live(1).await;
    assert_eq!(&rig.open(&rig.link(&stays.id).await).await.body[..], b"stays");
}

// A purge cancels what waits; what such jobs had uploaded or saved in an earlier attempt stays theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_leaves_what_other_jobs_have() {
    let mut rig = Rig::on_folder().await;
    let stays = rig.succeeded("work", "stays").await;
    make_queue(&rig.client, "purged", json!({"backoff": {"type": "fixed", "delay": 600}, "retention": 4})).await;
    publish_many(&rig.client, "purged", 5).await;
    for held in receive(&rig.client, "purged", json!({"batch": 5})).await {
        let held = Held { id: text(&held["id"]), lease: text(&held["lease"]) };
        rig.put(&held, "of an attempt").await.expect(201);
        rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", "where it was").await.expect(200);
        rig.client.post(&format!("/v1/jobs/{}/nack", held.id), json!({"lease": held.lease})).await.unwrap().expect(200);
    }

    rig.client.post("/v1/queues/purged/purge", json!({})).await.unwrap();

    // The checkpoints are kept for a replay, until the jobs go.
    wait::until("the jobs to be gone", DEADLINE, async || {
        let page = rig.client.get("/v1/jobs?queue=purged").await.unwrap().expect(200);
        page["items"].as_array().is_some_and(Vec::is_empty).then_some(())
    })
    .await;
    rig.let_the_grace_pass().await;
    rig.until_only_live(1).await;
    assert_eq!(job(&rig.client, &stays.id).await["status"], "succeeded");
    wait::within(Duration::from_secs(20), rig.link(&stays.id)).await.expect("a link");
}
