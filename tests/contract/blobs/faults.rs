//! An object store that refuses, dawdles or loses: the answer says which, in time, and nothing is left behind.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use outlast_store::blobs::location::Location;
use outlast_store::blobs::{BlobTimeouts, Blobs, Error, ErrorSource};
use outlast_tests::s3::{CREDENTIALS, Mood, S3};
use outlast_tests::stopwatch::Stopwatch;

use super::{LARGE, blobs, body, key, name, pieces, read};

#[tokio::test]
async fn a_short_refusal_is_outlasted() {
    let s3 = S3::start().await;
    let (blobs, body) = (blobs(&s3.url()), body(LARGE));
    s3.set(Mood::BusyTimes(2));

    let written = blobs.write(&key(1), pieces(&body)).await.unwrap();

    assert!(s3.requests().len() > 5, "two were refused: {:?}", s3.requests());
    s3.set(Mood::BusyTimes(2));
    assert_eq!(blobs.digest(&key(1)).await.unwrap(), written);
}

#[tokio::test]
async fn a_long_refusal_is_reported_and_leaves_nothing() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    blobs.write(&key(1), pieces(&body(100))).await.unwrap();
    s3.set(Mood::Busy);

    for length in [100, LARGE] {
        let written = blobs.write(&key(2), pieces(&body(length))).await;
        assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    }
    assert!(matches!(blobs.digest(&key(1)).await, Err(Error::Unavailable(_))), "not missing: unknown");
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Unavailable(_))));
    assert!(matches!(blobs.delete(&key(1)).await, Err(Error::Unavailable(_))));
    assert!(matches!(blobs.probe(1).await, Err(Error::Unavailable(_))));

    s3.set(Mood::Fine);
    assert_eq!(s3.objects(), [name(&key(1))]);
    assert_eq!(s3.loose_parts(), 0);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_waited_for_only_so_long() {
    let s3 = S3::start().await;
    let location = Location::parse(&s3.url(), CREDENTIALS.into_iter()).unwrap();
    let patience = BlobTimeouts { call: Duration::from_secs(1), ..BlobTimeouts::default() };
    let blobs = Blobs::new(location, patience).unwrap();
    s3.set(Mood::Slow(Duration::from_secs(600)));
    let started = Stopwatch::start();

    let written = blobs.write(&key(1), pieces(&body(100))).await;

    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    assert!(started.charged() < Duration::from_secs(10), "{}", started.reading());
    assert!(!s3.requests().is_empty(), "it was asked");
}

#[tokio::test]
async fn a_read_that_is_not_answered_fails_long_before_a_write_does() {
    let s3 = S3::start().await;
    let location = Location::parse(&s3.url(), CREDENTIALS.into_iter()).unwrap();
    let patience = BlobTimeouts { answer: Duration::from_secs(1), ..BlobTimeouts::default() };
    let blobs = Blobs::new(location, patience).unwrap();
    blobs.write(&key(1), pieces(&body(100))).await.unwrap();
    s3.set(Mood::Slow(Duration::from_secs(600)));
    let started = Stopwatch::start();

    let head = blobs.head(&key(1)).await;
    let opened = blobs.open(&key(1), None).await;

    assert!(matches!(head, Err(Error::Unavailable(_))), "{head:?}");
    assert!(matches!(opened.map(|opened| opened.length), Err(Error::Unavailable(_))));
    assert!(started.charged() < Duration::from_secs(10), "{}", started.reading());
}

#[tokio::test]
async fn a_lost_object_is_missing() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    blobs.write(&key(1), pieces(&body(100))).await.unwrap();
    assert!(read(&blobs, &key(1)).await.is_ok(), "the control");

    s3.lose(&name(&key(1)));

    assert!(matches!(blobs.digest(&key(1)).await, Err(Error::Missing)));
}

#[tokio::test]
async fn a_stream_that_breaks_leaves_neither_object_nor_parts() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    for length in [100, LARGE] {
        let broken = pieces(&body(length)).chain(stream::iter([Err(ErrorSource::from("cut"))]));

        let written = blobs.write(&key(1), broken).await;

        assert!(matches!(written, Err(Error::Interrupted(cause)) if cause.to_string() == "cut"));
        assert_eq!((s3.objects().len(), s3.loose_parts()), (0, 0));
    }
    assert!(s3.requests().iter().any(|request| request.starts_with("DELETE ")), "the upload in parts was ended");
}

#[tokio::test]
async fn a_write_that_is_given_up_is_ended_by_the_next_call() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    let (given_up, after) = (key(1), key(2));
    let mut write = Box::pin(blobs.write(&given_up, pieces(&body(LARGE)).chain(stream::pending())));
    while s3.loose_parts() == 0 {
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut write).await.is_err(), "the stream never ends");
    }
    drop(write);

    blobs.delete(&after).await.unwrap();

    assert_eq!((s3.objects().len(), s3.loose_parts()), (0, 0));
}

#[tokio::test]
async fn wrong_credentials_and_a_wrong_bucket_are_refused_without_showing_a_secret() {
    let s3 = S3::start().await;
    let wrong_secret = [("AWS_ACCESS_KEY_ID", CREDENTIALS[0].1), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
    let location = Location::parse(&s3.url(), wrong_secret.into_iter()).unwrap();
    let stranger = Blobs::new(location, BlobTimeouts::default()).unwrap();
    let lost = blobs(&s3.url().replace("s3://results", "s3://elsewhere"));

    for refused in [stranger.probe(1).await, lost.probe(1).await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        assert!(!error.with_causes().contains("hunter2"));
    }
    assert_eq!(s3.objects(), [""; 0]);
}
