//! Port for signals between nodes: wake-ups, changed keys, started operations, progress. Lossy by design: a node
//! without signals polls the store once per [`PeerBus::poll_interval`], so nothing here is needed for correctness, and
//! nothing here may make a caller wait.

pub mod lease_digest;
pub mod signals;
pub mod codec;
pub mod mailbox;
pub mod no_peers;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{JobId, Lease, NamespaceId, Progress};

pub use lease_digest::LeaseDigest;
pub use no_peers::NoPeers;
pub use redis::RedisBus;
pub use signals::SignalSet;

/// How long a waiter may go without a look of his own while signals can be missed.
pub const POLL_INTERVAL_UNLINKED: Duration = Duration::from_secs(1);
/// The same while signals arrive.
pub const POLL_INTERVAL_LINKED: Duration = Duration::from_secs(5);

/// Something other nodes may want to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<'a> {
    /// So many more jobs of this queue are eligible, or may go out since others ended.
    QueueHas { namespace: NamespaceId, queue: &'a str, count: u32 },
    /// Settings, pause, hold, deletion: whatever its waiters know may be wrong.
    QueueChanged { namespace: NamespaceId, queue: &'a str },
    /// The result of a call was lost: any queue of this namespace may have changed.
    NamespaceChanged(NamespaceId),
    /// A job has a new version.
    JobChanged(JobId),
    /// A key was made or revoked.
    KeysChanged,
    /// There may be an operation to carry on.
    OperationStarted,
    /// Anything may have changed.
    Everything,
}

/// A worker that a node has seen, in a form that only the engine reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerValue {
    /// Names it among those of its namespace.
    pub id: u64,
    pub bytes: Vec<u8>,
}

/// How the link to the other nodes does, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLink {
    pub is_connected: bool,
    /// Messages sent; one carries many signals.
    pub sent: u64,
    /// Messages of other nodes.
    pub received: u64,
    /// Messages that made no sense and were dropped.
    pub garbage: u64,
}

/// The port to the other nodes of a store.
#[async_trait]
pub trait PeerBus: Send + Sync {
    /// Sends a signal to the other nodes, soon and without a guarantee. Never blocks and never fails; free where there
    /// are no other nodes.
    fn publish(&self, signal: Signal<'_>);

    /// Keeps how far a job has come where the other nodes find it, soon and perhaps; the latest report counts.
    fn report(&self, id: JobId, lease: Lease, progress: &Arc<Progress>);

    /// The latest progress of a job that a node has published, and its lease. `None` where there is none or the bus
    /// cannot be asked; never makes a caller wait for long.
    async fn progress(&self, id: JobId) -> Option<(LeaseDigest, Progress)>;

    /// Keeps a worker where the other nodes find it, soon and perhaps.
    fn announce_worker(&self, _namespace: NamespaceId, _worker: WorkerValue) {}

    /// The workers of a namespace that nodes have announced. Empty where the bus cannot be asked; never makes a caller wait
    /// for long.
    async fn workers(&self, _namespace: NamespaceId) -> Vec<WorkerValue> {
        Vec::new()
    }

    /// Deletes announced workers, if it can.
    async fn forget_workers(&self, _namespace: NamespaceId, _ids: &[u64]) {}

    /// Signals of other nodes since the last call; waits for the first. Also returns "everything" when signals may have
    /// been missed. For one caller; cancel-safe.
    async fn recv(&self) -> SignalSet;

    /// How long a waiter may sleep without looking for himself; `None` when no other node shares the store. It moves
    /// between values, but whether there is one stays.
    fn poll_interval(&self) -> Option<Duration>;

    /// `None` when there is no link to have.
    fn link(&self) -> Option<PeerLink>;

    /// Ends what runs in the background. Later signals are dropped.
    async fn close(&self);
}
