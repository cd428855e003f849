//! The engine: builds the rooms from their ports, and starts and stops the loops.

use std::ops::Deref;
use std::sync::{Arc, RwLock};

use outlast_core::{Clock, Entropy};
use outlast_store::JobStore;
use outlast_store::blobs::Blobs;
use outlast_store::peer_bus::PeerBus;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::announcer::Announcer;
use crate::counters::Counters;
use crate::detached::DetachedCalls;
use crate::egress::Egress;
use crate::feeds::Feeds;
use crate::inbound::Inbound;
use crate::inbound::catalog::Catalog;
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::lifecycle::Lifecycle;
use crate::notifier::Notifier;
use crate::objects::Objects;
use crate::pause_detector::PauseDetector;
use crate::peers::Peers;
use crate::push::{Push, PushSettings};
use crate::queues::Queues;
use crate::random::Random;
use crate::seal::Seal;
use crate::status::Status;
use crate::supervisor::Supervisor;
use crate::sweep::Sweep;
use crate::work::Work;
use crate::workers::Workers;

/// Cheap to clone; all clones are the same engine. Derefs to its rooms.
#[derive(Clone)]
pub struct Engine {
    rooms: Arc<Rooms>,
    loops: Arc<LoopParts>,
}

/// The verbs of the service. Each room has its own state and the ports it needs.
pub struct Rooms {
    pub jobs: Arc<Jobs>,
    pub queues: Arc<Queues>,
    pub work: Arc<Work>,
    pub objects: Arc<Objects>,
    pub feeds: Arc<Feeds>,
    pub push: Arc<Push>,
    pub inbound: Arc<Inbound>,
    pub keys: Arc<Keys>,
    pub workers: Workers,
    pub status: Status,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Random>,
}

/// Everything outside of itself that the engine uses.
pub struct Ports {
    pub store: Arc<dyn JobStore>,
    pub peer_bus: Arc<dyn PeerBus>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Box<dyn Entropy + Send>,
    pub egress: Arc<dyn Egress>,
    pub blobs: Arc<Blobs>,
    /// For secrets that are stored.
    pub seal: Seal,
}

/// The parts that several rooms share; each room takes those it needs.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) peer_bus: Arc<dyn PeerBus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) detached: Arc<DetachedCalls>,
    pub(crate) pause_detector: Arc<PauseDetector>,
    /// Other nodes work on the same store.
    pub(crate) is_shared: bool,
}

/// What the engine itself needs to start and stop its loops.
struct LoopParts {
    sweep: Arc<Sweep>,
    peers: Arc<Peers>,
    supervisor: Arc<Supervisor>,
    announcer: Arc<Announcer>,
    lifecycle: Arc<Lifecycle>,
    detached: Arc<DetachedCalls>,
    is_shared: bool,
}

/// The running loops; the caller that started them waits for them.
pub struct Loops {
    tasks: Vec<JoinHandle<()>>,
    detached: Arc<DetachedCalls>,
}

impl Loops {
    /// Waits until all loops have ended, and every call whose caller has disconnected; [`Engine::stop`] ends the loops.
    pub async fn finish(self) {
        for task in self.tasks {
            // A panic of a loop never reaches its task: the supervisor catches it.
            let _ = task.await;
        }
        self.detached.finish().await;
    }
}

impl Parts {
    fn new(ports: Ports) -> Parts {
        let Ports { store, peer_bus, clock, entropy, seal, .. } = ports;
        let (counters, is_shared) = (Arc::new(Counters::default()), peer_bus.poll_interval().is_some());
        let notifier = Notifier::new(Arc::clone(&peer_bus));
        Parts {
            announcer: Arc::new(Announcer::new(notifier, Arc::clone(&counters), Arc::clone(&clock))),
            store,
            peer_bus,
            clock,
            random: Arc::new(Random::new(entropy)),
            seal: Arc::new(seal),
            counters,
            lifecycle: Arc::default(),
            detached: Arc::default(),
            pause_detector: Arc::new(PauseDetector::new(is_shared)),
            is_shared,
        }
    }
}

