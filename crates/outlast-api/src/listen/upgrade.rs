//! Handling of a connection after a "101 Switching Protocols": the answer carries it, and it runs in the connection's
//! own task, so that the bounds on connections and the wait at the end hold for it as for any other.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;

/// A connection that speaks HTTP no more.
pub(crate) struct Upgraded {
    pub(crate) stream: TcpStream,
    /// Bytes that the client sent after its request.
    pub(crate) read: Bytes,
    /// How long the other side may take nothing of what is to be written.
    pub(crate) write_idle: Duration,
}

type UpgradeTask = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// An extension of an answer. Extensions must be cloneable; the first caller of `take` gets the value.
#[derive(Clone)]
pub(crate) struct Upgrade(Arc<Mutex<Option<UpgradeTask>>>);

impl Upgrade {
    pub(crate) fn new<F>(run: impl FnOnce(Upgraded) -> F + Send + 'static) -> Upgrade
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Upgrade(Arc::new(Mutex::new(Some(Box::new(|upgraded| Box::pin(run(upgraded)))))))
    }

    fn take(&self) -> Option<UpgradeTask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where a connection keeps what it will become.
#[derive(Clone, Default)]
pub(super) struct PendingUpgrade(Arc<Mutex<Option<UpgradeTask>>>);

impl PendingUpgrade {
    pub(super) fn note(&self, answer: &http::Extensions) {
        if let Some(run) = answer.get::<Upgrade>().and_then(Upgrade::take) {
            *self.lock() = Some(run);
        }
    }

    pub(super) fn take(&self) -> Option<UpgradeTask> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<UpgradeTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
