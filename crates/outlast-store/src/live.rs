//! What nodes tell each other: wake-ups, changed keys, operations to carry on, how far work has come. Lossy by design: a node that hears nothing
//! looks for itself within [`Live::floor`], so nothing here is needed for correctness, and nothing here may make a caller
//! wait.

pub mod hand_out;
pub mod news;
pub mod codec;
pub mod mailbox;
pub mod alone;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{JobId, Lease, NamespaceId, Progress};

pub use alone::Alone;
pub use hand_out::HandOut;
pub use news::News;
pub use redis::RedisLive;

/// How long a waiter may go without a look of his own while signals can be missed.
pub const FLOOR_ALONE: Duration = Duration::from_secs(1);
/// The same while signals arrive.
pub const FLOOR_LINKED: Duration = Duration::from_secs(5);

/// Something other nodes may want to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<'a> {
    /// So many more jobs of this queue are eligible, or may go out since others ended.
    QueueHas { namespace: NamespaceId, queue: &'a str, count: u32 },
    /// Settings, pause, hold, deletion: whatever its waiters know may be wrong.
    QueueChanged { namespace: NamespaceId, queue: &'a str },
    /// A call ended unheard: any queue of this namespace may have changed.
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

/// How the link to the other nodes does, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
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
pub trait Live: Send + Sync {
    /// Tells the other nodes, soon and perhaps. Never blocks and never fails; costs nothing where there is nobody to tell.
    fn tell(&self, signal: Signal<'_>);

    /// Keeps how far a job has come where the other nodes find it, soon and perhaps; the latest report counts.
    fn report(&self, id: JobId, lease: Lease, progress: &Arc<Progress>);

    /// How far a job has come, as some node was told of late, and in which hand-out. `None` where nobody knows or nobody
    /// can be asked; never makes a caller wait for long.
    async fn progress(&self, id: JobId) -> Option<(HandOut, Progress)>;

    /// What other nodes have told since the last call; waits for the first of it. Also says "everything" when signals may
    /// have been missed. For one listener; cancel-safe.
    async fn heard(&self) -> News;

    /// How long a waiter may sleep without looking for himself; `None` when no other node shares the store. It moves
    /// between values, but whether there is one stays.
    fn floor(&self) -> Option<Duration>;

    /// `None` when there is no link to have.
    fn link(&self) -> Option<Link>;

    /// Ends what runs in the background. Later signals are dropped.
    async fn close(&self);
}
