//! The latest progress of a job for its followers: a latest-value channel in the job's topic. A slow follower skips values that
//! are out of date.

use std::sync::Arc;

use outlast_core::Progress;
use outlast_store::peer_bus::LeaseDigest;
use tokio::sync::watch;

type Latest = Option<(LeaseDigest, Arc<Progress>)>;

#[derive(Default)]
pub(crate) struct ProgressFeed(watch::Sender<Latest>);

impl ProgressFeed {
    /// Ignores reports that are older than the latest one or belong to an earlier hand-out.
    pub(crate) fn publish(&self, hand_out: LeaseDigest, progress: &Arc<Progress>) {
        self.0.send_if_modified(|latest| {
            let furthest = match latest.as_ref() {
                Some((same, known)) if *same == hand_out => Arc::new(known.joined(progress)),
                Some((_, known)) if known.at > progress.at => return false,
                _ => Arc::clone(progress),
            };
            let is_new = latest.as_ref().is_none_or(|(_, known)| *known != furthest);
            if is_new {
                *latest = Some((hand_out, furthest));
            }
            is_new
        });
    }

    /// Progress that is known already counts as new.
    pub(crate) fn follow(&self) -> ProgressFollower {
        let mut latest = self.0.subscribe();
        if latest.borrow().is_some() {
            latest.mark_changed();
        }
        ProgressFollower(latest)
    }
}

pub(crate) struct ProgressFollower(watch::Receiver<Latest>);

impl ProgressFollower {
    /// The latest progress, unless it was taken before.
    pub(crate) fn take(&mut self) -> Option<Arc<Progress>> {
        let is_new = self.0.has_changed().unwrap_or(false);
        is_new.then(|| self.0.borrow_and_update().as_ref().map(|(_, latest)| Arc::clone(latest))).flatten()
    }

    /// Ends when there is something to take, and leaves it. Cancel-safe.
    pub(crate) async fn changed(&self) {
        if self.0.clone().changed().await.is_err() {
            std::future::pending().await
        }
    }
}
