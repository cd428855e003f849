//! Results and large checkpoints: bytes go to the object store, and what they are to the database. An object is announced
//! in the store before its first byte is written, and becomes the job's own in a transaction that checks the lease; so
//! bytes of a lost hand-out never become a result, and what is left over is known by name and collected.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use outlast_core::checkpoint::{Checkpoint, CheckpointData};
use outlast_core::filename::{Filename, disposition};
use outlast_core::{Command, NamespaceId, Object, ObjectKey, Role, Timestamp, held};
use outlast_store::Error as StoreError;
use outlast_store::artifacts::StoredObject;
use outlast_store::blobs::{self, DirectUpload, ErrorSource, UploadSpec, UploadedPart, WrittenObject};
use outlast_store::jobs::{Applied, Declined, JobCommand};

use super::Objects;
use crate::work::Worker;

/// How long a link to read or write an object is good for.
pub const LINK_LIFE: Duration = Duration::from_secs(15 * 60);
/// Uploads one hand-out may announce.
const UPLOADS_MAX: usize = 100;

/// Why bytes did not become a result or a checkpoint.
#[derive(Debug)]
pub enum Refused {
    Declined(Declined),
    Store(StoreError),
    Blobs(blobs::Error),
    /// Too many uploads were announced in this hand-out.
    TooMany,
    /// There is no such upload in this hand-out.
    NoUpload,
    /// The upload was announced, and nothing has been sent.
    NotSent,
    /// The parts are named twice, with gaps, or beyond those that were announced.
    Gaps,
    /// Parts of those that were announced are not named.
    MissingParts {
        announced: u16,
        missing: Vec<u16>,
    },
    /// It is not what its sender said it would be.
    Different(WrittenObject),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        Refused::Store(error)
    }
}

impl From<blobs::Error> for Refused {
    fn from(error: blobs::Error) -> Refused {
        Refused::Blobs(error)
    }
}

impl From<Declined> for Refused {
    fn from(declined: Declined) -> Refused {
        Refused::Declined(declined)
    }
}

/// What an upload is called and what it holds, as its sender says.
#[derive(Clone, Debug, Default)]
pub struct Label {
    pub filename: Option<Filename>,
    pub content_type: Option<Box<str>>,
}

/// What a sender says of an upload; what is there is checked against it.
#[derive(Clone, Debug, Default)]
pub struct ExpectedDigest {
    pub length: Option<u64>,
    pub sha256: Option<[u8; 32]>,
}

impl ExpectedDigest {
    fn matches(&self, written: &WrittenObject) -> bool {
        self.length.is_none_or(|length| length == written.length)
            && self.sha256.is_none_or(|sha256| sha256 == written.sha256)
    }
}

/// A result that is the job's own from now on.
#[derive(Debug)]
pub struct Finalised {
    pub object: Arc<Object>,
    pub applied: Applied,
}

/// How to send an upload past the server, or to it by a link.
pub struct Upload {
    pub object: ObjectKey,
    /// `None`: the object store takes none, so it comes to us by a link.
    pub direct: Option<DirectUpload>,
}

