//! The local folder, on a real file system.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures_util::stream;
use outlast_core::{JobId, NamespaceId, ObjectKey, Timestamp};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;
use crate::blobs::location::Location;
use crate::blobs::{BlobTimeouts, Blobs, ErrorSource, LinkSpec, UploadSpec};

fn folder() -> (TempDir, Blobs) {
    let directory = TempDir::new().unwrap();
    let location = Location::Folder(directory.path().join("objects"));
    (directory, Blobs::new(location, BlobTimeouts::default()).unwrap())
}

fn key(random: u64) -> ObjectKey {
    let job = JobId::new(Timestamp::from_millis(1_763_238_999_042), 5);
    ObjectKey { namespace: NamespaceId(7), job, epoch: 3, random }
}

/// A body of `length` bytes in pieces of an odd size.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}

fn pieces(body: &[u8]) -> impl Stream<Item = Result<Bytes, ErrorSource>> + Send + use<> {
    let pieces: Vec<_> = body.chunks(10_007).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces)
}

async fn read(blobs: &Blobs, key: &ObjectKey, range: Option<Range<u64>>) -> Vec<u8> {
    let mut chunks = blobs.open(key, range).await.unwrap().chunks;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
    }
    bytes
}

/// Every file and folder below, with its permissions.
fn found(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let (path, meta) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        all.push((path.clone(), meta.permissions().mode() & 0o777));
        if meta.is_dir() {
            all.extend(found(&path));
        }
    }
    all
}

fn is_being_written(directory: &Path) -> bool {
    found(directory).iter().any(|(path, _)| path.to_string_lossy().ends_with(UNFINISHED))
}

#[tokio::test]
async fn what_was_written_is_read_back_whole_and_in_ranges() {
    let (_directory, blobs) = folder();
    for (random, length) in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES * 3 + 17].into_iter().enumerate() {
        let (key, body) = (key(random as u64), body(length));

        let written = blobs.write(&key, pieces(&body)).await.unwrap();

        let expected: [u8; 32] = Sha256::digest(&body).into();
        assert_eq!((written.length, written.sha256), (length as u64, expected));
        assert_eq!(blobs.digest(&key).await.unwrap(), written);
        assert_eq!(blobs.head(&key).await.unwrap(), length as u64);
        assert!(read(&blobs, &key, None).await == body);
        for range in [0..1, 5..length as u64 / 2, length as u64 / 3..u64::MAX, u64::MAX - 1..u64::MAX] {
            let end = usize::try_from(range.end).unwrap_or(length).min(length);
            let start = usize::try_from(range.start).unwrap_or(length).min(end);
            assert!(read(&blobs, &key, Some(range.clone())).await == body[start..end], "{range:?} of {length}");
        }
    }
}

#[tokio::test]
async fn only_we_may_look_into_it() {
    let (directory, blobs) = folder();

    blobs.write(&key(1), pieces(b"secret")).await.unwrap();

    let found = found(directory.path());
    assert_eq!(found.len(), 5, "objects, namespace, job, epoch, file: {found:?}");
    for (path, mode) in found {
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{path:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_leaves_nothing() {
    let (directory, blobs) = folder();
    let broken = pieces(&body(CHUNK_BYTES * 2)).chain(stream::iter([Err(ErrorSource::from("cut"))]));

    let written = blobs.write(&key(1), broken).await;

    assert!(matches!(written, Err(Error::Interrupted(cause)) if cause.to_string() == "cut"));
    assert!(found(directory.path()).iter().all(|(path, _)| path.is_dir()), "no file is left");
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Missing)));
    assert!(matches!(blobs.open(&key(1), None).await, Err(Error::Missing)));
}

#[tokio::test]
async fn a_write_that_is_given_up_is_never_visible_and_leaves_nothing() {
    let (directory, blobs) = folder();
    let endless = pieces(&body(CHUNK_BYTES * 2)).chain(stream::pending());

    let key = key(1);
    let mut write = Box::pin(blobs.write(&key, endless));
    let there = || is_being_written(directory.path());
    while !there() {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut write).await.is_err(), "the stream never ends");
    }
    assert!(matches!(blobs.head(&key).await, Err(Error::Missing)));
    drop(write);

    // A piece that is just being written is let go of by the blocking pool.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while there() {
        assert!(tokio::time::Instant::now() < deadline, "the half-written file is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn deleting_takes_the_object_its_leftovers_and_its_empty_folders() {
    let (directory, blobs) = folder();
    let root = directory.path().join("objects");
    for random in [1, 2] {
        blobs.write(&key(random), pieces(b"x")).await.unwrap();
    }
    // What a killed process leaves of a write.
    fs::write(unfinished(&root.join(key(1).to_string())), b"half").unwrap();

    blobs.delete(&key(1)).await.unwrap();
    assert!(matches!(blobs.head(&key(1)).await, Err(Error::Missing)));
    assert_eq!(blobs.head(&key(2)).await.unwrap(), 1, "the neighbour stays");

    blobs.delete(&key(2)).await.unwrap();
    blobs.delete(&key(2)).await.unwrap();
    assert_eq!(found(&root), [], "nothing is left but the folder itself");
}

