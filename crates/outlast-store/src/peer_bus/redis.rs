//! Nodes tell each other through one pub/sub channel of a Redis server. Nothing is kept there but the progress of running
//! jobs, for minutes, and nothing is believed: what is read is untrusted input, and a Redis that is down, slow or empty
//! costs time, never a job.
//!
//! Signals gather in a mailbox; a task of its own sends them in few messages and reconnects for ever. While it is not
//! connected, everybody polls (`floor`), and after each change of that everybody looks once.

mod session;
mod progress_outbox;
mod progress_kv;
mod worker_kv;
pub mod inspect;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{JobId, Lease, NamespaceId, Progress};
use redis::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::progress_kv::ProgressKv;
use self::progress_outbox::ProgressOutbox;
use self::worker_kv::WorkerKv;
use super::mailbox::Mailbox;
use super::{
    LeaseDigest, POLL_INTERVAL_LINKED, POLL_INTERVAL_UNLINKED, PeerBus, PeerLink, Signal, SignalSet, WorkerValue,
};

/// The first wait before connecting again; doubles up to the longest.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the workers of other nodes.
const WORKERS_MAX: Duration = Duration::from_millis(500);

/// Why there is no link. Never holds the URL, which may have a password in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the Redis URL cannot be read: {0}")]
    Url(redis::RedisError),
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("messages do not come back")]
    Silent,
}

pub struct BusOptions {
    /// `redis://` or `rediss://`, with user and password where needed.
    pub url: String,
    /// Which store this is about. Stores that share a Redis do not hear each other.
    pub store: u64,
    /// This node, by a random number: its own messages are not news to it.
    pub node: u64,
}

/// The link of one node.
pub struct RedisBus {
    state: Arc<BusState>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// State that the task and its owner share.
struct BusState {
    node: u64,
    channel: String,
    outbox: Mailbox,
    inbox: Mailbox,
    progress_outbox: ProgressOutbox,
    kv: ProgressKv,
    worker_kv: WorkerKv,
    is_connected: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    garbage: AtomicU64,
}

impl RedisBus {
    /// Starts to connect, and goes on with it for ever. Fails only on a URL that makes no sense.
    pub fn start(options: BusOptions) -> Result<RedisBus, Error> {
        let client = Client::open(options.url).map_err(Error::Url)?;
        let state = Arc::new(BusState {
            node: options.node,
            channel: channel(options.store),
            outbox: Mailbox::default(),
            inbox: Mailbox::default(),
            progress_outbox: ProgressOutbox::default(),
            kv: ProgressKv::of(options.store),
            worker_kv: WorkerKv::of(options.store),
            is_connected: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            garbage: AtomicU64::new(0),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keep_connected(Arc::clone(&state), client, stopped));
        Ok(RedisBus { state, stop, task: Mutex::new(Some(task)) })
    }
}

#[async_trait]
impl PeerBus for RedisBus {
    fn publish(&self, signal: Signal<'_>) {
        if let Signal::JobChanged(id) = signal {
            self.state.progress_outbox.hurry(id);
        }
        self.state.outbox.add(signal);
    }

    fn report(&self, id: JobId, lease: Lease, progress: &Arc<Progress>) {
        self.state.progress_outbox.add(id, lease, progress);
    }

    async fn progress(&self, id: JobId) -> Option<(LeaseDigest, Progress)> {
        let told = self.state.kv.find(id).await?;
        Some((told.hand_out, Arc::unwrap_or_clone(told.progress)))
    }

    fn announce_worker(&self, namespace: NamespaceId, worker: WorkerValue) {
        self.state.worker_kv.add(namespace, worker);
    }

    async fn workers(&self, namespace: NamespaceId) -> Vec<WorkerValue> {
        let Some(mut connection) = self.state.kv.connection() else {
            return Vec::new();
        };
        let found = timeout(WORKERS_MAX, self.state.worker_kv.find(&mut connection, namespace)).await;
        found.ok().and_then(Result::ok).unwrap_or_default()
    }

