//! Objects in a bucket of S3, Google Cloud or Azure. Retries are the client's: three, within the patience of a call. An upload
//! in parts that was given up half way is ended by the next write or delete on this node; what a killed node leaves has to go
//! by a lifecycle rule of the bucket.

mod client;
mod parts;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::Method;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::signer::SignedUrlOptions;
use object_store::{GetOptions, GetRange, MultipartId, ObjectStoreExt, PutPayload};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use url::Url;

use self::client::{BucketClient, connect, sorted_out};
use self::parts::Parts;
use super::location::{BucketKind, BucketSettings};
use super::{BlobTimeouts, DirectUpload, Error, LinkSpec, ObjectReader, UploadSpec, UploadedPart, WrittenObject};

/// Part sizes of one object are the same, which some stores demand. At most two parts of a write are in memory.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// As S3 has it. Larger objects than this many parts make go past the server, in larger parts.
const PARTS_MAX: usize = 10_000;
/// How many abandoned uploads one call ends.
const ABORTS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Bucket {
    client: Arc<dyn BucketClient>,
    kind: BucketKind,
    prefix: Path,
    patience: BlobTimeouts,
    /// Abandoned uploads in parts. A hint: lost with the process.
    abandoned: Mutex<Vec<PendingUpload>>,
    /// Writes under way; each holds up to two parts in memory. Later writes wait, and so does their sender, but no
    /// longer than for any call.
    writes: Semaphore,
}

/// Half a GiB of parts at most.
const WRITES_MAX: usize = 32;

#[derive(Clone, Debug)]
struct PendingUpload {
    path: Path,
    id: MultipartId,
}

/// Hands an upload over to those that end abandoned ones, unless it was taken out before.
struct UploadGuard<'a> {
    bucket: &'a Bucket,
    upload: Option<PendingUpload>,
}

impl Drop for UploadGuard<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.bucket.abandon(upload);
        }
    }
}

impl Bucket {
    pub(super) fn new(settings: BucketSettings, patience: BlobTimeouts) -> Result<Bucket, Error> {
        let (kind, prefix) = (settings.kind, settings.prefix.clone());
        let client = connect(settings, patience)?;
        Ok(Bucket { client, kind, prefix, patience, abandoned: Mutex::default(), writes: Semaphore::new(WRITES_MAX) })
    }

    pub(super) async fn write<S>(&self, key: &str, stream: S) -> Result<WrittenObject, Error>
    where
        S: Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    {
        self.end_abandoned().await;
        let busy = |_| Error::Unavailable("too many objects are being written".into());
        let _turn = timeout(self.patience.call, self.writes.acquire()).await.map_err(busy)?;
        let path = self.path(key);
        let mut parts = Parts::new(stream, PART_BYTES);
        let first = parts.next().await?.unwrap_or_default();
        if parts.is_over() {
            self.call(self.client.put(&path, first)).await.map_err(not_missing)?;
            return parts.written().await;
        }
        let id = self.call(self.client.create_multipart(&path)).await.map_err(not_missing)?;
        let mut guard =
            UploadGuard { bucket: self, upload: Some(PendingUpload { path: path.clone(), id: id.clone() }) };
        let done = match self.write_parts(&path, &id, first, &mut parts).await {
            Ok(ids) => self.finish(&path, &id, ids).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            drop(guard);
            self.end_abandoned().await;
            return Err(error);
        }
        guard.upload = None;
        parts.written().await
    }

    /// The next part is gathered while one is on its way.
    async fn write_parts<S>(
        &self,
        path: &Path,
        id: &MultipartId,
        first: PutPayload,
        parts: &mut Parts<S>,
    ) -> Result<Vec<PartId>, Error>
    where
        S: Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    {
        let mut ids = Vec::new();
        let mut waiting = Some(first);
        while let Some(payload) = waiting {
            if ids.len() == PARTS_MAX {
                return Err(Error::Refused("it is too large to pass through the server; upload it directly".into()));
            }
            let sent = self.call(self.client.put_part(path, id, ids.len(), payload));
            let (part, following) = tokio::try_join!(sent, parts.next())?;
            ids.push(part);
            waiting = following;
        }
        Ok(ids)
    }

    /// A repeated end of an upload finds no upload, but the object: keys are used once, so that is what it has become.
    async fn finish(&self, path: &Path, id: &MultipartId, parts: Vec<PartId>) -> Result<(), Error> {
        let Err(error) = self.call(self.client.complete_multipart(path, id, parts)).await else {
            return Ok(());
        };
        match self.call(self.client.head(path)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(error),
        }
    }

