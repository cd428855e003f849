//! A bus without peers: either there is no other node, or there is no link to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{JobId, Lease, Progress};

use super::{LeaseDigest, POLL_INTERVAL_UNLINKED, PeerBus, PeerLink, Signal, SignalSet};

/// A node without a link to others.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers {
    floor: Option<Duration>,
}

impl NoPeers {
    /// The only node of its store: whatever happens is known here.
    pub fn embedded() -> NoPeers {
        NoPeers { floor: None }
    }

    /// A node of a shared store without a link: it has to look for itself.
    pub fn unlinked() -> NoPeers {
        NoPeers { floor: Some(POLL_INTERVAL_UNLINKED) }
    }
}

#[async_trait]
impl PeerBus for NoPeers {
    fn publish(&self, _: Signal<'_>) {}

    fn report(&self, _: JobId, _: Lease, _: &Arc<Progress>) {}

    async fn progress(&self, _: JobId) -> Option<(LeaseDigest, Progress)> {
        None
    }

    async fn recv(&self) -> SignalSet {
        std::future::pending().await
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.floor
    }

    fn link(&self) -> Option<PeerLink> {
        None
    }

    async fn close(&self) {}
}
