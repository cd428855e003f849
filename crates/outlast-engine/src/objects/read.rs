//! Reading objects: nothing that differs from what was written is handed on. Each chunk is checked before it is sent; an object
//! found damaged is marked in the store, so that later reads are refused at once. A marked object is read anew now and
//! then: restored under its key, it is served again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use outlast_core::Object;
use outlast_store::artifacts::{ObjectInspection, StoredObject};
use outlast_store::blobs::{self, Blobs, Chunks, LinkSpec, ObjectReader};

use super::Objects;
use super::upload::{content_type_of, disposition_of};

/// A damaged object is read anew this often at most: each time costs as much as a download.
const INSPECT_EVERY: Duration = Duration::from_secs(60);

impl Objects {
    /// Opens an object or a range of it. The first chunk has been checked when this returns; damage further on ends the
    /// stream with an error.
    pub async fn open(
        self: &Arc<Self>,
        stored: &StoredObject,
        range: Option<Range<u64>>,
    ) -> Result<ObjectReader, blobs::Error> {
        let object = self.checkable(stored).await?;
        let opened = match self.blobs.open_checked(&object, range).await {
            Ok(opened) => opened,
            Err(error) => return Err(self.record_damage(&object, error).await),
        };
        let mut chunks = opened.chunks;
        let first = match chunks.next().await.transpose() {
            Ok(first) => first,
            Err(error) => return Err(self.record_damage(&object, error).await),
        };
        let chunks = stream::iter(first.map(Ok)).chain(self.recording(object, chunks));
        Ok(ObjectReader { length: opened.length, chunks: chunks.boxed() })
    }

    /// Where the object store itself serves an object from. `None`: we have to. Its bytes are not checked on that way, only
    /// that there are as many as there should be.
    pub async fn link(&self, stored: &StoredObject, life: Duration) -> Result<Option<String>, blobs::Error> {
        let object = &stored.object;
        if stored.damaged_at.is_some() {
            self.checkable(stored).await?;
        }
        let spec =
            LinkSpec { disposition: disposition_of(object), content_type: content_type_of(object).to_owned(), life };
        // A link is made without asking the object store; a result that is gone should not be found out by the reader.
        if self.blobs.head(&object.key).await? != object.length {
            return Err(self.record_damage(object, blobs::Error::Damaged).await);
        }
        Ok(self.blobs.link(&object.key, &spec).await?.map(String::from))
    }

    /// The object with the checksums of its chunks. One that has none, or was found damaged a while ago, is read whole first.
    async fn checkable(&self, stored: &StoredObject) -> Result<Object, blobs::Error> {
        let object = &stored.object;
        match stored.damaged_at {
            None if Blobs::is_checkable(object) => return Ok(object.clone()),
            Some(at) if self.clock.now() < at.plus(INSPECT_EVERY) => return Err(blobs::Error::Damaged),
            _ => {}
        }
        let found = self.blobs.digest(&object.key).await?;
        if found.length != object.length || found.sha256 != object.sha256 {
            return Err(self.record_damage(object, blobs::Error::Damaged).await);
        }
        self.record(object, ObjectInspection::Sound(found.checksums.clone())).await;
        Ok(Object { checksums: Some(found.checksums), ..object.clone() })
    }

    /// The same chunks; damage is recorded before the reader gets to know of it.
    fn recording(self: &Arc<Self>, object: Object, chunks: Chunks) -> Chunks {
        let objects = Arc::clone(self);
        let recorded = chunks.then(move |chunk| {
            let (objects, damaged) = (Arc::clone(&objects), chunk.is_err().then(|| object.clone()));
            async move {
                match (chunk, damaged) {
                    (Err(error), Some(object)) => Err(objects.record_damage(&object, error).await),
                    (chunk, _) => chunk,
                }
            }
        });
        recorded.boxed()
    }

    async fn record_damage(&self, object: &Object, error: blobs::Error) -> blobs::Error {
        if matches!(error, blobs::Error::Damaged) {
            tracing::error!(object = %object.key, "the bytes of an object are not those that were written");
            self.announcer.counters.objects_damaged.add(1);
            self.record(object, ObjectInspection::Damaged).await;
        }
        error
    }

    /// What is not recorded is found again by the next reader.
    async fn record(&self, object: &Object, found: ObjectInspection) {
        if let Err(error) = self.store.record_inspection(&object.key, found).await {
            tracing::warn!(object = %object.key, %error, "the state of an object could not be recorded");
        }
    }
}
