//! Connections that wait for the next request to the same origin. They are young, few and looked at before they are given
//! out; a connection that is too old is dropped, and the next one resolves and checks again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::target::Origin;

/// Since it was opened: after this long a name may lead elsewhere.
const LIFE: Duration = Duration::from_secs(60);
const IDLE_PER_ORIGIN_MAX: usize = 256;
/// An idle connection is a socket and some tens of KiB.
const IDLE_MAX: usize = 1024;
/// How long a connection may stay beyond its time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_origin: HashMap<Arc<Origin>, Vec<Waiting>>,
    count: usize,
    /// Runs while there are idle connections.
    sweeper: Option<AbortHandle>,
}

struct Waiting {
    connection: Connection,
    since: Instant,
}

impl Waiting {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < self.connection.idle_max && now.duration_since(self.connection.since) < LIFE
    }
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool(Arc::new(Shared { idle: Mutex::new(Idle::default()) }))
    }

    /// The connection that was used last, if the other side has not closed it.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let now = Instant::now();
        loop {
            let waiting = self.0.lock().pop(origin)?;
            let is_fresh = waiting.is_fresh(now);
            let mut connection = waiting.connection;
            if is_fresh && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Keeps the connection for the next request, if it can take one and there is room.
    pub(super) fn put(&self, origin: &Arc<Origin>, mut connection: Connection) {
        let now = Instant::now();
        if !connection.is_usable() || now.duration_since(connection.since) >= LIFE {
            return;
        }
        let mut idle = self.0.lock();
        if idle.count >= IDLE_MAX {
            return;
        }
        let line = idle.by_origin.entry(Arc::clone(origin)).or_default();
        if line.len() >= IDLE_PER_ORIGIN_MAX {
            return;
        }
        line.push(Waiting { connection, since: now });
        idle.count += 1;
        if idle.sweeper.is_none() {
            idle.sweeper = Some(tokio::spawn(sweep(Arc::downgrade(&self.0))).abort_handle());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn pop(&mut self, origin: &Origin) -> Option<Waiting> {
        let line = self.by_origin.get_mut(origin)?;
        let waiting = line.pop();
        if line.is_empty() {
            self.by_origin.remove(origin);
        }
        self.count -= usize::from(waiting.is_some());
        waiting
    }

    fn drop_old(&mut self, now: Instant) {
        for line in self.by_origin.values_mut() {
            line.retain(|waiting| waiting.is_fresh(now));
        }
        self.by_origin.retain(|_, line| !line.is_empty());
        self.count = self.by_origin.values().map(Vec::len).sum();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(sweeper) = self.lock().sweeper.take() {
            sweeper.abort();
        }
    }
}

/// Closes connections whose time is over although nobody asks for them. Ends with the last of them, or with the pool.
async fn sweep(pool: Weak<Shared>) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        idle.drop_old(Instant::now());
        if idle.count == 0 {
            idle.sweeper = None;
            return;
        }
    }
}