impl Objects {
    /// Takes a result through the server. When it returns, the object is there, whole and durable, and the job's own.
    pub async fn upload_result<S, E>(&self, worker: &Worker, label: Label, stream: S) -> Result<Finalised, Refused>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        let holder = self.holder(worker).await?;
        let expected = self.expect(&holder, Role::Result, label).await?;
        let written = self.write_whole(&expected.key, stream).await?;
        self.finalise(&holder, &expected, written).await
    }

    /// Takes a checkpoint through the server that is too large for the database.
    pub async fn upload_checkpoint<S, E>(
        &self,
        worker: &Worker,
        schema_version: u32,
        stream: S,
    ) -> Result<Applied, Refused>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        let holder = self.holder(worker).await?;
        let expected = self.expect(&holder, Role::Checkpoint, Label::default()).await?;
        let written = self.write_whole(&expected.key, stream).await?;
        let data = CheckpointData::Object(Arc::new(with(&expected, written)));
        let checkpoint = Arc::new(Checkpoint { schema_version, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 });
        let kept = self.work.checkpoint(&holder.worker, checkpoint, None).await?;
        if kept.is_err() {
            self.throw_away(&expected.key).await;
        }
        Ok(kept?)
    }

    /// What was confirmed is looked at: confirmed is not the same as there.
    async fn write_whole<S, E>(&self, key: &ObjectKey, stream: S) -> Result<WrittenObject, blobs::Error>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        let written = self.blobs.write(key, stream).await?;
        match self.blobs.head(key).await? == written.length {
            true => Ok(written),
            false => Err(blobs::Error::Unavailable("the object is not as long as what was written".into())),
        }
    }

    /// Announces a result that its worker will send by links, in one piece or in parts.
    pub async fn begin_upload(&self, worker: &Worker, label: Label, parts: u16) -> Result<Upload, Refused> {
        // The object store gives an upload in parts a name of its own, which has to be known to end it.
        let holder = self.holder(worker).await?;
        let key = self.new_key(&holder)?;
        let direct = self.blobs.upload_links(&key, UploadSpec { parts, life: LINK_LIFE }).await?;
        let upload = direct.as_ref().and_then(|direct| direct.id.clone());
        let parts = if upload.is_some() { parts } else { 0 };
        let announced = Object { upload: upload.as_deref().map(Into::into), parts, ..object(key, Role::Result, label) };
        let expected = self.announce_object(&holder, announced).await;
        if let (Err(_), Some(id)) = (&expected, &upload) {
            // Nobody would know of it.
            let _ = self.blobs.abort(&key, id).await;
        }
        Ok(Upload { object: expected?.key, direct })
    }

    /// Makes an announced upload the result. What is there is read once, and must be what its sender says.
    pub async fn finalize_upload(
        &self,
        worker: &Worker,
        upload: u64,
        parts: Vec<UploadedPart>,
        expected_digest: &ExpectedDigest,
    ) -> Result<Finalised, Refused> {
        let holder = self.holder(worker).await?;
        let sent = holder.upload(upload).ok_or(Refused::NoUpload)?;
        let expected = match &sent.upload {
            Some(id) => {
                check_parts(sent.parts, &parts)?;
                self.blobs.complete(&sent.key, id, parts).await?;
                Arc::new(sent.clone())
            }
            // Whoever has the link can write it once more: what nobody has a link to becomes the result.
            None => match holder.copy_of(upload) {
                Some(copy) => Arc::new(copy.clone()),
                None => match self.copy_upload(&holder, sent).await {
                    // The same upload may have been finalised at the same time, which ended first.
                    Err(Refused::NotSent) => {
                        let holder = self.holder(&holder.worker).await?;
                        Arc::new(holder.copy_of(upload).ok_or(Refused::NotSent)?.clone())
                    }
                    copy => copy?,
                },
            },
        };
        let written = self.blobs.digest(&expected.key).await?;
        if !expected_digest.matches(&written) {
            return Err(Refused::Different(written));
        }
        let finalised = self.finalise(&holder, &expected, written).await?;
        if sent.upload.is_none() && self.blobs.takes_direct_uploads() {
            self.delete_staged(&sent.key).await;
        }
        Ok(finalised)
    }

    async fn copy_upload(&self, holder: &Holder, sent: &Object) -> Result<Arc<Object>, Refused> {
        let label = Label {
            filename: sent.filename.as_deref().and_then(Filename::clean),
            content_type: sent.content_type.clone(),
        };
        let copy = object(self.new_key(holder)?, Role::Result, label);
        let copy = Object { copied_from: Some(sent.key.random), ..copy };
        let copy = self.announce_object(holder, copy).await?;
        self.blobs.copy(&sent.key, &copy.key).await.map_err(not_sent)?;
        Ok(copy)
    }

    /// The bytes that were sent have been copied, and the copy is the result. Its row stays until the link to write it has
    /// ended, so that what is written once more is deleted then.
    async fn delete_staged(&self, key: &ObjectKey) {
        if let Err(error) = self.blobs.delete(key).await {
            tracing::warn!(error = error.with_causes(), "an upload that was copied could not be deleted yet");
        }
    }

    /// Takes the bytes of an upload that came by a link of ours. It must still be expected: a result is never written twice.
    pub async fn take_upload<S, E>(&self, key: &ObjectKey, stream: S) -> Result<WrittenObject, Refused>
    where
        S: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<ErrorSource>,
    {
        let stored = self.stored(key).await?;
        if stored.is_none_or(|stored| stored.attached || stored.delete_after.is_some()) {
            return Err(Refused::NoUpload);
        }
        Ok(self.blobs.write(key, stream).await?)
    }

    /// The hand-out that the worker speaks for. Who brought no lease is held to the one it began in: what takes an hour to
    /// arrive must not become the result of somebody else.
    async fn holder(&self, worker: &Worker) -> Result<Holder, Refused> {
        let store = &self.store;
        let found = store.job(&worker.reach, worker.id).await?.ok_or(Declined::NotFound)?;
        let lease = held(&found.job, &found.queue, worker.lease).map_err(Declined::Refused)?.lease;
        let objects = store.objects(&worker.reach, worker.id).await?.unwrap_or_default();
        let worker = Worker { lease: Some(lease), reach: worker.reach.clone(), id: worker.id };
        Ok(Holder { worker, namespace: found.queue.namespace, epoch: found.job.epoch, objects })
    }

    /// Announces an object of the hand-out.
    async fn expect(&self, holder: &Holder, role: Role, label: Label) -> Result<Arc<Object>, Refused> {
        self.announce_object(holder, object(self.new_key(holder)?, role, label)).await
    }

    async fn announce_object(&self, holder: &Holder, object: Object) -> Result<Arc<Object>, Refused> {
        let object = Arc::new(object);
        let command = Command::Upload { lease: holder.worker.lease, object: Arc::clone(&object) };
        self.jobs.apply_one(holder.order(command)).await??;
        self.announcer.objects_expected();
        Ok(object)
    }

    /// A key that nobody has used, if not too many were announced.
    fn new_key(&self, holder: &Holder) -> Result<ObjectKey, Refused> {
        let is_own = |stored: &&StoredObject| stored.object.key.epoch == holder.epoch && stored.delete_after.is_none();
        if holder.objects.iter().filter(is_own).count() >= UPLOADS_MAX {
            return Err(Refused::TooMany);
        }
        let random = self.random.draw(|entropy| entropy.next_u64());
        Ok(ObjectKey { namespace: holder.namespace, job: holder.worker.id, epoch: holder.epoch, random })
    }

    async fn finalise(&self, holder: &Holder, expected: &Object, written: WrittenObject) -> Result<Finalised, Refused> {
        let object = Arc::new(with(expected, written));
        let command = Command::Finalize { lease: holder.worker.lease, object: Arc::clone(&object) };
        let applied = self.jobs.apply_one(holder.order(command)).await?;
        match applied {
            Ok(_) => self.announcer.deletions_scheduled(),
            Err(_) => self.throw_away(&object.key).await,
        }
        Ok(Finalised { object, applied: applied? })
    }

    /// Bytes that came too late. If this fails, the collection gets to them in an hour.
    async fn throw_away(&self, key: &ObjectKey) {
        // The same upload may have been finalised twice at once: what one of them has made the result stays.
        // Who asks so late that its row has gone already leaves bytes that nobody else knows of.
        let is_lost = self.stored(key).await.is_ok_and(|stored| stored.is_none_or(|stored| !stored.attached));
        if !is_lost {
            return;
        }
        if let Err(error) = self.blobs.delete(key).await {
            tracing::warn!(error = error.with_causes(), "an object that came too late could not be deleted yet");
        }
    }
}

