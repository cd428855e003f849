//! Uploads past the server, over links: one PUT, or parts that are put together afterwards.

use std::time::Duration;

use bytes::Bytes;
use outlast_store::blobs::{Error, UploadSpec, UploadedPart};
use outlast_tests::s3::S3;
use url::Url;

use super::{MIB, blobs, body, key, name, read};

const LIFE: Duration = Duration::from_secs(60);

async fn put(url: &Url, body: Bytes) -> (bool, String) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.put(url.clone()).body(body).send().await.unwrap();
    let etag = answer.headers().get("etag").map(|etag| etag.to_str().unwrap().to_owned());
    (answer.status().is_success(), etag.unwrap_or_default())
}

#[tokio::test]
async fn one_put_over_a_link_makes_the_object() {
    let s3 = S3::start().await;
    let (blobs, body) = (blobs(&s3.url()), body(3 * MIB));
    let direct = blobs.upload_links(&key(1), UploadSpec { parts: 1, life: LIFE }).await.unwrap().unwrap();
    assert_eq!((direct.id, direct.urls.len()), (None, 1));
    let url = &direct.urls[0];

    let elsewhere = url.as_str().replace(&name(&key(1)), &name(&key(2)));
    assert!(!put(&elsewhere.parse().unwrap(), body.clone()).await.0, "the link is for one key");
    assert_eq!(s3.objects(), [""; 0]);

    assert!(put(url, body.clone()).await.0);
    assert_eq!(blobs.digest(&key(1)).await.unwrap().length, body.len() as u64);
    assert!(read(&blobs, &key(1)).await.unwrap() == body);
}

#[tokio::test]
async fn parts_over_links_become_one_object_in_their_order() {
    let s3 = S3::start().await;
    let (blobs, body) = (blobs(&s3.url()), body(12 * MIB));
    let direct = blobs.upload_links(&key(1), UploadSpec { parts: 3, life: LIFE }).await.unwrap().unwrap();
    let id = direct.id.expect("an upload in parts has a name");
    assert_eq!(direct.urls.len(), 3);

    let mut parts = Vec::new();
    // Last part first: the numbers decide, not the order of arrival.
    for number in [3_u16, 1, 2] {
        let at = usize::from(number - 1);
        let piece = body.slice(at * 5 * MIB..body.len().min((at + 1) * 5 * MIB));
        let (is_stored, etag) = put(&direct.urls[at], piece).await;
        assert!(is_stored && !etag.is_empty());
        parts.push(UploadedPart { number, etag });
    }
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Missing)), "parts alone are no object");

    for gap in [vec![], parts[..1].to_vec(), vec![parts[1].clone(), parts[1].clone()]] {
        assert!(matches!(blobs.complete(&key(1), &id, gap).await, Err(Error::Refused(_))));
    }
    blobs.complete(&key(1), &id, parts.clone()).await.unwrap();
    blobs.complete(&key(1), &id, parts).await.expect("an answer that was lost is asked for again");

    assert!(read(&blobs, &key(1)).await.unwrap() == body);
    assert_eq!(s3.loose_parts(), 0);
}

#[tokio::test]
async fn an_upload_that_was_ended_is_no_object_and_leaves_no_parts() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    let direct = blobs.upload_links(&key(1), UploadSpec { parts: 2, life: LIFE }).await.unwrap().unwrap();
    let id = direct.id.unwrap();
    let (is_stored, etag) = put(&direct.urls[0], body(5 * MIB)).await;
    assert!(is_stored && s3.loose_parts() == 1, "the control: a part is there");

    blobs.abort(&key(1), &id).await.unwrap();

    assert_eq!((s3.loose_parts(), s3.objects().len()), (0, 0));
    assert!(!put(&direct.urls[1], body(10)).await.0, "no part comes after the end");
    assert!(blobs.complete(&key(1), &id, vec![UploadedPart { number: 1, etag }]).await.is_err());
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Missing)));
}
