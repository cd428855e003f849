//! The room of workers: which workers have asked for jobs, with the program they are, and what they hold. Kept in memory and
//! bounded; nodes that are linked share it. Nothing else depends on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::{Clock, JobId, NamespaceId, Status, Timestamp};
use outlast_store::jobs::{ListJobs, Reach};
use outlast_store::peer_bus::{PeerBus, WorkerValue};
use outlast_store::{Error, JobStore};
use serde::{Deserialize, Serialize};

use crate::engine::Parts;

/// Workers that are remembered of one namespace; others are not shown.
const WORKERS_MAX: usize = 1000;
/// Queues that are remembered of one worker.
const QUEUES_MAX: usize = 100;
/// A worker that holds no job is shown for so long after its last request: four long polls.
const SHOWN_FOR: Duration = Duration::from_secs(120);
/// One that holds jobs may work for long before it asks again.
const REMEMBERED_FOR: Duration = Duration::from_secs(86_400);
/// Other nodes learn of a worker this often.
const SHARED_EVERY: Duration = Duration::from_secs(10);
/// Pages of running jobs that are read for a list, and the jobs of a page.
const PAGES_MAX: usize = 20;
const PAGE_MAX: usize = 200;
/// Jobs that are named of each worker; the others are counted.
const NAMED_MAX: usize = 20;

/// A worker, as it names itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WorkerName {
    pub worker: Option<Box<str>>,
    pub host: Option<Box<str>>,
    pub pid: Option<u32>,
    pub sdk: Option<Box<str>>,
}

/// A worker in a list.
#[derive(Clone, Debug)]
pub struct ListedWorker {
    pub name: WorkerName,
    pub queues: BTreeSet<Arc<str>>,
    /// Its last request for jobs; `None` where only its jobs are known.
    pub seen_at: Option<Timestamp>,
    /// How many running jobs have its name.
    pub holds: usize,
    /// The first of them.
    pub jobs: Vec<JobId>,
}

/// The workers of a namespace.
#[derive(Clone, Debug)]
pub struct WorkerList {
    pub workers: Vec<ListedWorker>,
    /// All running jobs were looked at.
    pub is_complete: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SeenWorker {
    queues: BTreeSet<Arc<str>>,
    seen_at_millis: i64,
}

struct Known {
    seen: SeenWorker,
    shared_at: Option<Timestamp>,
}

/// What other nodes are told, as JSON.
#[derive(Serialize, Deserialize)]
struct SharedWorker {
    name: WorkerName,
    seen: SeenWorker,
}

pub struct Workers {
    store: Arc<dyn JobStore>,
    peer_bus: Arc<dyn PeerBus>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<NamespaceId, BTreeMap<WorkerName, Known>>>,
}

impl Workers {
    pub(crate) fn new(parts: &Parts) -> Workers {
        let Parts { store, peer_bus, clock, .. } = parts.clone();
        Workers { store, peer_bus, clock, known: Mutex::default() }
    }

    /// A worker has asked for jobs of these queues. One that does not name itself is not remembered.
    pub fn seen(&self, namespace: NamespaceId, name: &WorkerName, queues: impl Iterator<Item = Arc<str>>) {
        if *name == WorkerName::default() {
            return;
        }
        let now = self.clock.now();
        let mut known = self.lock();
        let workers = known.entry(namespace).or_default();
        if !workers.contains_key(name) && workers.len() >= WORKERS_MAX && !drop_oldest(workers, now) {
            return;
        }
        let fresh = || Known { seen: SeenWorker { queues: BTreeSet::new(), seen_at_millis: 0 }, shared_at: None };
        let worker = workers.entry(name.clone()).or_insert_with(fresh);
        worker.seen.seen_at_millis = now.as_millis();
        for queue in queues {
            if worker.seen.queues.len() < QUEUES_MAX {
                worker.seen.queues.insert(queue);
            }
        }
        let is_due = worker.shared_at.is_none_or(|at| now.since(at) >= SHARED_EVERY);
        if is_due && self.peer_bus.link().is_some() {
            worker.shared_at = Some(now);
            let shared = SharedWorker { name: name.clone(), seen: worker.seen.clone() };
            if let Ok(bytes) = serde_json::to_vec(&shared) {
                self.peer_bus.announce_worker(namespace, WorkerValue { id: number(name), bytes });
            }
        }
    }

