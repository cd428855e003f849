//! Links that the object store serves itself: good for the object, the method and the time they were made for, and refused
//! when a character of them is changed.

use std::time::Duration;

use outlast_store::blobs::{LinkSpec, UploadSpec};
use outlast_tests::s3::S3;
use reqwest::StatusCode;
use url::Url;

use super::{LARGE, blobs, body, key, name, pieces};

fn link_spec() -> LinkSpec {
    LinkSpec {
        disposition: "attachment; filename=\"a b.pdf\"; filename*=UTF-8''%E2%82%AC.pdf".to_owned(),
        content_type: "application/pdf".to_owned(),
        life: Duration::from_secs(60),
    }
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn a_link_opens_the_object_for_anybody_with_its_name_and_type() {
    let s3 = S3::start().await;
    let (blobs, body) = (blobs(&s3.url()), body(LARGE));
    blobs.write(&key(1), pieces(&body)).await.unwrap();

    let link = blobs.link(&key(1), &link_spec()).await.unwrap().expect("S3 makes links");
    let answer = http().get(link).send().await.unwrap();

    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "application/pdf");
    assert_eq!(answer.headers()["content-disposition"], link_spec().disposition.as_str());
    assert!(answer.bytes().await.unwrap() == body);
}

/// T16: any change of the signed parts is noticed by the endpoint. The untouched link is the control.
#[tokio::test]
async fn a_link_that_was_changed_opens_nothing() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    for random in [1, 2] {
        blobs.write(&key(random), pieces(&body(100))).await.unwrap();
    }
    let link = blobs.link(&key(1), &link_spec()).await.unwrap().unwrap();
    let http = http();

    let mut changed = vec![
        link.as_str().replace(&name(&key(1)), &name(&key(2))),
        link.as_str().replace("X-Amz-Expires=60", "X-Amz-Expires=600"),
        link.as_str().replace("application%2Fpdf", "text%2Fhtml"),
        link.as_str().replace("AKOUTLASTTESTS", "AKOUTLASTTESTZ"),
        format!("{link}&versionId=1"),
        link.as_str().split('?').next().unwrap().to_owned(),
    ];
    let (start, signature) = link.as_str().rsplit_once("X-Amz-Signature=").expect("a link is signed");
    for at in 0..signature.len() {
        let other = if signature.as_bytes()[at] == b'0' { "1" } else { "0" };
        changed.push(format!("{start}X-Amz-Signature={}{other}{}", &signature[..at], &signature[at + 1..]));
    }
    for url in changed {
        assert_ne!(url, link.as_str(), "something was changed");
        let answer = http.get(&url).send().await.unwrap();
        assert!(answer.status().is_client_error(), "{} for {url}", answer.status());
    }
    for answer in [http.put(link.clone()).body("x"), http.delete(link.clone())] {
        assert!(answer.send().await.unwrap().status().is_client_error(), "a link to read does nothing else");
    }
    assert_eq!(http.get(link).send().await.unwrap().status(), StatusCode::OK, "the control");
}

#[tokio::test]
async fn a_link_ends_with_its_time() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    blobs.write(&key(1), pieces(&body(100))).await.unwrap();
    let link = blobs.link(&key(1), &LinkSpec { life: Duration::from_secs(1), ..link_spec() }).await.unwrap().unwrap();

    let status = || async { http().get(link.clone()).send().await.unwrap().status() };
    assert_eq!(status().await, StatusCode::OK, "the control");

    let what = "the link to end";
    outlast_tests::wait::until(what, Duration::from_secs(20), async || status().await.is_client_error().then_some(()))
        .await;
}

/// Signing needs no endpoint, so the links of other clouds can at least be read.
#[tokio::test]
async fn azure_signs_links_without_name_and_type_and_wants_one_header_for_uploads() {
    let url = "az://results/of/tests?account_name=outlast&account_key=b3V0bGFzdA==";
    let blobs = blobs(url);

    let link = blobs.link(&key(1), &link_spec()).await.unwrap().unwrap();
    let upload = UploadSpec { parts: 1, life: Duration::from_secs(60) };
    let direct = blobs.upload_links(&key(1), upload).await.unwrap().unwrap();

    assert_eq!(link.host_str(), Some("outlast.blob.core.windows.net"));
    assert!(link.path().ends_with(&name(&key(1))));
    let query = |url: &Url, wanted: &str| url.query_pairs().any(|(name, value)| name == wanted && !value.is_empty());
    assert!(query(&link, "sig") && query(&link, "se"), "{link}");
    assert_eq!(direct.headers, [("x-ms-blob-type", "BlockBlob")]);
    let refused = blobs.upload_links(&key(1), UploadSpec { parts: 2, ..upload }).await;
    assert!(matches!(refused, Err(outlast_store::blobs::Error::Refused(_))));
}