    pub(super) async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<ObjectReader, Error> {
        let path = self.path(key);
        let mut options = GetOptions::default();
        if let Some(range) = range {
            // Stores answer a range behind the end with an error; here it is empty.
            let length = self.ask(self.client.head(&path)).await?.size;
            let range = range.start.min(length)..range.end.min(length);
            if range.is_empty() {
                return Ok(ObjectReader { length, chunks: stream::empty().boxed() });
            }
            options.range = Some(GetRange::Bounded(range));
        }
        let got = self.ask(self.client.get_opts(&path, options)).await?;
        let (length, idle) = (got.meta.size, self.patience.idle);
        let chunks = stream::unfold(Some(got.into_stream()), move |chunks| async move {
            let mut chunks = chunks?;
            match timeout(idle, chunks.next()).await {
                Ok(None) => None,
                Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(chunks))),
                Ok(Some(Err(error))) => Some((Err(sorted_out(error)), None)),
                Err(late) => Some((Err(Error::Unavailable(late.into())), None)),
            }
        });
        Ok(ObjectReader { length, chunks: chunks.boxed() })
    }

    pub(super) async fn head(&self, key: &str) -> Result<u64, Error> {
        Ok(self.ask(self.client.head(&self.path(key))).await?.size)
    }

    pub(super) async fn copy(&self, from: &str, to: &str) -> Result<(), Error> {
        self.call(self.client.copy(&self.path(from), &self.path(to))).await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), Error> {
        self.end_abandoned().await;
        missing_is_fine(self.call(self.client.delete(&self.path(key))).await)
    }

    pub(super) async fn link(&self, key: &str, spec: &LinkSpec) -> Result<Url, Error> {
        let mut options = SignedUrlOptions::new();
        // An Azure link cannot carry them, as the client makes it: the reader gets the bytes without name and type.
        if self.kind != BucketKind::Azure {
            options = options.with_query([
                ("response-content-disposition", spec.disposition.as_str()),
                ("response-content-type", spec.content_type.as_str()),
            ]);
        }
        self.ask(self.client.signed_url_opts(Method::GET, &self.path(key), spec.life, &options)).await
    }

    pub(super) async fn upload_links(&self, key: &str, spec: UploadSpec) -> Result<DirectUpload, Error> {
        let path = self.path(key);
        if spec.parts <= 1 {
            let url = self.call(self.client.signed_url(Method::PUT, &path, spec.life)).await?;
            let headers = match self.kind {
                BucketKind::Azure => vec![("x-ms-blob-type", "BlockBlob")],
                BucketKind::S3 | BucketKind::Google => Vec::new(),
            };
            return Ok(DirectUpload { id: None, urls: vec![url], headers });
        }
        if self.kind == BucketKind::Azure {
            return Err(Error::Refused("a direct upload to Azure is one PUT, without parts".into()));
        }
        let id = self.call(self.client.create_multipart(&path)).await.map_err(not_missing)?;
        let mut guard =
            UploadGuard { bucket: self, upload: Some(PendingUpload { path: path.clone(), id: id.clone() }) };
        let mut urls = Vec::new();
        for number in 1..=spec.parts {
            let part = [("partNumber", number.to_string()), ("uploadId", id.clone())];
            let options = SignedUrlOptions::new().with_query(part);
            urls.push(self.call(self.client.signed_url_opts(Method::PUT, &path, spec.life, &options)).await?);
        }
        guard.upload = None;
        Ok(DirectUpload { id: Some(id), urls, headers: Vec::new() })
    }

    pub(super) async fn complete(&self, key: &str, id: &str, mut parts: Vec<UploadedPart>) -> Result<(), Error> {
        parts.sort_by_key(|part| part.number);
        if parts.is_empty() || !parts.iter().zip(1..).all(|(part, number)| part.number == number) {
            return Err(Error::Refused("parts are numbered from 1 on, without a gap".into()));
        }
        let parts = parts.into_iter().map(|part| PartId { content_id: part.etag }).collect();
        self.finish(&self.path(key), &id.to_owned(), parts).await
    }

    pub(super) async fn abort(&self, key: &str, id: &str) -> Result<(), Error> {
        self.end(&PendingUpload { path: self.path(key), id: id.to_owned() }).await
    }

    async fn end(&self, upload: &PendingUpload) -> Result<(), Error> {
        missing_is_fine(self.call(self.client.abort_multipart(&upload.path, &upload.id)).await)
    }

    fn abandon(&self, upload: PendingUpload) {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(upload);
    }

    /// Ends some abandoned uploads. A failed one stays for the next call.
    async fn end_abandoned(&self) {
        for _ in 0..ABORTS_MAX {
            let upload = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(upload) = upload else {
                return;
            };
            let mut guard = UploadGuard { bucket: self, upload: Some(upload.clone()) };
            if let Err(error) = self.end(&upload).await {
                tracing::warn!(path = %upload.path, cause = error.with_causes(), "an upload in parts could not be ended");
                return;
            }
            guard.upload = None;
        }
    }

    fn path(&self, key: &str) -> Path {
        self.prefix.parts().chain(Path::from(key).parts()).collect()
    }

    async fn call<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Error> {
        within(self.patience.call, request).await
    }

    /// A request that changes nothing.
    async fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Error> {
        within(self.patience.answer, request).await
    }
}

async fn within<T>(most: Duration, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Error> {
    match timeout(most, request).await {
        Ok(answer) => answer.map_err(sorted_out),
        Err(late) => Err(Error::Unavailable(late.into())),
    }
}

/// Where something is written, what is missing is the bucket.
fn not_missing(error: Error) -> Error {
    match error {
        Error::Missing => Error::Refused("there is no such bucket".into()),
        other => other,
    }
}

fn missing_is_fine(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(Error::Missing) => Ok(()),
        other => other,
    }
}
