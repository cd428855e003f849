//! The engine: what all verbs share, and the start and stop of its loops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use outlast_core::{Clock, Entropy, JobId, Timestamp};
use outlast_store::blobs::Blobs;
use outlast_store::jobs::Found;
use outlast_store::live::{Link, Live};
use outlast_store::{Error, JobStore};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::counters::Counters;
use crate::detached::DetachedCalls;
use crate::egress::{Egress, RefusedUrl};
use crate::inbound::catalog::Catalog;
use crate::keys::Keys;
use crate::notifier::Notifier;
use crate::pause_detector::PauseDetector;
use crate::progress_cache::ProgressCache;
use crate::push::{Push, PushSettings};
use crate::seal::Seal;
use crate::single_flight::SingleFlight;
use crate::supervisor::Supervisor;
use crate::sweep::Sweep;

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) live: Arc<dyn Live>,
    pub(crate) egress: Arc<dyn Egress>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) seal: Seal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: std::sync::Mutex<Box<dyn Entropy + Send>>,
    pub(crate) notifier: Notifier,
    pub(crate) sweep: Sweep,
    pub(crate) pause_detector: PauseDetector,
    pub(crate) keys: Keys,
    pub(crate) counters: Counters,
    /// What the configuration file declares.
    pub(crate) declared: RwLock<Arc<Catalog>>,
    pub(crate) progress: ProgressCache,
    pub(crate) push: Push,
    /// Calls whose caller has gone.
    pub(crate) detached: Arc<DetachedCalls>,
    /// Objects were announced or doomed since this process began.
    pub(crate) has_objects: AtomicBool,
    /// Single jobs that are being read.
    pub(crate) job_reads: SingleFlight<JobId, Result<Option<Found>, Error>>,
    pub(crate) supervisor: Supervisor,
    draining: AtomicBool,
    /// Turns true once, when the engine stops.
    stop: watch::Sender<bool>,
}

/// Everything the engine has to do with outside of itself.
pub struct Ports {
    pub store: Arc<dyn JobStore>,
    pub live: Arc<dyn Live>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Box<dyn Entropy + Send>,
    pub egress: Arc<dyn Egress>,
    pub blobs: Arc<Blobs>,
    /// For secrets that are stored.
    pub seal: Seal,
}

/// The engine's loops, for whoever started them to wait for.
pub struct Loops {
    tasks: Vec<JoinHandle<()>>,
    detached: Arc<DetachedCalls>,
}

impl Loops {
    /// Waits until all loops have ended, and every call whose caller has gone; [`Engine::stop`] ends the loops.
    pub async fn finish(self) {
        for task in self.tasks {
            // A panic of a loop never reaches its task: the supervisor catches it.
            let _ = task.await;
        }
        self.detached.finish().await;
    }
}

impl Engine {
    pub fn new(ports: Ports, push: PushSettings) -> Engine {
        let Ports { store, live, clock, entropy, egress, blobs, seal } = ports;
        let shared = Shared {
            store,
            notifier: Notifier::new(Arc::clone(&live)),
            live,
            egress,
            blobs,
            seal,
            clock,
            entropy: std::sync::Mutex::new(entropy),
            push: Push::new(push),
            sweep: Sweep::default(),
            pause_detector: PauseDetector::default(),
            keys: Keys::default(),
            counters: Counters::default(),
            declared: RwLock::new(Arc::new(Catalog::nothing())),
            progress: ProgressCache::default(),
            detached: Arc::default(),
            has_objects: AtomicBool::new(false),
            job_reads: SingleFlight::default(),
            supervisor: Supervisor::default(),
            draining: AtomicBool::new(false),
            stop: watch::channel(false).0,
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Starts the loops: alarms, deliveries and queue feeds; where nodes share the store, also those that learn what others did.
    pub fn start(&self) -> Loops {
        let mut loops = vec![
            self.supervise("alarms", Engine::run_sweep),
            self.supervise("deliveries", Engine::run_push),
            self.supervise("queue feeds", Engine::run_queue_feeds),
        ];
        if self.is_shared() {
            loops.push(self.supervise("peer signals", Engine::run_peer_signals));
            loops.push(self.supervise("peer patrol", Engine::run_peer_poll));
            loops.push(self.supervise("key loading", Engine::run_key_loading));
        }
        Loops { tasks: loops, detached: Arc::clone(&self.shared.detached) }
    }

    /// No new hand-outs from here on; those who wait for one get an empty answer.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.notifier.wake_everyone();
        self.shared.notifier.queue_feeds().close();
    }

    /// Ends the loops after their present step.
    pub fn stop(&self) {
        self.drain();
        self.shared.stop.send_replace(true);
    }

    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::SeqCst)
    }

    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// May this URL be stored as a destination?
    pub fn check_url(&self, url: &str) -> Result<(), RefusedUrl> {
        self.shared.egress.check(url)
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// How the link to other nodes does; `None` where there is none.
    pub fn link(&self) -> Option<Link> {
        self.shared.live.link()
    }

    pub fn store(&self) -> &Arc<dyn JobStore> {
        &self.shared.store
    }

    /// Runs a store call together with the announcement of its result. If the caller goes away, it goes on without him.
    pub(crate) async fn commit<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl FnOnce(Engine) -> F,
    ) -> T {
        self.shared.detached.guard(call(self.clone()), drop).await
    }

    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.shared.stop.subscribe()
    }
}