/// A hand-out and what it has announced.
struct Holder {
    /// With the lease of the hand-out.
    worker: Worker,
    namespace: NamespaceId,
    epoch: u64,
    /// Of all hand-outs of the job.
    objects: Vec<StoredObject>,
}

impl Holder {
    fn order(&self, command: Command) -> JobCommand {
        JobCommand { id: self.worker.id, reach: self.worker.reach.clone(), command }
    }

    /// The upload with this number that was announced in this hand-out. One that is the result already may be finalised
    /// once more: the first answer may have been lost.
    fn upload(&self, number: u64) -> Option<&Object> {
        let is_meant = |stored: &&StoredObject| {
            let key = stored.object.key;
            key.random == number && key.epoch == self.epoch && stored.delete_after.is_none()
        };
        self.objects.iter().find(is_meant).map(|stored| &stored.object)
    }

    /// The result of this hand-out that was copied from the upload with this number.
    fn copy_of(&self, upload: u64) -> Option<&Object> {
        let is_copy = |stored: &&StoredObject| {
            let object = &stored.object;
            stored.attached
                && stored.delete_after.is_none()
                && object.key.epoch == self.epoch
                && object.copied_from == Some(upload)
        };
        self.objects.iter().find(is_copy).map(|stored| &stored.object)
    }
}

/// Every part that was announced is named, once. How many that are is not known of an upload that an earlier version began.
fn check_parts(announced: u16, parts: &[UploadedPart]) -> Result<(), Refused> {
    let numbers = parts.iter().map(|part| part.number).collect::<BTreeSet<_>>();
    let last = if announced > 0 { announced } else { u16::try_from(parts.len()).unwrap_or(u16::MAX) };
    let missing: Vec<u16> = (1..=announced).filter(|number| !numbers.contains(number)).collect();
    if numbers.len() < parts.len() || parts.is_empty() || !numbers.iter().all(|number| (1..=last).contains(number)) {
        return Err(Refused::Gaps);
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Refused::MissingParts { announced, missing }),
    }
}

/// Nothing has come over the link.
fn not_sent(error: blobs::Error) -> Refused {
    match error {
        blobs::Error::Missing => Refused::NotSent,
        other => Refused::Blobs(other),
    }
}

fn object(key: ObjectKey, role: Role, label: Label) -> Object {
    Object {
        key,
        role,
        length: 0,
        sha256: [0; 32],
        content_type: label.content_type,
        filename: label.filename.map(|name| name.as_str().into()),
        upload: None,
        parts: 0,
        copied_from: None,
        checksums: None,
    }
}

fn with(expected: &Object, written: WrittenObject) -> Object {
    Object { length: written.length, sha256: written.sha256, checksums: Some(written.checksums), ..expected.clone() }
}

/// Always a download, never a page of ours.
pub fn disposition_of(object: &Object) -> String {
    disposition(object.filename.as_deref().and_then(Filename::clean).as_ref())
}

pub fn content_type_of(object: &Object) -> &str {
    object.content_type.as_deref().unwrap_or("application/octet-stream")
}
