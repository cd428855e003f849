//! What the service says about itself: counters, failed loops, damage, the link to other nodes. For `/readyz` and `/metrics`.

use std::sync::Arc;

use outlast_store::damage::Damage;
use outlast_store::live::{Link, Live};
use outlast_store::{Error, JobStore};

use crate::counters::Counters;
use crate::lifecycle::Lifecycle;
use crate::supervisor::Supervisor;

pub struct Status {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) live: Arc<dyn Live>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub counters: Arc<Counters>,
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
    pub fn link(&self) -> Option<Link> {
        self.live.link()
    }

    /// Damage that this process has found.
    pub fn damage(&self) -> Damage {
        self.store.damage()
    }

    /// Does the store answer a write?
    pub async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
    }
}
