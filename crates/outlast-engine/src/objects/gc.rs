//! Deletes objects that no job needs any more: results whose time is over, checkpoints that were replaced, bytes of
//! hand-outs that were lost. All of them are known by name, so no store is ever searched, and what a job still has is
//! never among them. One of the rounds of the sweep.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use outlast_core::ObjectKey;
use outlast_store::Error;
use outlast_store::blobs::{self, DeletionPermit};

use super::Objects;
use crate::announcer::GC_DELAY;

/// Objects of one look.
const BATCH_MAX: usize = 100;
/// Deletions under way at once.
const CONCURRENCY: usize = 16;
/// Where the first object that is due is not one to be deleted: its row is damaged, or another node had it.
const IDLE_REST: Duration = Duration::from_secs(30);
/// The pause while a backup keeps all objects in their place.
const BACKUP_PAUSE: Duration = Duration::from_secs(5);
/// The pause while the object store is away.
const AWAY_PAUSE: Duration = Duration::from_secs(5);
/// When a deletion is tried again that failed in a way that may pass, and one that was refused: until somebody has changed
/// something it will be again, and it must not be in the way of others.
const POSTPONED_FOR: Duration = Duration::from_secs(15);
const REFUSED_FOR: Duration = Duration::from_secs(3600);

/// What became of a batch.
#[derive(Default)]
struct Deletions {
    gone: Vec<ObjectKey>,
    /// May work soon.
    failed: Vec<ObjectKey>,
    refused: Vec<ObjectKey>,
}

impl Deletions {
    fn count(&self) -> usize {
        self.gone.len() + self.failed.len() + self.refused.len()
    }

    /// As many as run at once have failed, and nothing has worked: the others would only wait for that as well.
    fn is_away(&self) -> bool {
        self.failed.len() >= CONCURRENCY && self.failed.len() == self.count()
    }
}

impl Objects {
    /// Deletes what is due. Whatever cannot be deleted is put off, so that it stops no other.
    pub(crate) async fn collect(&self) -> Result<Duration, Error> {
        let mut stopping = self.lifecycle.stopping();
        self.announcer.objects_expected();
        let mut rest = IDLE_REST;
        loop {
            let due = self.store.due_deletions(BATCH_MAX).await?.objects;
            if due.is_empty() || *stopping.borrow() {
                return Ok(rest);
            }
            let Some(_permit) = self.deletion_permit() else {
                tracing::info!(due = due.len(), "a backup is being taken; objects are deleted when it is complete");
                return Ok(BACKUP_PAUSE);
            };
            rest = GC_DELAY;
            let deletions = tokio::select! {
                biased;
                // What was deleted and not forgotten is deleted again.
                _ = stopping.changed() => return Ok(GC_DELAY),
                deletions = self.delete_objects(due) => deletions,
            };
            let store = &self.store;
            self.announcer.counters.objects_deleted.add(deletions.gone.len());
            store.forget_objects(&deletions.gone).await?;
            for (keys, pause) in [(&deletions.failed, POSTPONED_FOR), (&deletions.refused, REFUSED_FOR)] {
                if !keys.is_empty() {
                    self.announcer.counters.loop_failures.add(1);
                    store.postpone_deletions(keys, self.clock.now().plus(pause)).await?;
                }
            }
            if deletions.gone.is_empty() && !deletions.failed.is_empty() {
                return Ok(AWAY_PAUSE);
            }
        }
    }

    /// `None` while a backup is being taken. A folder that cannot be opened says so at the deletions.
    fn deletion_permit(&self) -> Option<DeletionPermit> {
        self.blobs.permit_deletions().unwrap_or_else(|_| Some(DeletionPermit::unlocked()))
    }

    async fn delete_objects(&self, due: Vec<(ObjectKey, Option<Box<str>>)>) -> Deletions {
        let mut deletions = Deletions::default();
        let mut results = stream::iter(due)
            .map(async |(key, upload)| (key, self.delete_object(&key, upload.as_deref()).await))
            .buffer_unordered(CONCURRENCY);
        while !deletions.is_away()
            && let Some((key, deleted)) = results.next().await
        {
            match deleted {
                Ok(()) => deletions.gone.push(key),
                Err(error) => {
                    tracing::warn!(object = %key, error = error.with_causes(), "an object could not be deleted; trying again later");
                    let is_passing = matches!(error, blobs::Error::Unavailable(_));
                    if is_passing { &mut deletions.failed } else { &mut deletions.refused }.push(key);
                }
            }
        }
        deletions
    }

    async fn delete_object(&self, key: &ObjectKey, upload: Option<&str>) -> Result<(), blobs::Error> {
        if let Some(upload) = upload {
            self.blobs.abort(key, upload).await?;
        }
        self.blobs.delete(key).await
    }
}