    async fn forget_workers(&self, namespace: NamespaceId, ids: &[u64]) {
        if let Some(mut connection) = self.state.kv.connection() {
            // A worker that stays is deleted by the next reader.
            let _ = timeout(WORKERS_MAX, self.state.worker_kv.forget(&mut connection, namespace, ids)).await;
        }
    }

    async fn recv(&self) -> SignalSet {
        self.state.inbox.wait().await;
        self.state.inbox.take()
    }

    fn poll_interval(&self) -> Option<Duration> {
        let is_connected = self.state.is_connected.load(Ordering::SeqCst);
        Some(if is_connected { POLL_INTERVAL_LINKED } else { POLL_INTERVAL_UNLINKED })
    }

    fn link(&self) -> Option<PeerLink> {
        let state = &self.state;
        Some(PeerLink {
            is_connected: state.is_connected.load(Ordering::SeqCst),
            sent: state.sent.load(Ordering::Relaxed),
            received: state.received.load(Ordering::Relaxed),
            garbage: state.garbage.load(Ordering::Relaxed),
        })
    }

    async fn close(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A panic in the task has been printed; there is nothing left to wait for.
            let _ = task.await;
        }
        self.state.is_connected.store(false, Ordering::SeqCst);
    }
}

/// The name holds a number in hexadecimal and no text of a user, so that a user cannot make a name with another
/// meaning.
fn channel(store: u64) -> String {
    format!("outlast:live:{store:016x}")
}

async fn keep_connected(state: Arc<BusState>, client: Client, mut stopped: watch::Receiver<bool>) {
    let mut backoff = BACKOFF_MIN;
    // Logged at a change only; a Redis that stays away is one line, not one each second.
    let mut is_known_lost = false;
    while !*stopped.borrow() {
        let lost = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            error = state.session(&client) => error,
        };
        if state.is_connected.load(Ordering::SeqCst) {
            is_known_lost = false;
            backoff = BACKOFF_MIN;
        }
        state.disconnected();
        if !is_known_lost {
            is_known_lost = true;
            tracing::warn!(error = %lost, "redis is away; nodes poll until it is back");
        }
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            () = sleep(spread(backoff, state.node)) => {}
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
    tracing::debug!("the link to redis has ended");
}

/// From half of the wait to all of it, by node: those who lost it together do not come back together.
fn spread(wait: Duration, node: u64) -> Duration {
    let share = u32::try_from(node % 512).unwrap_or(0);
    wait / 2 + wait * share / 1024
}

impl BusState {
    fn connected(&self) {
        self.is_connected.store(true, Ordering::SeqCst);
        // Signals of other nodes were missed meanwhile.
        self.inbox.add(Signal::Everything);
        tracing::info!("redis is connected");
    }

    fn disconnected(&self) {
        self.kv.disconnect();
        // Signals sent while disconnected are lost, so peers re-check everything on reconnect.
        self.outbox.add(Signal::Everything);
        if self.is_connected.swap(false, Ordering::SeqCst) {
            // Those who sleep by the longer floor look, and go on by the shorter one.
            self.inbox.add(Signal::Everything);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_named_by_a_number_of_fixed_length() {
        assert_eq!(channel(0), "outlast:live:0000000000000000");
        assert_eq!(channel(u64::MAX), "outlast:live:ffffffffffffffff");
    }

    #[test]
    fn nodes_spread_over_the_second_half_of_a_wait() {
        let wait = Duration::from_secs(2);

        assert_eq!(spread(wait, 0), Duration::from_secs(1));
        for node in 0..2000 {
            assert!((Duration::from_secs(1)..wait).contains(&spread(wait, node)), "{node}");
        }
        assert_ne!(spread(wait, 1), spread(wait, 2));
    }

    #[test]
    fn a_url_that_cannot_be_read_is_refused_without_being_shown() {
        for url in ["redis://user:hunter2@[", "hunter2", "http://hunter2"] {
            let error = match RedisBus::start(BusOptions { url: url.to_owned(), store: 1, node: 1 }) {
                Ok(_) => panic!("{url} was taken"),
                Err(error) => error,
            };
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
