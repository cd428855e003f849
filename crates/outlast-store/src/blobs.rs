//! The port to the object store: results and checkpoints that are too large for the database. A local folder, or a bucket
//! of S3, Google Cloud or Azure; chosen by URL. Objects are written once, under keys that only we make. Nothing here
//! knows of jobs or leases: who may read or write an object, and when it goes, is decided above.

pub mod location;
mod checksums;
mod content_hasher;
mod deletion_lock;
mod folder;
mod bucket;

use std::error::Error as StdError;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use outlast_core::{Object, ObjectKey};
use url::Url;

use self::bucket::Bucket;
use self::checksums::Checksums;
use self::content_hasher::ContentHasher;
pub use self::deletion_lock::{DeletionPause, DeletionPermit};
use self::folder::Folder;
use self::location::Location;

/// Bytes that are gathered before they are written or hashed.
const CHUNK_BYTES: usize = 512 * 1024;
/// Bytes of one read from a local file. A slow reader holds two of them.
const READ_BYTES: usize = 128 * 1024;

pub type ErrorSource = Box<dyn StdError + Send + Sync>;

/// The bytes of an object. An error is the last item.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

/// Why an object could not be written or read. Whatever it says, no part of a failed write is ever visible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such object")]
    Missing,
    /// Try again when there is room.
    #[error("the object store is full")]
    Full(#[source] ErrorSource),
    /// Try again later.
    #[error("the object store is not available")]
    Unavailable(#[source] ErrorSource),
    /// It will not work until somebody changes something: credentials, permissions, or what was asked for.
    #[error("the object store refused")]
    Refused(#[source] ErrorSource),
    /// The bytes that are there are not those that were written.
    #[error("the object is damaged")]
    Damaged,
    /// The stream that was to be written ended with an error of its own.
    #[error("what was to be stored did not arrive whole")]
    Interrupted(#[source] ErrorSource),
}

impl Error {
    /// The messages of the error and of what caused it, for a log or a person. Never for a caller of the API.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        text
    }
}

/// Facts about an object that was written, or read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenObject {
    pub length: u64,
    pub sha256: [u8; 32],
    /// Of its chunks; [`Blobs::open_checked`] wants them back.
    pub checksums: Arc<[u8]>,
}

/// An object that is being read.
pub struct ObjectReader {
    /// Of the whole object, whatever part of it is read.
    pub length: u64,
    pub chunks: Chunks,
}

/// A link to read an object with. The store tells the reader its name and type.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The value of a `Content-Disposition` header.
    pub disposition: String,
    pub content_type: String,
    pub life: Duration,
}

/// Links to write an object with.
#[derive(Clone, Copy, Debug)]
pub struct UploadSpec {
    /// One is a plain PUT, more is an upload in parts.
    pub parts: u16,
    pub life: Duration,
}

/// How somebody else writes an object, without us in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectUpload {
    /// The object store's own name of an upload in parts; [`Blobs::complete`] and [`Blobs::abort`] want it back.
    pub id: Option<String>,
    /// One for each part, in their order.
    pub urls: Vec<Url>,
    /// Headers that each PUT must carry.
    pub headers: Vec<(&'static str, &'static str)>,
}

/// A part that was uploaded: its number from 1 on, and the `ETag` that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPart {
    pub number: u16,
    pub etag: String,
}

/// How long to wait for the object store. A call that takes longer has failed as unavailable.
#[derive(Clone, Copy, Debug)]
pub struct BlobTimeouts {
    /// For one request that writes, retries included.
    pub call: Duration,
    /// From a request that reads to the head of its answer, retries included: somebody waits for it.
    pub answer: Duration,
    /// Between two pieces of an object that is being read.
    pub idle: Duration,
}

impl Default for BlobTimeouts {
    fn default() -> BlobTimeouts {
        BlobTimeouts { call: Duration::from_secs(60), answer: Duration::from_secs(5), idle: Duration::from_secs(30) }
    }
}

#[derive(Debug)]
pub struct Blobs {
    place: BlobBackend,
    /// Without any secret.
    shown: String,
}

