//! The room of objects: results and large checkpoints in the object store. Uploads, checked reads, and the deletion of objects that
//! no job needs any more.

pub mod upload;
pub mod read;
mod gc;

use std::sync::Arc;

use outlast_core::{Clock, JobId, ObjectKey};
use outlast_store::artifacts::{InlineResult, StoredObject};
use outlast_store::blobs::Blobs;
use outlast_store::jobs::{FoundJob, Reach};
use outlast_store::{Error, JobStore};

use crate::announcer::Announcer;
use crate::detached::DetachedCalls;
use crate::engine::Parts;
use crate::jobs::Jobs;
use crate::lifecycle::Lifecycle;
use crate::random::Random;
use crate::work::Work;

pub struct Objects {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) detached: Arc<DetachedCalls>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) work: Arc<Work>,
}

impl Objects {
    pub(crate) fn new(parts: &Parts, blobs: Arc<Blobs>, jobs: &Arc<Jobs>, work: &Arc<Work>) -> Objects {
        let Parts { store, clock, random, announcer, lifecycle, detached, .. } = parts.clone();
        let (jobs, work) = (Arc::clone(jobs), Arc::clone(work));
        Objects { store, blobs, clock, random, announcer, lifecycle, detached, jobs, work }
    }

    /// The object of a key, as the database knows it.
    pub async fn stored(&self, key: &ObjectKey) -> Result<Option<StoredObject>, Error> {
        let reach = Reach::Namespace(key.namespace);
        let objects = self.store.objects(&reach, key.job).await?;
        Ok(objects.unwrap_or_default().into_iter().find(|stored| stored.object.key == *key))
    }

    pub async fn inline_result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error> {
        self.store.result(reach, id).await
    }

    /// The uploaded result: of a job that succeeded, or as far as a cancelled or failed one had come.
    pub async fn uploaded_result(&self, found: &FoundJob) -> Result<Option<StoredObject>, Error> {
        if !found.job.has_uploaded_result() {
            return Ok(None);
        }
        let objects = self.store.objects(&Reach::Everything, found.job.id).await?.unwrap_or_default();
        Ok(objects.into_iter().find(StoredObject::is_result))
    }

    /// The result is being downloaded once more. The download does not wait for this write.
    pub fn count_download(&self, id: JobId) {
        let store = Arc::clone(&self.store);
        self.detached.spawn(async move {
            if let Err(error) = store.count_download(id).await {
                tracing::warn!(job = %id, %error, "a download was not counted");
            }
        });
    }
}
