//! Push: a lane for each queue that delivers. A lane waits until there is something to deliver, claims it, and sends each
//! job on its own; here is who has a lane. Nothing polls: dispatchers sleep until a publish, an alarm or an ending notifier them.

mod body;
mod breakers;
mod deliver;
mod endpoint;
mod dispatcher;
mod slots;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::{Command, NamespaceId};
use outlast_store::Error;
use outlast_store::jobs::{Order, Reach};
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::engine::Engine;

pub(crate) use self::breakers::Breakers;
pub(crate) use self::slots::DeliverySlots;

/// The pause after a store error, before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Where nodes share a store, all queues are looked at this often, should a word of a new one have been lost.
const LOOK_SHARED: Duration = Duration::from_secs(10);

/// A queue by its name.
type Name = (NamespaceId, Arc<str>);

#[derive(Clone, Copy, Debug)]
pub struct PushSettings {
    /// Deliveries under way at once, on this node.
    pub in_flight_max: usize,
    /// Keep the beginning of what endpoints answer with an attempt that failed.
    pub keeps_excerpts: bool,
    /// The longest answer that becomes a result.
    pub result_bytes_max: usize,
}

impl Default for PushSettings {
    fn default() -> PushSettings {
        PushSettings { in_flight_max: 1000, keeps_excerpts: true, result_bytes_max: 256 << 10 }
    }
}

/// What dispatchers share.
pub(crate) struct Push {
    pub(crate) slots: DeliverySlots,
    pub(crate) breakers: Breakers,
    pub(crate) keeps_excerpts: bool,
    result_bytes_max: usize,
    /// Queues that may need a lane.
    changed: Mutex<BTreeSet<Name>>,
    changes: Notify,
}

impl Push {
    pub(crate) fn new(settings: PushSettings) -> Push {
        Push {
            slots: DeliverySlots::new(settings.in_flight_max),
            breakers: Breakers::default(),
            keeps_excerpts: settings.keeps_excerpts,
            result_bytes_max: settings.result_bytes_max,
            changed: Mutex::default(),
            changes: Notify::new(),
        }
    }

    /// There may be a queue of this name that delivers.
    pub(crate) fn look_for(&self, namespace: NamespaceId, name: &str) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert((namespace, name.into()));
        self.changes.notify_one();
    }

    fn take_changed(&self) -> BTreeSet<Name> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Who has a lane. A lane ends by itself when its queue is gone or delivers no more.
#[derive(Default)]
struct Dispatchers {
    names: BTreeSet<Name>,
    by_task: HashMap<Id, Name>,
    tasks: JoinSet<()>,
}

impl Dispatchers {
    fn open(&mut self, engine: &Engine, name: Name) {
        if !self.names.insert(name.clone()) {
            return;
        }
        let task = self.tasks.spawn(engine.clone().run_dispatcher(name.clone()));
        self.by_task.insert(task.id(), name);
    }

    /// The queue of a lane that has ended; it may have been made anew in the meantime.
    fn close(&mut self, task: Id) -> Option<Name> {
        let name = self.by_task.remove(&task)?;
        self.names.remove(&name);
        Some(name)
    }
}

impl Engine {
    /// State changes have created jobs in these queues of a namespace.
    pub(crate) fn jobs_published(&self, namespace: NamespaceId, queues: impl IntoIterator<Item = impl AsRef<str>>) {
        for queue in queues {
            self.shared.push.look_for(namespace, queue.as_ref());
            self.shared.notifier.jobs_ready(namespace, queue.as_ref(), 1);
        }
    }

    /// How many deliveries are under way here.
    pub fn deliveries(&self) -> usize {
        self.shared.push.slots.taken()
    }

    /// Endpoints whose circuit is open here.
    pub fn open_breakers(&self) -> usize {
        self.shared.push.breakers.open(self.now())
    }

    /// Waits until no delivery is under way, at most for `patience`. Makes sense once the engine drains.
    pub async fn settle(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.shared.push.slots.empty()).await;
    }

    pub(crate) async fn run_push(self) {
        let mut stopping = self.stopping();
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
                            tracing::error!(%error, "a lane has failed; it is opened again");
                            self.shared.counters.loop_failures.add(1);
                            error.id()
                        }
                    };
                    if let Some((namespace, name)) = dispatchers.close(task) {
                        self.shared.push.look_for(namespace, &name);
                    }
                }
                () = self.shared.push.changes.notified() => {
                    if self.open_changed(&mut dispatchers).await.is_err() {
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

    /// Opens a lane for every queue that delivers; says when to look again.
    async fn open_all(&self, dispatchers: &mut Dispatchers) -> Option<Duration> {
        match self.shared.store.census().await {
            Ok(queues) => {
                for (queue, _) in queues.into_iter().filter(|(queue, _)| queue.settings.is_push()) {
                    dispatchers.open(self, (queue.namespace, queue.name.as_str().into()));
                }
                self.is_shared().then(|| self.jitter(LOOK_SHARED))
            }
            Err(Error::Stopped) => None,
            Err(error) => {
                tracing::warn!(%error, "queues could not be read; trying again");
                Some(RETRY_PAUSE)
            }
        }
    }

    /// Opens a lane for every queue that was made or changed, and delivers.
    async fn open_changed(&self, dispatchers: &mut Dispatchers) -> Result<(), Error> {
        for name in self.shared.push.take_changed() {
            if dispatchers.names.contains(&name) || self.is_draining() {
                continue;
            }
            if let Some((queue, _)) = self.shared.store.queue(name.0, &name.1).await?
                && queue.settings.is_push()
            {
                dispatchers.open(self, name);
            }
        }
        Ok(())
    }

    /// Deliveries of a process that is gone: nobody knows how they went, so they are charged and made again.
    async fn end_interrupted(&self) {
        let jobs = match self.shared.store.interrupted().await {
            Ok(jobs) => jobs,
            Err(error) => return tracing::warn!(%error, "interrupted deliveries will be found by their lease"),
        };
        let order = |id| Order { id, reach: Reach::Everything, command: Command::Abandon };
        let orders: Vec<Order> = jobs.into_iter().map(order).collect();
        if orders.is_empty() {
            return;
        }
        tracing::info!(count = orders.len(), "deliveries were interrupted and will be made again");
        for orders in orders.chunks(1000) {
            if let Err(error) = self.apply(orders.to_vec()).await {
                tracing::warn!(%error, "interrupted deliveries will be found by their lease");
            }
        }
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
