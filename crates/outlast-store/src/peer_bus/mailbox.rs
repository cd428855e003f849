//! Where news gather until somebody takes them. Putting in never waits; the size is bounded by what news collapse to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Signal, SignalSet};

#[derive(Debug, Default)]
pub struct Mailbox {
    news: Mutex<SignalSet>,
    /// Holds a permit while there is something to take.
    filled: Notify,
}

impl Mailbox {
    pub fn add(&self, signal: Signal<'_>) {
        self.lock().add(signal);
        self.filled.notify_one();
    }

    pub fn merge(&self, news: SignalSet) {
        self.lock().merge(news);
        self.filled.notify_one();
    }

    /// Waits until there is something. For one taker; cancel-safe: what is there stays there.
    pub async fn wait(&self) {
        while self.lock().is_empty() {
            self.filled.notified().await;
        }
    }

    /// The gathered signals, perhaps none.
    pub fn take(&self) -> SignalSet {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, SignalSet> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
