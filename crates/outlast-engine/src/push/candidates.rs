//! Queues that were made or changed, or that got jobs from a state change: each may need a dispatcher.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use outlast_core::NamespaceId;
use tokio::sync::Notify;

use super::QueueName;

#[derive(Default)]
pub(crate) struct PushCandidates {
    names: Mutex<BTreeSet<QueueName>>,
    added: Notify,
}

impl PushCandidates {
    pub(crate) fn add(&self, namespace: NamespaceId, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert((namespace, name.into()));
        self.added.notify_one();
    }

    pub(super) fn take(&self) -> BTreeSet<QueueName> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends when there is something to take. Cancel-safe.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }
}
