//! Learning what other nodes of a shared store did: by hearing it, and, since hearing may fail, by looking every now and
//! then. None of these loops runs on an embedded store.

use std::sync::PoisonError;
use std::time::Duration;

use outlast_core::entropy::unit;
use outlast_core::progress::SHOWN_FOR;
use outlast_core::system_queue;
use outlast_store::live::News;
use tokio::time::sleep;

use crate::engine::Engine;
use crate::notifier::SLICES;
use crate::work::is_credible;

/// The pause after news that wake many who need not be concerned. A flood of them is heard as one.
const BLUNT_PAUSE: Duration = Duration::from_millis(20);

impl Engine {
    /// Do other nodes work on the same store?
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.live.floor().is_some()
    }

    /// Rings for what others told.
    pub(crate) async fn run_peer_signals(self) {
        let mut stopping = self.stopping();
        while !*stopping.borrow() {
            let news = tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                news = self.shared.live.heard() => news,
            };
            let shared = &self.shared;
            // First how far it was, then that it has ended: who is woken by that shows both.
            let now = self.now();
            for (id, told) in news.progress.iter().filter(|(_, told)| is_credible(&told.progress, now)) {
                shared.notifier.publish_progress(*id, told.hand_out, &told.progress);
                shared.progress.merge_peer(*id, told);
            }
            shared.notifier.wake_for_peers(&news);
            shared.progress.invalidate(&news.jobs);
            if news.everything || news.all_jobs {
                shared.progress.invalidate_all();
            }
            self.look_for_dispatchers(&news);
            if news.everything || news.keys {
                shared.keys.changed.notify_one();
            }
            if news.everything || news.operations || !news.namespaces.is_empty() {
                shared.sweep.look_now();
            }
            if news.everything || news.all_jobs || !news.namespaces.is_empty() {
                sleep(BLUNT_PAUSE).await;
            }
        }
        tracing::debug!("the hearing has ended");
    }

    /// Queues that another node has made or changed may deliver.
    fn look_for_dispatchers(&self, news: &News) {
        for (namespace, queues) in &news.queues {
            let changed = queues.iter().filter(|(name, at_queue)| at_queue.changed || system_queue(name).is_some());
            changed.for_each(|(name, _)| self.shared.push.look_for(*namespace, name));
        }
    }

    /// Notifier each waiter's queue once per floor, a slice of them at a time.
    pub(crate) async fn run_peer_poll(self) {
        let mut stopping = self.stopping();
        let mut slice = 0;
        while !*stopping.borrow() {
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = self.floor_passes(SLICES) => {}
            }
            self.shared.notifier.patrol(slice);
            // Jobs that ended elsewhere.
            self.shared.progress.prune(self.now(), SHOWN_FOR);
            slice = (slice + 1) % SLICES;
        }
        tracing::debug!("the patrol has ended");
    }

    /// Ends after a part of the time a waiter may go without looking; never on an embedded store.
    pub(crate) async fn floor_passes(&self, parts: usize) {
        match self.shared.live.floor() {
            Some(floor) => sleep(self.jitter(floor / u32::try_from(parts).unwrap_or(1))).await,
            None => std::future::pending().await,
        }
    }

    /// A little less than `pause`, so that nodes which started together do not look together, and no look is late.
    pub(crate) fn jitter(&self, pause: Duration) -> Duration {
        let mut entropy = self.shared.entropy.lock().unwrap_or_else(PoisonError::into_inner);
        pause.mul_f64(1.0 - 0.2 * unit(entropy.as_mut()))
    }

    /// Somewhere between the two, so that what began together does not go on together.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        let mut entropy = self.shared.entropy.lock().unwrap_or_else(PoisonError::into_inner);
        least + most.saturating_sub(least).mul_f64(unit(entropy.as_mut()))
    }
}
