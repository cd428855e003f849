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

use crate::detached::DetachedCalls;
use crate::egress::{Egress, RefusedUrl};
use crate::inbound::declared::Declared;
use crate::keys::Keys;
use crate::looks::Looks;
use crate::meters::Meters;
use crate::outage::Signs;
use crate::push::{Push, PushSettings};
use crate::reports::Reports;
use crate::seal::Seal;
use crate::supervisor::Supervisor;
use crate::sweep::Sweep;
use crate::wakes::Wakes;

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
    pub(crate) wakes: Wakes,
    pub(crate) sweep: Sweep,
    pub(crate) signs: Signs,
    pub(crate) keys: Keys,
    pub(crate) meters: Meters,
    /// What the configuration file declares.
    pub(crate) declared: RwLock<Arc<Declared>>,
    pub(crate) reports: Reports,
    pub(crate) push: Push,
    /// Calls whose caller has gone.
    pub(crate) detached: Arc<DetachedCalls>,
    /// Objects were announced or doomed since this process began.
    pub(crate) has_objects: AtomicBool,
    /// Single jobs that are being read.
    pub(crate) looks: Looks<JobId, Result<Option<Found>, Error>>,
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
            wakes: Wakes::new(Arc::clone(&live)),
            live,
            egress,
            blobs,
            seal,
            clock,
            entropy: std::sync::Mutex::new(entropy),
            push: Push::new(push),
            sweep: Sweep::default(),
            signs: Signs::default(),
            keys: Keys::default(),
            meters: Meters::default(),
            declared: RwLock::new(Arc::new(Declared::nothing())),
            reports: Reports::default(),
            detached: Arc::default(),
            has_objects: AtomicBool::new(false),
            looks: Looks::default(),
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
            self.supervise("queue feeds", Engine::run_boards),
        ];
        if self.is_shared() {
            loops.push(self.supervise("peer signals", Engine::run_hearing));
            loops.push(self.supervise("peer patrol", Engine::run_patrol));
            loops.push(self.supervise("key loading", Engine::run_key_loading));
        }
        Loops { tasks: loops, detached: Arc::clone(&self.shared.detached) }
    }

    /// No new hand-outs from here on; those who wait for one get an empty answer.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.wakes.wake_everyone();
        self.shared.wakes.boards().close();
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

    pub fn meters(&self) -> &Meters {
        &self.shared.meters
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