#[derive(Debug)]
enum BlobBackend {
    Folder(Folder),
    Bucket(Bucket),
}

impl Blobs {
    /// Opens nothing but a folder, which is made if it is not there; whether a bucket answers is found out by
    /// [`Blobs::probe`].
    pub fn new(location: Location, patience: BlobTimeouts) -> Result<Blobs, Error> {
        let shown = location.to_string();
        let place = match location {
            Location::Folder(path) => BlobBackend::Folder(Folder::open(path)?),
            Location::Bucket(settings) => BlobBackend::Bucket(Bucket::new(settings, patience)?),
        };
        Ok(Blobs { place, shown })
    }

    /// Where it is, for people.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Stores what the stream brings, in bounded memory. The object is visible, whole and durable when this returns, and
    /// not at all before. A stream that ends with an error leaves nothing, nor does a call that is given up half way.
    /// How long the stream may take is the stream's own business.
    pub async fn write<S, E>(&self, key: &ObjectKey, stream: S) -> Result<WrittenObject, Error>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        self.write_at(&key.to_string(), stream).await
    }

    async fn write_at<S, E>(&self, key: &str, stream: S) -> Result<WrittenObject, Error>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        let stream = std::pin::pin!(stream.map(|item| item.map_err(|cause| Error::Interrupted(cause.into()))));
        match &self.place {
            BlobBackend::Folder(folder) => folder.write(key, stream).await,
            BlobBackend::Bucket(bucket) => bucket.write(key, stream).await,
        }
    }

    /// Reads the whole object, or a range of it, of which what lies behind the end is left out.
    pub async fn open(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Result<ObjectReader, Error> {
        self.open_at(&key.to_string(), range).await
    }

    async fn open_at(&self, key: &str, range: Option<Range<u64>>) -> Result<ObjectReader, Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.read(key, range).await,
            BlobBackend::Bucket(bucket) => bucket.read(key, range).await,
        }
    }

    /// Are the checksums of this object known, so that it can be read by [`Blobs::open_checked`]?
    pub fn is_checkable(object: &Object) -> bool {
        checksums_of(object).is_some()
    }

    /// Reads the object or a range of it, and hands on only bytes that were found right: the others end the stream with
    /// [`Error::Damaged`]. So does an object without checksums, or of another length than it was written with, at once.
    pub async fn open_checked(&self, object: &Object, range: Option<Range<u64>>) -> Result<ObjectReader, Error> {
        let checksums = checksums_of(object).ok_or(Error::Damaged)?;
        let end = |range: &Range<u64>| range.end.min(object.length);
        let span = range.as_ref().map_or(0..object.length, |range| range.start.min(end(range))..end(range));
        // The whole needs no range, for which a bucket is asked twice.
        let around = (span != (0..object.length)).then(|| checksums.around(&span));
        let opened = self.open(&object.key, around).await?;
        if opened.length != object.length {
            return Err(Error::Damaged);
        }
        Ok(ObjectReader { length: opened.length, chunks: checksums.check(opened.chunks, span) })
    }

    /// Reads the object to its end, to know what is really there. Costs as much as a download.
    pub async fn digest(&self, key: &ObjectKey) -> Result<WrittenObject, Error> {
        self.digest_at(&key.to_string()).await
    }

    async fn digest_at(&self, key: &str) -> Result<WrittenObject, Error> {
        let opened = self.open_at(key, None).await?;
        let mut chunks = opened.chunks;
        let mut tally = ContentHasher::default();
        while let Some(chunk) = chunks.next().await {
            tally = tally.add(chunk?).await?;
        }
        let written = tally.finish().await?;
        match written.length == opened.length {
            true => Ok(written),
            false => Err(Error::Unavailable("the object store sent less than it has announced".into())),
        }
    }

    /// The length of the object.
    pub async fn head(&self, key: &ObjectKey) -> Result<u64, Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.head(&key.to_string()).await,
            BlobBackend::Bucket(bucket) => bucket.head(&key.to_string()).await,
        }
    }

    /// Removes the object and what a write that was given up has left under its key. Nothing there is fine.
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), Error> {
        self.delete_at(&key.to_string()).await
    }

    async fn delete_at(&self, key: &str) -> Result<(), Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.delete(key).await,
            BlobBackend::Bucket(bucket) => bucket.delete(key).await,
        }
    }

    /// Asked for before objects are collected. `None` while a backup is being taken: try again later.
    pub fn permit_deletions(&self) -> Result<Option<DeletionPermit>, Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.permit_deletions(),
            BlobBackend::Bucket(_) => Ok(Some(DeletionPermit::unlocked())),
        }
    }

    /// Keeps all objects for as long as a backup takes. `None` while a server is deleting some: try again soon. Only a folder
    /// can be kept so.
    pub fn pause_deletions(&self) -> Result<Option<DeletionPause>, Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.pause_deletions(),
            BlobBackend::Bucket(_) => Err(Error::Refused("deletions from a bucket cannot be paused".into())),
        }
    }

    /// Does somebody else write objects here without us in between?
    pub fn takes_direct_uploads(&self) -> bool {
        matches!(self.place, BlobBackend::Bucket(_))
    }

    /// A link that the object store itself serves. `None`: it cannot, so the server has to.
    pub async fn link(&self, key: &ObjectKey, spec: &LinkSpec) -> Result<Option<Url>, Error> {
        match &self.place {
            BlobBackend::Folder(_) => Ok(None),
            BlobBackend::Bucket(bucket) => bucket.link(&key.to_string(), spec).await.map(Some),
        }
    }

    /// Copies an object to another key, without reading it here. Later writes to the first key do not change the
    /// second.
    pub async fn copy(&self, from: &ObjectKey, to: &ObjectKey) -> Result<(), Error> {
        match &self.place {
            BlobBackend::Folder(folder) => folder.copy(&from.to_string(), &to.to_string()).await,
            BlobBackend::Bucket(bucket) => bucket.copy(&from.to_string(), &to.to_string()).await,
        }
    }

    /// Links for an upload past the server. `None`: the object store takes none, so it has to go through the server.
    pub async fn upload_links(&self, key: &ObjectKey, spec: UploadSpec) -> Result<Option<DirectUpload>, Error> {
        match &self.place {
            BlobBackend::Folder(_) => Ok(None),
            BlobBackend::Bucket(bucket) => bucket.upload_links(&key.to_string(), spec).await.map(Some),
        }
    }

    /// Makes one object of the parts, which have to be numbered from 1 on without a gap. May be repeated.
    pub async fn complete(&self, key: &ObjectKey, id: &str, parts: Vec<UploadedPart>) -> Result<(), Error> {
        match &self.place {
            BlobBackend::Folder(_) => Err(Error::Refused("a local folder takes no uploads in parts".into())),
            BlobBackend::Bucket(bucket) => bucket.complete(&key.to_string(), id, parts).await,
        }
    }

    /// Ends an upload in parts and throws away what has arrived. One that is not there is fine.
    pub async fn abort(&self, key: &ObjectKey, id: &str) -> Result<(), Error> {
        match &self.place {
            BlobBackend::Folder(_) => Ok(()),
            BlobBackend::Bucket(bucket) => bucket.abort(&key.to_string(), id).await,
        }
    }

    /// Writes, reads and deletes a small object: does everything work that a server needs? `mark` makes it ours alone.
    pub async fn probe(&self, mark: u64) -> Result<(), Error> {
        let key = format!("probe/{mark:016x}");
        let text = Bytes::from(format!("outlast was here: {mark:016x}"));
        let stream = futures_util::stream::iter([Ok::<_, ErrorSource>(text.clone())]);
        let written = self.write_at(&key, stream).await?;
        let read = self.digest_at(&key).await;
        self.delete_at(&key).await?;
        match read? == written {
            true => Ok(()),
            false => Err(Error::Refused("it gave back something else than it was given".into())),
        }
    }
}

fn checksums_of(object: &Object) -> Option<Checksums> {
    object.checksums.as_ref().and_then(|stored| Checksums::read(stored, object.length))
}
