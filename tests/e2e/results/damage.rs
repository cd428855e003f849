//! Bytes that change after they were stored: no wrong byte is ever served with the `ETag` of the right ones. A transfer
//! breaks before it is complete, later reads are refused, and what is restored is served again. (I-36)

use bytes::Bytes;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;

use crate::api::text;
use crate::results::{DEADLINE, MIB, Rig, bytes, digest, header};

/// Three whole chunks and a part of one.
const LENGTH: usize = 3 * MIB + 1000;

/// The bytes received over a link, and whether they were complete.
struct Arrived {
    status: u16,
    etag: String,
    body: Vec<u8>,
    is_whole: bool,
}

async fn download(url: &str, range: Option<&str>) -> Arrived {
    let client = reqwest::Client::builder().no_proxy().build().expect("the client has no settings that can fail");
    let mut request = client.get(url);
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let mut response = request.send().await.expect("a link is answered");
    let etag = response.headers().get("etag").map(|etag| etag.to_str().expect("plain text").to_owned());
    let (status, mut body) = (response.status().as_u16(), Vec::new());
    let is_whole = loop {
        match response.chunk().await {
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    Arrived { status, etag: etag.unwrap_or_default(), body, is_whole }
}

fn flipped(body: &Bytes, at: usize) -> Vec<u8> {
    let mut bytes = body.to_vec();
    bytes[at] ^= 0x20;
    bytes
}

/// A succeeded job with these bytes; they have been replaced by others since.
async fn damaged(rig: &Rig, body: &Bytes, instead: Vec<u8>) -> (String, String) {
    let before = rig.objects();
    let held = rig.succeeded("work", body.clone()).await;
    let key = rig.objects().into_keys().find(|key| !before.contains_key(key)).expect("there is one more object");
    rig.replace(&key, instead);
    (held.id, key)
}

async fn damage_counted(rig: &Rig) -> u64 {
    let mut sum = 0;
    for node in &rig.server.nodes {
        let page = text(&node.client().get("/metrics").await.unwrap().expect(200));
        let value = page.lines().find_map(|line| line.strip_prefix("outlast_objects_damaged_total "));
        sum += value.expect("the metric is there").parse::<u64>().expect("a number");
    }
    sum
}

// One flipped bit: what was served before it is right, the transfer breaks, and from then on it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_breaks_the_transfer_and_later_reads_are_refused() {
    let rig = Rig::on_folder().await;
    let body = bytes(LENGTH);
    for (number, at) in [0, 5000, MIB, 2 * MIB + 17, LENGTH - 1].into_iter().enumerate() {
        let (id, _) = damaged(&rig, &body, flipped(&body, at)).await;
        let link = rig.link(&id).await;

        let got = download(&link, None).await;

        if at < MIB {
            assert_eq!(got.status, 502, "damage in the first chunk is known before the answer begins");
        } else {
            assert_eq!((got.status, got.is_whole), (200, false), "flipped at {at}");
            assert!(got.body.len() < LENGTH && got.body == body[..got.body.len()], "flipped at {at}");
        }
        let refused = rig.open(&link).await;
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).expect("a problem");
        assert_eq!((refused.status, &problem["code"]), (502, &json!("result_damaged")));
        assert_eq!(header(&refused, "etag"), "");
        rig.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect_problem(502, "result_damaged");
        assert_eq!(damage_counted(&rig).await, number as u64 + 1);
    }
    assert!(rig.server.log().contains("the bytes of an object are not those that were written"));
    // Others are not concerned.
    let sound = rig.succeeded("work", body.clone()).await;
    let got = download(&rig.link(&sound.id).await, None).await;
    assert!(got.status == 200 && got.is_whole && got.body == body);
}

