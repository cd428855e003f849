//! What the service says about itself: counters, failed loops, damage, the link to other nodes. For `/readyz` and `/metrics`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use outlast_core::NamespaceId;
use outlast_store::damage::Damage;
use outlast_store::histogram::Histogram;
use outlast_store::peer_bus::{PeerBus, PeerLink};
use outlast_store::{Error, JobStore};

use crate::counters::Counters;
use crate::keys::scope::DEFAULT_NAMESPACE;
use crate::lifecycle::Lifecycle;
use crate::supervisor::Supervisor;

pub struct Status {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) peer_bus: Arc<dyn PeerBus>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub counters: Arc<Counters>,
    /// Filled as metrics ask for them. Namespaces are never renamed.
    pub(crate) namespace_names: RwLock<HashMap<NamespaceId, Arc<str>>>,
}

impl Status {
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }

    /// Loops that have panicked and wait for their restart.
    pub fn stopped_loops(&self) -> Vec<&'static str> {
        self.supervisor.stopped()
    }

    /// How the link to other nodes does; `None` where there is none.
    pub fn link(&self) -> Option<PeerLink> {
        self.peer_bus.link()
    }

    /// Damage that this process has found.
    pub fn damage(&self) -> Damage {
        self.store.damage()
    }

    /// Does the store answer a write?
    pub async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
    }

    /// How long commits of this process took, syncs included.
    pub fn commit_times(&self) -> Option<Arc<Histogram>> {
        self.store.commit_times()
    }

    /// The names of these namespaces. One that no key was ever made for has none.
    pub async fn namespace_names(
        &self,
        wanted: impl Iterator<Item = NamespaceId>,
    ) -> Result<HashMap<NamespaceId, Arc<str>>, Error> {
        let names = self.namespace_names.read().unwrap_or_else(PoisonError::into_inner).clone();
        if wanted.into_iter().all(|namespace| names.contains_key(&namespace)) {
            return Ok(names);
        }
        let default = self.store.namespace(DEFAULT_NAMESPACE).await?;
        let keys = self.store.keys().await?;
        let mut names = self.namespace_names.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(default, DEFAULT_NAMESPACE.into());
        for key in keys {
            names.entry(key.namespace).or_insert_with(|| key.namespace_name.into());
        }
        Ok(names.clone())
    }
}
