//! When the sweep looks at the alarms next. A room that sets an alarm says so here, and only an earlier one wakes the sweep.

use std::sync::atomic::{AtomicI64, Ordering};

use outlast_core::Timestamp;
use tokio::sync::Notify;

pub(crate) struct Alarms {
    next_look: AtomicI64,
    earlier: Notify,
}

impl Default for Alarms {
    fn default() -> Alarms {
        Alarms { next_look: AtomicI64::new(i64::MAX), earlier: Notify::new() }
    }
}

impl Alarms {
    /// An alarm was set. Wakes the sweep if it would sleep past it.
    pub(crate) fn set(&self, wake_at: Option<Timestamp>) {
        if let Some(at) = wake_at {
            self.look_at(at.as_millis());
        }
    }

    /// Alarms may have been set at any time, also in the past.
    pub(crate) fn look_now(&self) {
        self.look_at(i64::MIN);
    }

    fn look_at(&self, millis: i64) {
        if self.next_look.fetch_min(millis, Ordering::SeqCst) > millis {
            self.earlier.notify_one();
        }
    }

    pub(crate) fn next_look(&self) -> Timestamp {
        Timestamp::from_millis(self.next_look.load(Ordering::SeqCst))
    }

    /// The sweep begins to look: from here on every new alarm counts, since this look may miss it.
    pub(crate) fn begin_look(&self) {
        self.next_look.store(i64::MAX, Ordering::SeqCst);
    }

    /// The sweep has looked; alarms that were set meanwhile count if they are earlier.
    pub(crate) fn end_look(&self, next: Timestamp) {
        self.next_look.fetch_min(next.as_millis(), Ordering::SeqCst);
    }

    /// The look failed: the next one is at this time, whatever was set meanwhile.
    pub(crate) fn retry_look(&self, at: Timestamp) {
        self.next_look.store(at.as_millis(), Ordering::SeqCst);
    }

    /// Ends when an earlier alarm was set. Cancel-safe.
    pub(crate) async fn set_earlier(&self) {
        self.earlier.notified().await;
    }
}
