//! F21, F22: the object store is away, slow, or loses what it has confirmed. No job succeeds without its result, a
//! worker keeps its job by heartbeats and tries again, and everything that needs no object goes on.

use std::time::Duration;

use outlast_tests::s3::{CREDENTIALS, Mood};
use outlast_tests::server::Launch;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::{job, make_queue, publish, receive_one, settle, text};
use crate::results::{DEADLINE, Held, MIB, Place, Rig, bytes, header};

/// More than every other call may take while the bucket dawdles.
const SLOW: Duration = Duration::from_secs(4);

/// Calls without objects work as usual.
async fn others_go_on(rig: &Rig) {
    let id = publish(&rig.client, "other", json!(1)).await;
    let held = receive_one(&rig.client, "other").await;
    let ack = json!({"lease": held["lease"], "result": {"inline": true}});
    assert_eq!(settle(&rig.client, &id, "ack", ack).await["status"], "succeeded");
    assert_eq!(rig.result(&id).await.status, 200);
}

// F21: 503 with Retry-After, for an upload through the server, small and in parts, and for a finalise.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_bucket_refuses_no_job_succeeds_and_the_worker_keeps_its_job() {
    let rig = Rig::on_bucket().await;
    make_queue(&rig.client, "other", json!({})).await;
    let before = rig.succeeded("work", "from before").await;
    let held = rig.held().await;
    let upload = rig.client.post(&format!("/v1/jobs/{}/result/upload", held.id), json!({"lease": held.lease})).await;
    let upload = upload.unwrap().expect(201);
    assert_eq!(rig.send(&text(&upload["url"]), "by link").await.status, 200);
    rig.s3().set(Mood::Busy);

    for body in [bytes(10), bytes(9 * MIB)] {
        let refused = rig.put(&held, body).await;
        assert!(refused.headers.contains_key("retry-after"));
        refused.expect_problem(503, "blobs_unavailable");
    }
    let finalize = json!({"lease": held.lease, "uploadId": upload["uploadId"]});
    let path = format!("/v1/jobs/{}/result/finalize", held.id);
    let refused = rig.client.post(&path, finalize.clone()).await.unwrap();
    refused.expect_problem(503, "blobs_unavailable");
    let read = rig.result(&before.id).await;
    assert_eq!((read.status, header(&read, "retry-after").is_empty()), (503, false));
    others_go_on(&rig).await;
    settle(&rig.client, &held.id, "heartbeat", json!({"lease": held.lease})).await;
    let seen = job(&rig.client, &held.id).await;
    assert_eq!((&seen["status"], &seen["resultMeta"]), (&json!("running"), &json!(null)));

    rig.s3().set(Mood::Fine);
    rig.client.post(&path, finalize).await.unwrap().expect(201);
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"by link");
    assert_eq!(&rig.open(&rig.link(&before.id).await).await.body[..], b"from before");
    assert_eq!(rig.audit(), 2);
}

// F21: a slow bucket delays only requests that need it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_bucket_delays_no_other_request() {
    let rig = Rig::on_bucket().await;
    make_queue(&rig.client, "other", json!({})).await;
    let held = rig.held().await;
    rig.s3().set(Mood::Slow(SLOW));
    let asked = rig.s3().requests().len();
    let upload = rig.put(&held, "in its own time");
    let meanwhile = async {
        wait::until_now("the upload to reach the bucket", DEADLINE, || {
            (rig.s3().requests().len() > asked).then_some(())
        })
        .await;
        for _ in 0..3 {
            others_go_on(&rig).await;
            settle(&rig.client, &held.id, "heartbeat", json!({"lease": held.lease})).await;
        }
        rig.objects().len()
    };

    let (put, stored) = tokio::join!(upload, meanwhile);

    assert_eq!(stored, 0, "three rounds were done before the bucket took it");
    put.expect(201);
    rig.s3().set(Mood::Fine);
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    assert_eq!(rig.audit(), 1);
}

// A bucket that takes the request and never answers: the reader gets an answer within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_in_a_bucket_that_hangs_is_unavailable_within_seconds() {
    let rig = Rig::on_bucket().await;
    let before = rig.succeeded("work", "from before").await;
    rig.s3().set(Mood::Slow(Duration::from_secs(600)));
    let started = Stopwatch::start();

    let read = rig.result(&before.id).await;

    assert_eq!((read.status, header(&read, "retry-after").is_empty()), (503, false));
    assert!(started.charged() < Duration::from_secs(15), "{}", started.reading());
    rig.s3().set(Mood::Fine);
    assert_eq!(&rig.open(&rig.link(&before.id).await).await.body[..], b"from before");
}

