//! Whether the engine drains or stops. Shared by all rooms and loops.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

#[derive(Default)]
pub(crate) struct Lifecycle {
    draining: AtomicBool,
    /// Turns true once, when the engine stops.
    stop: watch::Sender<bool>,
}

impl Lifecycle {
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// No job is handed out any more; a waiting receive gets an empty answer.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Every loop ends after its present step.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}
