//! The room of feeds: streams of a job's log and of a queue's changes, for readers that stay connected.

pub mod stream;
pub(crate) mod log_tail;
pub(crate) mod progress_feed;
pub mod queue_feed;

use std::sync::Arc;

use outlast_core::Clock;
use outlast_store::JobStore;
use outlast_store::peer_bus::PeerBus;

use crate::announcer::Announcer;
use crate::engine::Parts;
use crate::jobs::Jobs;
use crate::lifecycle::Lifecycle;
use crate::random::Random;
use crate::work::Work;

pub struct Feeds {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) peer_bus: Arc<dyn PeerBus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) work: Arc<Work>,
}

impl Feeds {
    pub(crate) fn new(parts: &Parts, jobs: &Arc<Jobs>, work: &Arc<Work>) -> Feeds {
        let Parts { store, peer_bus, clock, random, announcer, lifecycle, .. } = parts.clone();
        let (jobs, work) = (Arc::clone(jobs), Arc::clone(work));
        Feeds { store, peer_bus, clock, random, announcer, lifecycle, jobs, work }
    }
}
