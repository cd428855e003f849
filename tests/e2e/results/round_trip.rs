//! A result through the server, of any length: what is said of it, and how it comes back.

use std::fs;
use std::time::Duration;

use outlast_tests::nginx::Nginx;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish, receive_one, settle, text};
use crate::results::{MIB, Rig, bytes, digest, header};

/// The allowed growth of a server while 128 MiB pass through it: some pieces, and the allocator's reserve.
const GROWTH_MAX: u64 = 64 * 1024;

// I-36: of any length, in a folder and in a bucket (where more than 8 MiB go in parts).
#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_result_comes_back_as_it_was_sent() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        for length in [0, 1, 100_000, 9 * MIB] {
            there_and_back(&rig, length).await;
        }
        assert_eq!(rig.audit(), 4);
    }
}

// Through a plain reverse proxy, which must not keep bodies for itself first.
#[tokio::test(flavor = "multi_thread")]
async fn results_pass_through_a_reverse_proxy() {
    let mut rig = Rig::on_folder().await;
    let nginx = Nginx::before(&rig.client.base, "client_max_body_size 0;\nproxy_request_buffering off;\n");
    rig.client = rig.client.at(&nginx.base);
    for length in [0, 100_000, 9 * MIB] {
        there_and_back(&rig, length).await;
    }
}

async fn there_and_back(rig: &Rig, length: usize) {
    let (held, body) = (rig.held().await, bytes(length));
    let kind = "text/csv; charset=utf-8";
    let known = json!({
        "length": length, "sha256": digest(&body), "filename": "räport 1.csv", "contentType": kind,
    });

    let put = rig.put_as(&held, "/result?filename=r%C3%A4port%201.csv", kind, body.clone()).await.expect(201);

    assert_eq!((&put["id"], &put["accepted"]), (&json!(held.id), &json!(true)));
    assert!(contains(&put, &known), "{put}");
    // It is not the result before the worker says so.
    assert_eq!(rig.result(&held.id).await.status, 404);
    assert_eq!(rig.ack(&held).await["status"], "succeeded");
    let seen = job(&rig.client, &held.id).await;
    assert_eq!(seen["resultUrl"], format!("/v1/jobs/{}/result", held.id));
    assert!(contains(&seen["resultMeta"], &known), "{seen}");
    assert_eq!((&seen["resultMeta"]["downloadCount"], &seen["resultMeta"]["partial"]), (&json!(0), &json!(false)));

    let answer = rig.result(&held.id).await;
    assert_eq!((answer.status, header(&answer, "referrer-policy")), (307, "no-referrer"));
    let link = rig.link(&held.id).await;
    assert!(!link.contains(&rig.client.key[16..]), "the key is in the link");
    let got = rig.open(&link).await;
    assert_eq!((got.status, got.body == body), (200, true), "{length} bytes");
    assert_eq!(header(&got, "content-type"), kind);
    let name = "attachment; filename=\"r_port 1.csv\"; filename*=UTF-8''r%C3%A4port%201.csv";
    assert_eq!(header(&got, "content-disposition"), name);
    counted(rig, &held.id, 2).await;
}

/// Are all members of the second in the first?
fn contains(all: &Value, some: &Value) -> bool {
    some.as_object().unwrap().iter().all(|(name, value)| all[name] == *value)
}

// RFC 9110: one range, the length without the bytes, and what lies behind the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_serves_ranges_and_tells_the_length() {
    let rig = Rig::on_folder().await;
    let body = bytes(10_000);
    let held = rig.succeeded("work", body.clone()).await;
    let link = rig.link(&held.id).await;

    for (range, status, span) in [
        ("bytes=0-0", 206, Some(0..1)),
        ("bytes=100-199", 206, Some(100..200)),
        ("bytes=9990-", 206, Some(9_990..10_000)),
        ("bytes=-5", 206, Some(9_995..10_000)),
        ("bytes=5-99999", 206, Some(5..10_000)),
        ("bytes=10000-", 416, None),
        ("bytes=1-2,4-5", 200, Some(0..10_000)),
        ("nonsense", 200, Some(0..10_000)),
    ] {
        let got = rig.fetch(Method::GET, &link, &[("range", range)], None).await;

        assert_eq!(got.status, status, "{range}");
        match span {
            Some(span) => {
                assert!(got.body == body[span.clone()], "{range}");
                assert_eq!(header(&got, "content-length"), span.len().to_string());
                let shown = format!("bytes {}-{}/10000", span.start, span.end - 1);
                assert_eq!(header(&got, "content-range"), if status == 206 { &shown } else { "" }, "{range}");
            }
            None => assert_eq!(header(&got, "content-range"), "bytes */10000", "{range}"),
        }
    }
    let head = rig.fetch(Method::HEAD, &link, &[], None).await;
    assert_eq!((head.status, head.body.len(), header(&head, "content-length")), (200, 0, "10000"));
    for (name, value) in [
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "private, no-store"),
    ] {
        assert_eq!(header(&head, name), value, "{name}");
    }
    assert_eq!(header(&head, "etag"), format!("\"{}\"", digest(&body)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_passes_through_in_little_memory() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let body = bytes(128 * MIB);
        // The memory of a server after its first upload.
        rig.succeeded("work", body.slice(..9 * MIB)).await;
        let before = peaks(&rig);

        let held = rig.succeeded("work", body.clone()).await;
        let got = rig.open(&rig.link(&held.id).await).await;

        assert!(got.body == body);
        for (before, after) in before.into_iter().zip(peaks(&rig)) {
            println!("128 MiB through a server: {before} KiB at most before, {after} KiB after");
            // The kernel counts in steps, so that a peak may even seem to have sunk.
            assert!(after.saturating_sub(before) <= GROWTH_MAX, "from {before} KiB to {after} KiB");
        }
        assert_eq!(rig.audit(), 2);
    }
}

/// The most memory each node has had so far, in KiB.
fn peaks(rig: &Rig) -> Vec<u64> {
    let peak = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    };
    rig.server.nodes.iter().map(|node| peak(node.process_id())).collect()
}

/// The metadata of a result after this many downloads: a download does not wait until it is counted.
async fn counted(rig: &Rig, id: &str, downloads: u64) -> Value {
    wait::until("the downloads to be counted", Duration::from_secs(30), async || {
        let meta = job(&rig.client, id).await["resultMeta"].clone();
        let count = meta["downloadCount"].as_u64().unwrap();
        assert!(count <= downloads, "{count} of {downloads} downloads");
        (count == downloads).then_some(meta)
    })
    .await
}

// Inline results are counted, too, and both kinds have the same place.
#[tokio::test(flavor = "multi_thread")]
async fn inline_results_are_served_at_once_and_counted() {
    let rig = Rig::on_folder().await;
    make_queue(&rig.client, "inline", json!({})).await;
    let id = publish(&rig.client, "inline", json!(1)).await;
    let held = receive_one(&rig.client, "inline").await;
    let ack = json!({"lease": text(&held["lease"]), "result": {"big": 12345678901234567890_u64}});
    settle(&rig.client, &id, "ack", ack).await;

    for downloads in 0..3 {
        let meta = counted(&rig, &id, downloads).await;
        assert_eq!(meta["contentType"], "application/json");
        let got = rig.result(&id).await;
        assert_eq!((got.status, &got.body[..]), (200, &b"{\"big\":12345678901234567890}"[..]));
    }
}
