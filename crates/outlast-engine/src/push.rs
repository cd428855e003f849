//! The room of deliveries: a dispatcher for each queue that delivers. A dispatcher waits for jobs, claims them, and sends each
//! of them on its own. No dispatcher polls: a publish, an alarm or the end of a delivery wakes it.

mod body;
mod breakers;
mod candidates;
mod deliver;
mod dispatcher;
mod endpoint;
mod slots;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, Command, NamespaceId};
use outlast_store::jobs::{JobCommand, Reach};
use outlast_store::{Error, JobStore};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use self::breakers::Breakers;
use self::slots::DeliverySlots;
use crate::announcer::Announcer;
use crate::egress::{Egress, RefusedUrl};
use crate::engine::Parts;
use crate::jobs::Jobs;
use crate::lifecycle::Lifecycle;
use crate::queues::Queues;
use crate::random::Random;

pub(crate) use self::candidates::PushCandidates;

/// The pause after a store error, before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Where nodes share a store, all queues are read this often, should the signal of a new one have been lost.
const LOOK_SHARED: Duration = Duration::from_secs(10);

type QueueName = (NamespaceId, Arc<str>);

#[derive(Clone, Debug)]
pub struct PushSettings {
    /// Put before the paths of this server, in answers and deliveries; empty: they stay paths.
    pub public_url: Arc<str>,
    /// Deliveries under way at once, on this node.
    pub in_flight_max: usize,
    /// Keep the beginning of what endpoints answer with an attempt that failed.
    pub keeps_excerpts: bool,
    /// The longest answer that becomes a result.
    pub result_bytes_max: usize,
}

impl Default for PushSettings {
    fn default() -> PushSettings {
        let public_url = Arc::default();
        PushSettings { public_url, in_flight_max: 1000, keeps_excerpts: true, result_bytes_max: 256 << 10 }
    }
}

pub struct Push {
    store: Arc<dyn JobStore>,
    egress: Arc<dyn Egress>,
    clock: Arc<dyn Clock>,
    random: Arc<Random>,
    announcer: Arc<Announcer>,
    lifecycle: Arc<Lifecycle>,
    jobs: Arc<Jobs>,
    queues: Arc<Queues>,
    settings: PushSettings,
    slots: DeliverySlots,
    breakers: Breakers,
    /// Other nodes work on the same store.
    is_shared: bool,
}

impl Push {
    /// The address that clients know this server by; empty where it was not configured.
    pub fn public_url(&self) -> &str {
        &self.settings.public_url
    }

    pub(crate) fn new(
        parts: &Parts,
        egress: Arc<dyn Egress>,
        jobs: &Arc<Jobs>,
        queues: &Arc<Queues>,
        settings: PushSettings,
    ) -> Push {
        let Parts { store, clock, random, announcer, lifecycle, is_shared, .. } = parts.clone();
        let (jobs, queues) = (Arc::clone(jobs), Arc::clone(queues));
        let (slots, breakers) = (DeliverySlots::new(settings.in_flight_max), Breakers::default());
        Push { store, egress, clock, random, announcer, lifecycle, jobs, queues, settings, slots, breakers, is_shared }
    }

    /// May this URL be stored as a destination?
    pub fn check_url(&self, url: &str) -> Result<(), RefusedUrl> {
        self.egress.check(url)
    }

    /// How many deliveries are under way on this node.
    pub fn deliveries(&self) -> usize {
        self.slots.taken()
    }

    /// Endpoints whose circuit is open on this node.
    pub fn open_breakers(&self) -> usize {
        self.breakers.open(self.clock.now())
    }

