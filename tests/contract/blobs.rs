//! The object store on a real S3 endpoint that checks signatures: what is written is there, links open exactly what
//! they were made for, and neither faults nor broken streams leave anything behind. Google Cloud and Azure have no
//! endpoint here; of them only the links are looked at. The local folder has its tests beside its code.

mod faults;
mod links;
mod uploads;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use outlast_core::{JobId, NamespaceId, ObjectKey, Timestamp};
use outlast_store::blobs::location::Location;
use outlast_store::blobs::{BlobTimeouts, Blobs, Error, ErrorSource};
use outlast_tests::s3::{CREDENTIALS, S3};

const MIB: usize = 1024 * 1024;
/// More than a part: such an object is uploaded in parts.
const LARGE: usize = 20 * MIB;

fn blobs(url: &str) -> Blobs {
    let location = Location::parse(url, CREDENTIALS.into_iter()).unwrap();
    let patience =
        BlobTimeouts { call: Duration::from_secs(20), idle: Duration::from_secs(5), ..BlobTimeouts::default() };
    Blobs::new(location, patience).unwrap()
}

fn key(random: u64) -> ObjectKey {
    let job = JobId::new(Timestamp::from_millis(1_763_238_999_042), 5);
    ObjectKey { namespace: NamespaceId(7), job, epoch: 3, random }
}

/// The name of the object in the bucket of the rig.
fn name(key: &ObjectKey) -> String {
    format!("of/tests/{key}")
}

/// Bytes that are not the same everywhere.
fn body(length: usize) -> Bytes {
    (0..length).map(|at| (at * 31 / 7 % 251) as u8).collect()
}

fn pieces(body: &Bytes) -> impl Stream<Item = Result<Bytes, ErrorSource>> + Send + use<> {
    let body = body.clone();
    let starts = (0..body.len()).step_by(60_007);
    stream::iter(starts).map(move |at| Ok(body.slice(at..body.len().min(at + 60_007))))
}

async fn read(blobs: &Blobs, key: &ObjectKey) -> Result<Vec<u8>, Error> {
    let mut chunks = blobs.open(key, None).await?.chunks;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes)
}

#[tokio::test]
async fn an_object_in_a_bucket_is_read_back_whole_and_in_ranges() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    for (random, length) in [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, LARGE].into_iter().enumerate() {
        let (key, body) = (key(random as u64), body(length));

        let written = blobs.write(&key, pieces(&body)).await.unwrap();

        assert_eq!(written.length, length as u64);
        assert_eq!(blobs.digest(&key).await.unwrap(), written);
        assert_eq!(blobs.head(&key).await.unwrap(), length as u64);
        assert!(read(&blobs, &key).await.unwrap() == body);
        for range in [0..1, 5..length / 2, length / 3..length, length..length + 9, 0..usize::MAX] {
            let opened = blobs.open(&key, Some(range.start as u64..range.end as u64)).await.unwrap();
            assert_eq!(opened.length, length as u64);
            let got: Vec<u8> = opened.chunks.map(|chunk| chunk.unwrap().to_vec()).concat().await;
            let end = range.end.min(length);
            assert!(got == body[range.start.min(end)..end], "{range:?} of {length}");
        }
    }
    assert_eq!(s3.objects().len(), 6);
    assert_eq!(s3.loose_parts(), 0);
}

#[tokio::test]
async fn a_deleted_object_is_missing_and_may_be_deleted_again() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    blobs.write(&key(1), pieces(&body(10))).await.unwrap();
    assert_eq!(s3.objects(), [name(&key(1))]);

    blobs.delete(&key(1)).await.unwrap();
    blobs.delete(&key(1)).await.unwrap();

    assert_eq!(s3.objects(), [""; 0]);
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Missing)));
    assert!(matches!(blobs.open(&key(1), None).await, Err(Error::Missing)));
    assert!(matches!(blobs.digest(&key(1)).await, Err(Error::Missing)));
}

#[tokio::test]
async fn a_probe_writes_reads_and_leaves_nothing() {
    let s3 = S3::start().await;

    blobs(&s3.url()).probe(7).await.unwrap();

    assert!(s3.requests().len() >= 3, "{:?}", s3.requests());
    assert_eq!(s3.objects(), [""; 0]);
}

/// Bytes that count how many of them are alive.
struct Counted {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn sixty_four_mebibytes_pass_through_in_bounded_memory() {
    let s3 = S3::start().await;
    let blobs = blobs(&s3.url());
    let (alive, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&alive), Arc::clone(&most));
    let source = stream::iter(0..64 * 16_u32).map(move |at| {
        let bytes = vec![at as u8; MIB / 16];
        peak.fetch_max(counted.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len(), Ordering::Relaxed);
        Ok::<_, ErrorSource>(Bytes::from_owner(Counted { bytes, alive: Arc::clone(&counted) }))
    });

    let written = blobs.write(&key(1), source).await.unwrap();

    assert_eq!(written.length, 64 * MIB as u64);
    let peak = most.load(Ordering::Relaxed);
    assert!(peak >= 8 * MIB, "the count works: a part at least was held, {peak}");
    assert!(peak <= 18 * MIB, "two parts and a little: {peak}");
    assert_eq!(alive.load(Ordering::Relaxed), 0, "nothing stays behind");

    // A reader that stops is not read ahead for: what the endpoint can get rid of are the buffers between.
    let before = s3.bytes_sent();
    let mut opened = blobs.open(&key(1), None).await.unwrap();
    opened.chunks.next().await.unwrap().unwrap();
    let mut sent = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = s3.bytes_sent() - before;
        if now == sent {
            break;
        }
        sent = now;
    }
    assert!(sent < 32 * MIB as u64, "of 64 MiB {sent} were sent to a reader that took one piece");
    let mut rest = 0;
    while let Some(chunk) = opened.chunks.next().await {
        rest += chunk.unwrap().len();
    }
    assert!(rest > 0 && s3.bytes_sent() - before == 64 * MIB as u64);
}