#[tokio::test]
async fn writes_and_deletes_beside_each_other_do_not_take_each_others_folders() {
    let (_directory, blobs) = folder();

    let rounds = stream::iter(0..400_u64).map(|random| {
        let blobs = &blobs;
        async move {
            blobs.write(&key(random), pieces(b"x")).await.unwrap();
            blobs.delete(&key(random)).await.unwrap();
        }
    });
    rounds.buffer_unordered(16).collect::<()>().await;
}

#[tokio::test]
async fn a_key_is_not_written_twice_at_once() {
    let (directory, blobs) = folder();
    let key = key(1);
    let mut first = Box::pin(blobs.write(&key, stream::pending::<Result<Bytes, ErrorSource>>()));
    while !is_being_written(directory.path()) {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut first).await.is_err(), "the stream never ends");
    }

    let second = blobs.write(&key, pieces(b"x")).await;

    assert!(matches!(second, Err(Error::Unavailable(_))), "{second:?}");
}

#[tokio::test]
async fn what_a_killed_process_has_left_is_begun_anew() {
    let (directory, blobs) = folder();
    let path = directory.path().join("objects").join(key(1).to_string());
    make_folders(path.parent().unwrap()).unwrap();
    fs::write(unfinished(&path), b"longer than what comes").unwrap();

    blobs.write(&key(1), pieces(b"whole")).await.unwrap();

    assert!(read(&blobs, &key(1), None).await == b"whole");
    assert!(!unfinished(&path).exists());
}

#[tokio::test]
async fn a_copy_stays_what_it_was_when_the_first_one_is_written_again_or_goes() {
    let (_directory, blobs) = folder();
    blobs.write(&key(1), pieces(b"first")).await.unwrap();

    blobs.copy(&key(1), &key(2)).await.unwrap();

    blobs.write(&key(1), pieces(b"second")).await.unwrap();
    assert!(read(&blobs, &key(2), None).await == b"first");
    blobs.delete(&key(1)).await.unwrap();
    assert!(read(&blobs, &key(2), None).await == b"first");
    assert!(matches!(blobs.copy(&key(1), &key(3)).await, Err(Error::Missing)));
}

#[tokio::test]
async fn a_folder_makes_no_links_and_passes_the_probe() {
    let (directory, blobs) = folder();
    let spec = LinkSpec {
        disposition: "attachment".to_owned(),
        content_type: "text/plain".to_owned(),
        life: Duration::from_secs(60),
    };
    let upload = UploadSpec { parts: 1, life: Duration::from_secs(60) };

    assert!(blobs.link(&key(1), &spec).await.unwrap().is_none());
    assert!(blobs.upload_links(&key(1), upload).await.unwrap().is_none());
    blobs.probe(77).await.unwrap();
    assert_eq!(found(&directory.path().join("objects")), []);
}

/// T16: somebody has put a link where a folder or a file of ours belongs.
#[tokio::test]
async fn no_link_leads_out_of_the_folder() {
    let (directory, blobs) = folder();
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    blobs.write(&key(1), pieces(b"x")).await.unwrap();
    let file = directory.path().join("objects").join(key(1).to_string());
    let epoch = file.parent().unwrap().to_owned();

    fs::write(outside.join("secret"), b"secret").unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), &file).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"secret", "the control: the link leads there");
    assert!(matches!(blobs.open(&key(1), None).await, Err(Error::Refused(_))), "a link in place of a file");

    fs::remove_dir_all(&epoch).unwrap();
    std::os::unix::fs::symlink(&outside, &epoch).unwrap();
    let written = blobs.write(&key(2), pieces(b"x")).await;
    assert!(matches!(written, Err(Error::Refused(_))), "a link in place of a folder");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was written outside");
}
