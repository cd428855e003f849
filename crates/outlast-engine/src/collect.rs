//! Deletes the objects that nobody wants any more: results whose time is over, checkpoints that were replaced, bytes of
//! hand-outs that were lost. All of them are known by name, so no store is ever searched, and what a job still has is
//! never among them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_store::Error;
use outlast_store::blobs;
use tokio::time::sleep;

use crate::engine::Engine;

/// Objects of one round.
const BATCH_MAX: usize = 100;
/// The pause after a failure, before trying again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Nothing here is urgent: what is doomed meanwhile waits until this is over.
const PAUSE: Duration = Duration::from_secs(30);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Rings may be many: one look serves those of this long.
const RING_PAUSE: Duration = Duration::from_millis(500);
/// Until something rings.
const PAUSE_EVER: Duration = Duration::from_secs(30 * 86_400);
/// With nothing to wait for; what this node dooms wakes it.
const PAUSE_IDLE: Duration = Duration::from_secs(15 * 60);

impl Engine {
    pub(crate) async fn run_collect(self) {
        let mut stopping = self.stopping();
        while !*stopping.borrow() {
            let collected = tokio::select! {
                biased;
                // What was deleted and not forgotten is deleted again.
                _ = stopping.changed() => break,
                collected = self.collect_once() => collected,
            };
            let pause = match collected {
                Ok(next) => self.pause_until(next),
                Err(Error::Stopped) => break,
                Err(error) => {
                    tracing::warn!(%error, "objects could not be collected; trying again");
                    self.shared.meters.loop_failures.add(1);
                    RETRY_PAUSE
                }
            };
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                () = self.shared.doomed.notified() => sleep(RING_PAUSE).await,
                () = sleep(pause) => {}
            }
        }
        tracing::debug!("the collection has ended");
    }

    fn pause_until(&self, next: Option<Timestamp>) -> Duration {
        match next {
            Some(next) => next.since(self.now()).clamp(PAUSE_MIN, PAUSE),
            // What is doomed here rings; only others can doom in silence.
            None if !self.is_shared() && !self.shared.has_objects.load(Ordering::Relaxed) => PAUSE_EVER,
            None => PAUSE_IDLE,
        }
    }

    /// A change may have doomed objects, if there are any.
    pub(crate) fn may_have_doomed(&self) {
        if self.shared.has_objects.load(Ordering::Relaxed) {
            self.shared.doomed.notify_one();
        }
    }

    /// Deletes what is due; says when more will be.
    pub async fn collect_once(&self) -> Result<Option<Timestamp>, Error> {
        loop {
            let doomed = self.shared.store.doomed(BATCH_MAX).await?;
            if doomed.next.is_some() || !doomed.objects.is_empty() {
                self.shared.has_objects.store(true, Ordering::Relaxed);
            }
            if doomed.objects.is_empty() {
                return Ok(doomed.next);
            }
            let mut gone = Vec::with_capacity(doomed.objects.len());
            let mut failed = None;
            for (key, upload) in doomed.objects {
                let deleted = async {
                    if let Some(upload) = &upload {
                        self.blobs().abort(&key, upload).await?;
                    }
                    self.blobs().delete(&key).await
                };
                match deleted.await {
                    Ok(()) => gone.push(key),
                    Err(error) => {
                        // If it is away, the others would have to wait for that as well.
                        let is_away = matches!(error, blobs::Error::Unavailable(_));
                        failed = Some(error);
                        if is_away {
                            break;
                        }
                    }
                }
            }
            self.shared.meters.objects_deleted.add(gone.len());
            self.shared.store.forget_objects(&gone).await?;
            if let Some(error) = failed {
                return self.wait_for_blobs(&error);
            }
        }
    }

    /// The object store is away: what is due stays due.
    fn wait_for_blobs(&self, error: &blobs::Error) -> Result<Option<Timestamp>, Error> {
        tracing::warn!(error = error.with_causes(), "objects cannot be deleted now; trying again");
        self.shared.meters.loop_failures.add(1);
        Ok(Some(self.now().plus(RETRY_PAUSE)))
    }
}