// A range is served if the chunks it touches are sound, and refused if one of them is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_is_served_only_of_chunks_that_are_sound() {
    let rig = Rig::on_folder().await;
    let (body, at) = (bytes(LENGTH), MIB + 100);
    let etag = format!("\"{}\"", digest(&body));
    let (id, _) = damaged(&rig, &body, flipped(&body, at)).await;
    let link = rig.link(&id).await;

    for (first, last) in [(0, 9), (MIB - 1, MIB - 1), (2 * MIB, 3 * MIB + 5), (LENGTH - 7, LENGTH - 1)] {
        let got = download(&link, Some(&format!("bytes={first}-{last}"))).await;
        assert_eq!((got.status, got.is_whole, &got.etag), (206, true, &etag), "{first}-{last}");
        assert!(got.body == body[first..=last], "{first}-{last}");
    }
    let got = download(&link, Some(&format!("bytes={}-{}", MIB / 2, MIB + 1))).await;
    assert!(got.status == 206 && !got.is_whole, "the second chunk is damaged");
    assert!(got.body == body[MIB / 2..MIB / 2 + got.body.len()]);
    let refused = download(&link, Some("bytes=0-9")).await;
    assert_eq!(refused.status, 502, "it is known to be damaged");

    let (id, _) = damaged(&rig, &body, flipped(&body, at)).await;
    let refused = download(&rig.link(&id).await, Some(&format!("bytes={}-{}", at - 5, at - 1))).await;
    assert_eq!((refused.status, refused.etag.as_str()), (502, ""), "the flipped bit itself was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_another_length_is_refused() {
    let rig = Rig::on_folder().await;
    let body = bytes(MIB + 10);
    let longer = [&body[..], b"more"].concat();
    for instead in [Vec::new(), body[..MIB].to_vec(), body[..MIB + 9].to_vec(), longer] {
        let length = instead.len();
        let (id, _) = damaged(&rig, &body, instead).await;
        rig.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect_problem(502, "result_damaged");
        let again = rig.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap();
        assert_eq!(again.status, 502, "{length} bytes");
    }
}

// The mark is no verdict for ever: restored under its key, an object is served again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_object_is_served_again() {
    let mut rig = Rig::on_folder().await;
    let body = bytes(2 * MIB);
    let (id, key) = damaged(&rig, &body, flipped(&body, MIB)).await;
    assert!(!download(&rig.link(&id).await, None).await.is_whole);

    // The server checks again after a minute; here the minute ends at once.
    rig.change_objects("damaged_at = 1 WHERE damaged_at IS NOT NULL").await;
    rig.client.get(&format!("/v1/jobs/{id}/result")).await.unwrap().expect_problem(502, "result_damaged");
    rig.replace(&key, body.to_vec());
    rig.change_objects("damaged_at = 1 WHERE damaged_at IS NOT NULL").await;

    let got = download(&rig.link(&id).await, None).await;
    assert!(got.status == 200 && got.is_whole && got.body == body);
    let again = download(&rig.link(&id).await, Some("bytes=5-9")).await;
    assert_eq!((again.status, &again.body[..]), (206, &body[5..10]));
}

// An object that an earlier version stored has no checksums of its chunks: it is read whole before its first byte is
// served.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_checksums_is_read_whole_first() {
    let mut rig = Rig::on_folder().await;
    let body = bytes(2 * MIB + 5);
    let sound = rig.succeeded("work", body.clone()).await;
    let (damaged, _) = damaged(&rig, &body, flipped(&body, 2 * MIB)).await;
    rig.change_objects("checksums = NULL").await;

    let part = download(&rig.link(&sound.id).await, Some("bytes=3-8")).await;
    assert_eq!((part.status, &part.body[..]), (206, &body[3..9]));
    let whole = download(&rig.link(&sound.id).await, None).await;
    assert!(whole.status == 200 && whole.is_whole && whole.body == body);

    let refused = download(&rig.link(&damaged).await, Some("bytes=3-8")).await;
    assert_eq!(refused.status, 502, "the range is sound, which cannot be known");
}

// I-35: the same for checkpoints, which come through the server from a bucket as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_not_handed_to_the_next_attempt() {
    for rig in [Rig::on_folder().await, Rig::on_bucket().await] {
        let (held, body) = (rig.held().await, bytes(2 * MIB));
        rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", body.clone()).await.expect(200);
        let path = format!("{}/v1/jobs/{}/checkpoint/blob", rig.client.base, held.id);
        let get = async || rig.fetch(Method::GET, &path, &[], Some(&rig.client.key)).await;
        assert!(get().await.body == body);
        let key = rig.objects().into_keys().next().expect("there is an object");

        rig.replace(&key, flipped(&body, 10));

        let refused = get().await;
        let problem: serde_json::Value = serde_json::from_slice(&refused.body).expect("a problem");
        assert_eq!((refused.status, &problem["code"]), (502, &json!("result_damaged")));
        assert_eq!(get().await.status, 502);
        // The worker may go on without it, and save another one.
        rig.put_as(&held, "/checkpoint/blob?schemaVersion=1", "text/plain", body.clone()).await.expect(200);
        wait::until("the new checkpoint", DEADLINE, async || (get().await.body == body).then_some(())).await;
    }
}