// F21: nothing listens there at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_bucket_cannot_be_reached_does_everything_else() {
    let launch = CREDENTIALS.iter().fold(Launch::fresh(), |launch, (name, value)| launch.with_env(name, value));
    let port = outlast_tests::daemon::free_port();
    let url = format!("s3://results/of/tests?region=eu-central-1&endpoint=http://127.0.0.1:{port}");
    let nowhere = launch.scratch().join("nothing");
    let rig = Rig::start(launch.with_env("OUTLAST_BLOBS_URL", &url), Place::Folder(nowhere)).await;
    make_queue(&rig.client, "other", json!({})).await;
    let held = rig.held().await;

    let refused = rig.put(&held, "nowhere to go").await;

    assert!(refused.headers.contains_key("retry-after"));
    refused.expect_problem(503, "blobs_unavailable");
    let saved = rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", "nor this").await;
    saved.expect_problem(503, "blobs_unavailable");
    others_go_on(&rig).await;
    settle(&rig.client, &held.id, "heartbeat", json!({"lease": held.lease})).await;
    // The worker may decide to do without.
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    assert_eq!(job(&rig.client, &held.id).await["resultUrl"], json!(null));
}

// F22: what was sent is gone before it is finalised: nothing to make a result of.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_lost_before_it_is_finalised_is_no_result() {
    let rig = Rig::on_bucket().await;
    let held = rig.held().await;
    let path = format!("/v1/jobs/{}/result", held.id);
    let upload = rig.client.post(&format!("{path}/upload"), json!({"lease": held.lease})).await.unwrap().expect(201);
    assert_eq!(rig.send(&text(&upload["url"]), "soon lost").await.status, 200);
    rig.s3().lose(&rig.s3().objects()[0]);

    let finalize = json!({"lease": held.lease, "uploadId": upload["uploadId"]});
    let refused = rig.client.post(&format!("{path}/finalize"), finalize.clone()).await.unwrap();

    refused.expect_problem(404, "upload_not_found");
    assert_eq!(job(&rig.client, &held.id).await["resultMeta"], json!(null));
    // The link is still good.
    assert_eq!(rig.send(&text(&upload["url"]), "sent again").await.status, 200);
    rig.client.post(&format!("{path}/finalize"), finalize).await.unwrap().expect(201);
    rig.ack(&held).await;
    assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"sent again");
}

// F22: lost later, the reader gets an error, and the job does not change.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_lost_later_is_said_to_be_missing_and_the_job_stays() {
    let rig = Rig::on_bucket().await;
    let held = rig.succeeded("work", "soon lost").await;
    let whole = job(&rig.client, &held.id).await;
    rig.s3().lose(&rig.s3().objects()[0]);

    rig.client.get(&format!("/v1/jobs/{}/result", held.id)).await.unwrap().expect_problem(502, "result_missing");

    let seen = job(&rig.client, &held.id).await;
    assert_eq!((&seen["status"], &seen["version"]), (&whole["status"], &whole["version"]));
    assert_eq!(seen["resultMeta"], whole["resultMeta"], "what is missing was not downloaded");
    assert!(rig.server.log().contains("missing from the object store"), "the log names it");
}

// F21: what is due stays due while the bucket is away, and goes when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn failed_deletions_are_retried() {
    let rig = Rig::on_bucket().await;
    make_queue(&rig.client, "brief", json!({"resultTtl": 1})).await;
    let held: Held = rig.succeeded("brief", "for a second").await;
    rig.s3().set(Mood::Busy);
    wait::until("the result to expire", DEADLINE, async || (rig.result(&held.id).await.status == 410).then_some(()))
        .await;
    wait::until_now("a deletion that is refused", DEADLINE, || {
        rig.s3().requests().iter().any(|request| request.starts_with("DELETE")).then_some(())
    })
    .await;
    assert_eq!((rig.objects().len(), rig.rows().len()), (1, 1));

    rig.s3().set(Mood::Fine);

    rig.until_only_live(0).await;
}

// A deletion that always fails is put off, and holds up no other.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_cannot_be_deleted_do_not_stop_the_collection_of_others() {
    let rig = Rig::on_folder().await;
    make_queue(&rig.client, "brief", json!({"resultTtl": 1})).await;
    let Place::Folder(folder) = &rig.place else {
        panic!("this rig has a folder");
    };
    make_queue(&rig.client, "stubborn", json!({})).await;
    for _ in 0..STUBBORN {
        rig.succeeded("stubborn", "stays").await;
    }
    // A folder with something in it, in the place of the file.
    for key in rig.objects().into_keys() {
        std::fs::remove_file(folder.join(&key)).unwrap();
        std::fs::create_dir(folder.join(&key)).unwrap();
        std::fs::write(folder.join(&key).join("in the way"), "").unwrap();
    }
    rig.client.delete("/v1/queues/stubborn?force=true").await.unwrap();
    wait::until_now("the first of them to be tried", DEADLINE, || {
        rig.server.log().contains("an object could not be deleted").then_some(())
    })
    .await;

    let held = rig.succeeded("brief", "goes").await;

    wait::until_now("the object of another job to go", DEADLINE, || {
        (!rig.rows().iter().any(|row| row.key.contains(&held.id))).then_some(())
    })
    .await;
    assert_eq!(rig.rows().len(), STUBBORN, "what is still there is known by name");
}

/// More than are looked at at once.
const STUBBORN: usize = 110;
