//! Results in a local folder: its disk runs full, and the clock goes on while the server is down.

use std::fs;

use outlast_tests::daemon::find_program;
use outlast_tests::image::Image;
use outlast_tests::server::Launch;
use serde_json::json;

use crate::api::{job, settle};
use crate::results::{MIB, Place, Rig, bytes};

const IMAGE_MEBIBYTES: u64 = 128;
/// The free space on the disk; less than the result needs.
const LEFT: u64 = 24 << 20;

// F06, F21: refused as what it is, without a trace; acks go on; with room it works.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_does_not_fit_on_the_disk_is_refused_and_acks_go_on() {
    if !Image::available("disk full of results") {
        return;
    }
    let image = Image::new(IMAGE_MEBIBYTES);
    let folder = image.path().join("objects");
    let launch = Launch::embedded().on(&image.path().join("data"));
    let launch = launch.with_env("OUTLAST_BLOBS_URL", &format!("file://{}", folder.display()));
    let rig = Rig::start(launch, Place::Folder(folder)).await;
    let (held, other) = (rig.held().await, rig.held().await);
    let ballast = image.put_ballast(LEFT);

    let refused = rig.put(&held, bytes(48 * MIB)).await;

    assert!(refused.headers.contains_key("retry-after"));
    refused.expect_problem(507, "disk_full");
    assert!(rig.objects().is_empty(), "what did not fit is gone");
    assert_eq!(rig.ack(&other).await["status"], "succeeded");
    settle(&rig.client, &held.id, "heartbeat", json!({"lease": held.lease})).await;
    assert_eq!(job(&rig.client, &held.id).await["status"], "running");
    fs::remove_file(ballast).unwrap();
    rig.put(&held, bytes(48 * MIB)).await.expect(201);
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    assert!(rig.open(&rig.link(&held.id).await).await.body == bytes(48 * MIB));
    assert_eq!(rig.audit(), 1);
    drop(rig);
}

// I-37, T17: a link is good for a quarter of an hour. The server is down meanwhile, so that the test need not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_expires_after_a_quarter_of_an_hour() {
    let faketime = find_program("faketime", &[], "faketime").display().to_string();
    let mut rig = Rig::with(Launch::embedded()).await;
    let held = rig.succeeded("work", "the result").await;
    let link = rig.link(&held.id).await;
    let sealed = link.rsplit_once('/').unwrap().1.to_owned();

    for (later, status) in [("+13m", 200), ("+16m", 404)] {
        rig.server.kill9().await;
        let launch = rig.server.launch().clone().with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        rig.server = launch.wrapped_by(vec![faketime.clone(), "-f".to_owned(), later.to_owned()]).start().await;
        rig.client = rig.server.client();
        let got = rig.open(&format!("{}/v1/objects/{sealed}", rig.client.base)).await;
        assert_eq!(got.status, status, "{later}");
        assert_eq!(&rig.open(&rig.link(&held.id).await).await.body[..], b"the result", "a new one is good");
    }
}
