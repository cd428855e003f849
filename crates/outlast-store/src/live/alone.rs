//! Nobody can be told anything: either there is no other node, or there is no link to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{JobId, Lease, Progress};

use super::{FLOOR_ALONE, HandOut, Link, Live, News, Signal};

/// A node without a link to others.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    floor: Option<Duration>,
}

impl Alone {
    /// The only node of its store: whatever happens is known here.
    pub fn embedded() -> Alone {
        Alone { floor: None }
    }

    /// A node of a shared store without a link: it has to look for itself.
    pub fn unlinked() -> Alone {
        Alone { floor: Some(FLOOR_ALONE) }
    }
}

#[async_trait]
impl Live for Alone {
    fn tell(&self, _: Signal<'_>) {}

    fn report(&self, _: JobId, _: Lease, _: &Arc<Progress>) {}

    async fn progress(&self, _: JobId) -> Option<(HandOut, Progress)> {
        None
    }

    async fn heard(&self) -> News {
        std::future::pending().await
    }

    fn floor(&self) -> Option<Duration> {
        self.floor
    }

    fn link(&self) -> Option<Link> {
        None
    }

    async fn close(&self) {}
}
