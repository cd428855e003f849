//! Follows other nodes of a shared store: by their signals, and, since signals may be lost, by polling. None of these loops
//! runs on an embedded store.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::progress::SHOWN_FOR;
use outlast_core::{Clock, system_queue};
use outlast_store::peer_bus::{PeerBus, SignalSet};
use tokio::time::sleep;

use crate::announcer::Announcer;
use crate::keys::Keys;
use crate::lifecycle::Lifecycle;
use crate::notifier::SLICES;
use crate::random::Random;
use crate::work::is_credible;

/// The pause after a signal that wakes many listeners which it may not concern. A flood of them costs one wake-up per pause.
const BROAD_PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Peers {
    pub(crate) peer_bus: Arc<dyn PeerBus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) keys: Arc<Keys>,
}

impl Peers {
    /// Passes on the signals of other nodes to the listeners here.
    pub(crate) async fn run_signals(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        while !*stopping.borrow() {
            let news = tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                news = self.peer_bus.recv() => news,
            };
            self.pass_on(&news);
            if news.everything || news.all_jobs || !news.namespaces.is_empty() {
                sleep(BROAD_PAUSE).await;
            }
        }
        tracing::debug!("the loop over peer signals has ended");
    }

    fn pass_on(&self, news: &SignalSet) {
        let (announcer, now) = (&self.announcer, self.clock.now());
        // Progress first, then the end of a job: a reader that the end wakes shows both.
        for (id, told) in news.progress.iter().filter(|(_, told)| is_credible(&told.progress, now)) {
            announcer.notifier.publish_progress(*id, told.hand_out, &told.progress);
            announcer.progress.merge_peer(*id, told);
        }
        announcer.notifier.wake_for_peers(news);
        announcer.progress.invalidate(&news.jobs);
        if news.everything || news.all_jobs {
            announcer.progress.invalidate_all();
        }
        // Queues that another node has made or changed may need a dispatcher here.
        for (namespace, queues) in &news.queues {
            let changed = queues.iter().filter(|(name, at_queue)| at_queue.changed || system_queue(name).is_some());
            changed.for_each(|(name, _)| announcer.push_candidates.add(*namespace, name));
        }
        if news.everything || news.keys {
            self.keys.changed.notify_one();
        }
        if news.everything || news.operations || !news.namespaces.is_empty() {
            announcer.alarms.look_now();
        }
    }

    /// Wakes the listeners of each topic once per polling interval, a slice of the topics at a time.
    pub(crate) async fn run_polling(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        let mut slice = 0;
        while let Some(floor) = self.peer_bus.poll_interval()
            && !*stopping.borrow()
        {
            let pause = floor / u32::try_from(SLICES).unwrap_or(1);
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = sleep(self.random.jitter(pause)) => {}
            }
            self.announcer.notifier.wake_slice(slice);
            // Jobs that ended on other nodes.
            self.announcer.progress.prune(self.clock.now(), SHOWN_FOR);
            slice = (slice + 1) % SLICES;
        }
        tracing::debug!("the loop that polls for changes of peers has ended");
    }
}