impl Engine {
    pub fn new(ports: Ports, push: PushSettings) -> Engine {
        let (egress, blobs) = (Arc::clone(&ports.egress), Arc::clone(&ports.blobs));
        let parts = Parts::new(ports);
        let supervisor = Arc::new(Supervisor::new(Arc::clone(&parts.counters), Arc::clone(&parts.lifecycle)));
        let rooms = Rooms::new(&parts, egress, blobs, push, Arc::clone(&supervisor));
        let Parts { store, peer_bus, clock, random, announcer, lifecycle, detached, pause_detector, is_shared, .. } =
            parts;
        let peers = Arc::new(Peers {
            peer_bus,
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            announcer: Arc::clone(&announcer),
            lifecycle: Arc::clone(&lifecycle),
            keys: Arc::clone(&rooms.keys),
        });
        let sweep = Arc::new(Sweep {
            store,
            clock,
            random,
            announcer: Arc::clone(&announcer),
            lifecycle: Arc::clone(&lifecycle),
            supervisor: Arc::clone(&supervisor),
            pause_detector,
            jobs: Arc::clone(&rooms.jobs),
            objects: Arc::clone(&rooms.objects),
            inbound: Arc::clone(&rooms.inbound),
            is_shared,
        });
        let loops = LoopParts { sweep, peers, supervisor, announcer, lifecycle, detached, is_shared };
        Engine { rooms: Arc::new(rooms), loops: Arc::new(loops) }
    }

    /// The rooms alone, for code that must not start or stop the engine.
    pub fn rooms(&self) -> &Arc<Rooms> {
        &self.rooms
    }

    /// Starts the loops: alarms, deliveries and queue feeds; where nodes share the store, also those that follow other nodes.
    pub fn start(&self) -> Loops {
        let LoopParts { sweep, peers, supervisor, detached, .. } = &*self.loops;
        let mut tasks = vec![
            supervisor.supervise("alarms", sweep, Sweep::run),
            supervisor.supervise("deliveries", &self.push, Push::run),
            supervisor.supervise("queue feeds", &self.feeds, Feeds::run_queue_feeds),
        ];
        if self.loops.is_shared {
            tasks.push(supervisor.supervise("peer signals", peers, Peers::run_signals));
            tasks.push(supervisor.supervise("peer patrol", peers, Peers::run_polling));
            tasks.push(supervisor.supervise("key loading", &self.keys, Keys::run_loading));
        }
        Loops { tasks, detached: Arc::clone(detached) }
    }

    /// No new hand-outs from here on; a waiting receive gets an empty answer.
    pub fn drain(&self) {
        self.loops.lifecycle.drain();
        self.loops.announcer.notifier.wake_everyone();
        self.loops.announcer.notifier.queue_feeds().close();
    }

    /// The clock is moved by hand from here on: a jump is no outage.
    pub fn expect_jumps(&self) {
        self.loops.sweep.pause_detector.switch_off();
    }

    /// The clock has jumped: alarms may be due, and waiting requests look again.
    pub fn clock_jumped(&self) {
        self.loops.announcer.alarms.look_now();
        self.loops.announcer.notifier.wake_everyone();
    }

    /// Ends the loops after their present step.
    pub fn stop(&self) {
        self.drain();
        self.loops.lifecycle.stop();
    }
}

impl Deref for Engine {
    type Target = Rooms;

    fn deref(&self) -> &Rooms {
        &self.rooms
    }
}

impl Rooms {
    fn new(
        parts: &Parts,
        egress: Arc<dyn Egress>,
        blobs: Arc<Blobs>,
        push: PushSettings,
        supervisor: Arc<Supervisor>,
    ) -> Rooms {
        let jobs = Arc::new(Jobs::new(parts));
        let queues = Arc::new(Queues::new(parts));
        let work = Arc::new(Work::new(parts, &jobs));
        let catalog = watch::Sender::new(Arc::new(Catalog::nothing()));
        let Parts { store, peer_bus, clock, random, lifecycle, counters, .. } = parts.clone();
        Rooms {
            objects: Arc::new(Objects::new(parts, blobs, &jobs, &work)),
            feeds: Arc::new(Feeds::new(parts, &jobs, &work)),
            push: Arc::new(Push::new(parts, egress, &jobs, &queues, push)),
            keys: Arc::new(Keys::new(parts, catalog.subscribe())),
            workers: Workers::new(parts),
            inbound: Arc::new(Inbound::new(parts, &jobs, catalog)),
            status: Status { store, peer_bus, lifecycle, supervisor, counters, namespace_names: RwLock::default() },
            jobs,
            queues,
            work,
            clock,
            random,
        }
    }
}