    /// Waits until no delivery is under way, at most for `patience`. Makes sense once the engine drains.
    pub async fn settle(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.slots.empty()).await;
    }

    pub(crate) async fn run(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        self.end_interrupted().await;
        let mut dispatchers = Dispatchers::default();
        let mut next_look = after(self.open_all(&mut dispatchers).await);
        while !*stopping.borrow() {
            tokio::select! {
                biased;
                _ = stopping.changed() => {}
                Some(ended) = dispatchers.tasks.join_next_with_id(), if !dispatchers.tasks.is_empty() => {
                    let task = match ended {
                        Ok((task, ())) => task,
                        Err(error) => {
                            tracing::error!(%error, "the dispatcher of a queue panicked; it is started again");
                            self.announcer.counters.loop_failures.add(1);
                            error.id()
                        }
                    };
                    if let Some((namespace, name)) = dispatchers.close(task) {
                        self.announcer.push_candidates.add(namespace, &name);
                    }
                }
                () = self.announcer.push_candidates.added() => {
                    if self.open_candidates(&mut dispatchers).await.is_err() {
                        // The next look is at all queues, these among them.
                        next_look = after(Some(RETRY_PAUSE));
                    }
                }
                () = wait_until(next_look) => next_look = after(self.open_all(&mut dispatchers).await),
            }
        }
        while dispatchers.tasks.join_next().await.is_some() {}
        tracing::debug!("the deliveries have ended");
    }

    /// Starts a dispatcher for every queue that delivers; says when to look again.
    async fn open_all(self: &Arc<Self>, dispatchers: &mut Dispatchers) -> Option<Duration> {
        match self.store.census().await {
            Ok(queues) => {
                for (queue, _) in queues.into_iter().filter(|(queue, _)| queue.settings.is_push()) {
                    dispatchers.open(self, (queue.namespace, queue.name.as_str().into()));
                }
                self.is_shared.then(|| self.random.jitter(LOOK_SHARED))
            }
            Err(Error::Stopped) => None,
            Err(error) => {
                tracing::warn!(%error, retry_in = ?RETRY_PAUSE, "push queues could not be read; trying again");
                Some(RETRY_PAUSE)
            }
        }
    }

    /// Starts a dispatcher for every candidate that delivers and has none.
    async fn open_candidates(self: &Arc<Self>, dispatchers: &mut Dispatchers) -> Result<(), Error> {
        for name in self.announcer.push_candidates.take() {
            if dispatchers.names.contains(&name) || self.lifecycle.is_draining() {
                continue;
            }
            if let Some((queue, _)) = self.store.queue(name.0, &name.1).await?
                && queue.settings.is_push()
            {
                dispatchers.open(self, name);
            }
        }
        Ok(())
    }

    /// Deliveries of a process that has ended: their outcome is unknown, so they are charged and made again.
    async fn end_interrupted(&self) {
        const UNKNOWN: &str = "interrupted deliveries could not be ended; they are retried when their leases run out";
        let jobs = match self.store.interrupted().await {
            Ok(jobs) => jobs,
            Err(error) => return tracing::warn!(%error, "{UNKNOWN}"),
        };
        let order = |id| JobCommand { id, reach: Reach::Everything, command: Command::Abandon };
        let orders: Vec<JobCommand> = jobs.into_iter().map(order).collect();
        if orders.is_empty() {
            return;
        }
        tracing::info!(count = orders.len(), "deliveries were interrupted and will be made again");
        for orders in orders.chunks(1000) {
            if let Err(error) = self.jobs.apply(orders.to_vec()).await {
                tracing::warn!(%error, "{UNKNOWN}");
            }
        }
    }
}

/// The queues that have a dispatcher. It ends by itself when its queue is gone or delivers no more.
#[derive(Default)]
struct Dispatchers {
    names: BTreeSet<QueueName>,
    by_task: HashMap<Id, QueueName>,
    tasks: JoinSet<()>,
}

impl Dispatchers {
    fn open(&mut self, push: &Arc<Push>, name: QueueName) {
        if !self.names.insert(name.clone()) {
            return;
        }
        let task = self.tasks.spawn(Arc::clone(push).run_dispatcher(name.clone()));
        self.by_task.insert(task.id(), name);
    }

    /// The queue of a dispatcher that has ended; it may have been made again in the meantime.
    fn close(&mut self, task: Id) -> Option<QueueName> {
        let name = self.by_task.remove(&task)?;
        self.names.remove(&name);
        Some(name)
    }
}

fn after(pause: Option<Duration>) -> Option<Instant> {
    pause.map(|pause| Instant::now() + pause)
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
