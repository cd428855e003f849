//! The room of inbound events: what the configuration file declares, and the events of providers that become jobs. Its modules
//! check a webhook's signature and read it; they are pure: no IO, and time is an argument.

pub mod verify;
pub mod provider;
pub mod catalog;
pub mod ingest;
mod media;

use std::sync::Arc;

use outlast_core::Clock;
use outlast_store::JobStore;
use tokio::sync::watch;

use self::catalog::Catalog;
use crate::announcer::Announcer;
use crate::detached::DetachedCalls;
use crate::engine::Parts;
use crate::jobs::Jobs;

pub struct Inbound {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) detached: Arc<DetachedCalls>,
    pub(crate) jobs: Arc<Jobs>,
    /// What the configuration file declares; shared with the keys, since the file may declare keys of queues.
    pub(crate) catalog: watch::Sender<Arc<Catalog>>,
}

impl Inbound {
    pub(crate) fn new(parts: &Parts, jobs: &Arc<Jobs>, catalog: watch::Sender<Arc<Catalog>>) -> Inbound {
        let Parts { store, clock, announcer, detached, .. } = parts.clone();
        Inbound { store, clock, announcer, detached, jobs: Arc::clone(jobs), catalog }
    }

    /// What the file declares takes the place of what it declared before.
    pub fn declare(&self, catalog: Catalog) {
        self.catalog.send_replace(Arc::new(catalog));
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }
}