    /// The workers of a namespace within reach, by name.
    pub async fn list(&self, namespace: NamespaceId, reach: &Reach) -> Result<WorkerList, Error> {
        let now = self.clock.now();
        let mut workers: BTreeMap<WorkerName, ListedWorker> = BTreeMap::new();
        for (name, seen) in self.all_seen(namespace, now).await {
            let queues: BTreeSet<Arc<str>> = seen.queues.into_iter().filter(|queue| covers(reach, queue)).collect();
            let seen_at = Timestamp::from_millis(seen.seen_at_millis);
            if !queues.is_empty() && seen_at <= now.plus(SHARED_EVERY) {
                let listed =
                    ListedWorker { name: name.clone(), queues, seen_at: Some(seen_at), holds: 0, jobs: Vec::new() };
                workers.insert(name, listed);
            }
        }
        let is_complete = self.add_jobs(&mut workers, reach).await?;
        let is_shown =
            |worker: &ListedWorker| worker.holds > 0 || worker.seen_at.is_some_and(|at| now.since(at) < SHOWN_FOR);
        Ok(WorkerList { workers: workers.into_values().filter(is_shown).take(WORKERS_MAX).collect(), is_complete })
    }

    /// The workers that this node or another one has seen, the latest of each.
    async fn all_seen(&self, namespace: NamespaceId, now: Timestamp) -> BTreeMap<WorkerName, SeenWorker> {
        let mut all: BTreeMap<WorkerName, SeenWorker> = {
            let mut known = self.lock();
            let workers = known.entry(namespace).or_default();
            workers.retain(|_, worker| age(&worker.seen, now) < REMEMBERED_FOR);
            workers.iter().map(|(name, worker)| (name.clone(), worker.seen.clone())).collect()
        };
        let mut stale = Vec::new();
        for value in self.peer_bus.workers(namespace).await {
            let shared = serde_json::from_slice::<SharedWorker>(&value.bytes).ok();
            let Some(shared) = shared.filter(|shared| age(&shared.seen, now) < REMEMBERED_FOR) else {
                stale.push(value.id);
                continue;
            };
            let entry = all.entry(shared.name).or_insert_with(|| shared.seen.clone());
            entry.seen_at_millis = entry.seen_at_millis.max(shared.seen.seen_at_millis);
            entry.queues.extend(shared.seen.queues.into_iter().take(QUEUES_MAX));
        }
        if !stale.is_empty() {
            self.peer_bus.forget_workers(namespace, &stale).await;
        }
        all
    }

    /// Adds the running jobs to the workers that hold them, by the name that came with the receive. Returns whether that
    /// were all.
    async fn add_jobs(&self, workers: &mut BTreeMap<WorkerName, ListedWorker>, reach: &Reach) -> Result<bool, Error> {
        let mut before = None;
        for _ in 0..PAGES_MAX {
            let list = ListJobs {
                reach: reach.clone(),
                queue: None,
                status: Some(Status::Running),
                tags: Vec::new(),
                key: None,
                before,
                limit: PAGE_MAX,
            };
            let page = self.store.jobs(list).await?;
            for found in &page.jobs {
                let Some(worker) = found.job.running().and_then(|running| running.worker.as_deref()) else {
                    continue;
                };
                let holder = holder(workers, worker);
                holder.holds += 1;
                holder.queues.insert(found.queue.name.as_str().into());
                if holder.jobs.len() < NAMED_MAX {
                    holder.jobs.push(found.job.id);
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<NamespaceId, BTreeMap<WorkerName, Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of that name that was seen last; a new one where there is none.
fn holder<'a>(workers: &'a mut BTreeMap<WorkerName, ListedWorker>, worker: &str) -> &'a mut ListedWorker {
    let same = workers.iter().filter(|(name, _)| name.worker.as_deref() == Some(worker));
    let name = same.max_by_key(|(_, listed)| listed.seen_at).map(|(name, _)| name.clone());
    let name = name.unwrap_or_else(|| WorkerName { worker: Some(worker.into()), ..WorkerName::default() });
    workers.entry(name.clone()).or_insert_with(|| ListedWorker {
        name,
        queues: BTreeSet::new(),
        seen_at: None,
        holds: 0,
        jobs: Vec::new(),
    })
}

fn covers(reach: &Reach, queue: &str) -> bool {
    match reach {
        Reach::Everything | Reach::Namespace(_) => true,
        Reach::Queues(_, names) => names.iter().any(|name| name == queue),
    }
}

fn age(seen: &SeenWorker, now: Timestamp) -> Duration {
    now.since(Timestamp::from_millis(seen.seen_at_millis))
}

/// Makes room for a new worker, if there is one that is not shown any more.
fn drop_oldest(workers: &mut BTreeMap<WorkerName, Known>, now: Timestamp) -> bool {
    let oldest = workers.iter().max_by_key(|(_, worker)| age(&worker.seen, now));
    let name = oldest.filter(|(_, worker)| age(&worker.seen, now) >= SHOWN_FOR).map(|(name, _)| name.clone());
    name.is_some_and(|name| workers.remove(&name).is_some())
}

/// Names a worker between nodes. Equal on all of them, and not secret.
fn number(name: &WorkerName) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() >> 1
}
