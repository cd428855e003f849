//! The port every engine implements. Verbs take batches: one call is one durable transaction, and concurrent calls share
//! a sync. Nothing here names a dialect, a row or a file.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::checkpoint::Section;
use outlast_core::inbound_event::{InboundEvent, InboundEventId};
use outlast_core::queue::DedupeBy;
use outlast_core::state::{Ending, Phase};
use outlast_core::{
    Command, Event, Job, JobId, NamespaceId, ObjectKey, Outage, Queue, QueueId, Refusal, Spec, Status, Timestamp,
};

use crate::alarms::Due;
use crate::artifacts::{Artifacts, DueDeletions, InlineResult, ObjectInspection, StoredObject};
use crate::damage::Damage;
use crate::dead_letters::{DeadLetterPage, ListDeadLetters};
use crate::error::Error;
use crate::handout::{HandoutPool, HandoutShare};
use crate::histogram::Histogram;
use crate::inbound_events::{InboundEventPage, Ingested, ListInboundEvents, NewInboundEvent};
use crate::job_detail::JobDetail;
use crate::keys::{KeyId, KeyRecord, NewKey, Revocation};
use crate::operations::{NewOperation, Operation, OperationId};
use crate::page::{PAGE_BYTES_MAX, PageSize};
use crate::queues::{DeleteRefusal, ExpectedVersion, QueueCounts, QueueDraft, SaveRefusal, StoredQueue};

/// Which jobs a caller may see. It is part of every verb that names a job, so that no query can forget it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// The service itself: alarms, operations.
    Everything,
    /// All queues of one namespace.
    Namespace(NamespaceId),
    /// Only these queues of one namespace.
    Queues(NamespaceId, Arc<[String]>),
}

impl Reach {
    /// The namespace it is bound to, if it is.
    pub fn namespace(&self) -> Option<NamespaceId> {
        match self {
            Reach::Everything => None,
            Reach::Namespace(namespace) | Reach::Queues(namespace, _) => Some(*namespace),
        }
    }

    pub fn covers(&self, queue: &Queue) -> bool {
        match self {
            Reach::Everything => true,
            Reach::Namespace(namespace) => queue.namespace == *namespace,
            Reach::Queues(namespace, names) => queue.namespace == *namespace && names.contains(&queue.name),
        }
    }
}

/// A job to be published.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub namespace: NamespaceId,
    pub queue: Arc<str>,
    pub spec: Arc<Spec>,
}

/// The answer to one publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Published {
    Created {
        job: Job,
        wake_at: Option<Timestamp>,
        /// As the queue is set.
        dedupe_by: DedupeBy,
    },
    /// The key belongs to this job already.
    Existing {
        job: Job,
        payload_mismatch: bool,
        dedupe_by: DedupeBy,
    },
    QueueNotFound,
    /// The namespace holds as many waiting jobs as it may.
    QuotaReached {
        waiting_max: u64,
    },
}

/// How many jobs to hand out, of which queue, to whom.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    pub namespace: NamespaceId,
    pub queue: Arc<str>,
    pub limit: usize,
    pub phase: Phase,
    pub visibility: Option<Duration>,
    pub worker: Option<Box<str>>,
}

/// The names, numbers and times of a job that is handed out.
const HANDED_OUT_FRAME: usize = 1024;

/// The claimed jobs. `jobs` may be fewer than asked for, and none.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub queue: Arc<Queue>,
    pub jobs: Vec<Job>,
    /// The earliest alarm among them.
    pub wake_at: Option<Timestamp>,
    /// The queue is held, or its rate used up: asking for more before this time is useless.
    pub held_until: Option<Timestamp>,
    /// The queue delivers to its webhook: asking is useless altogether.
    pub push_only: bool,
    /// This look was not complete; one after this time will be.
    pub look_again: Option<Duration>,
    /// Jobs whose `startBy` passed while they waited: cancelled, not handed out.
    pub ended: Vec<JobId>,
    /// Queues of the namespace that got jobs by these ends.
    pub published: BTreeSet<Arc<str>>,
    /// How much of a page the jobs fill.
    pub size: PageSize,
    /// A claim that reaches this size ends early: there may be more jobs.
    pub bytes_max: usize,
    /// Hand-outs on their way hold too much memory: nothing was looked for, and asking again in a moment helps.
    pub is_crowded: bool,
    /// The share of the store's memory for hand-outs; drop it when the jobs have been sent.
    pub share: Option<Arc<HandoutShare>>,
}

impl Claimed {
    /// Nothing, so far.
    pub fn none(queue: Arc<Queue>) -> Claimed {
        Claimed {
            queue,
            jobs: Vec::new(),
            wake_at: None,
            held_until: None,
            push_only: false,
            look_again: None,
            ended: Vec::new(),
            published: BTreeSet::new(),
            size: PageSize::default(),
            bytes_max: PAGE_BYTES_MAX,
            is_crowded: false,
            share: None,
        }
    }

    /// Adds a job that was handed out, whose attempts have saved so many bytes.
    pub fn add(&mut self, job: Job, saved_bytes: usize) {
        let tags: usize = job.spec.tags.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        self.size.add(HANDED_OUT_FRAME + tags + job.spec.payload.len() + saved_bytes);
        self.jobs.push(job);
    }

    /// It has as many jobs as it may, or as many as fit into an answer.
    pub fn is_full(&self, limit: usize) -> bool {
        self.jobs.len() >= limit || self.size.bytes() >= self.bytes_max
    }

    /// Bounds the claim by what its namespace may hold of the memory for hand-outs. False when there is none left.
    pub(crate) fn fit_into(&mut self, pool: &HandoutPool) -> bool {
        let free = pool.free(self.queue.namespace);
        self.bytes_max = free.min(PAGE_BYTES_MAX);
        self.is_crowded = free == 0;
        free > 0
    }

    /// Counts its jobs as memory of the store.
    pub(crate) fn hold(&mut self, pool: &HandoutPool) {
        let namespace = self.queue.namespace;
        self.share = (!self.jobs.is_empty()).then(|| Arc::new(pool.hold(namespace, self.size.bytes())));
    }

    /// There were no more jobs than these, so nothing but a new one is worth waiting for: not the rate.
    pub fn came_up_short_of(&mut self, limit: usize) {
        if self.jobs.len() < limit {
            self.held_until = None;
        }
    }
}

/// One command for one job, by someone with this reach.
#[derive(Clone, Debug)]
pub struct JobCommand {
    pub id: JobId,
    pub reach: Reach,
    pub command: Command,
}

/// The state after a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub id: JobId,
    pub queue: Arc<Queue>,
    pub status: Status,
    pub version: u64,
    /// False when the command had no effect: a repeated report, an alarm that was not due.
    pub changed: bool,
    pub deleted: bool,
    /// It became eligible, its ending made room, or it loosened the queue's hold: waiters of the queue may try again.
    pub frees: bool,
    /// Work on it was found not to move.
    pub stalled: bool,
    /// Queues of the namespace that got jobs by this change.
    pub published: Vec<Arc<str>>,
    /// The command broke a rule and did not do what it should; the job has failed instead.
    pub set_aside: bool,
    pub wake_at: Option<Timestamp>,
    /// The hand-out that the command has ended.
    pub ended: Option<EndedHandout>,
    /// The job as it is now, while it runs.
    pub running: Option<Box<Job>>,
}

/// A hand-out that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedHandout {
    pub how: Ending,
    /// From the hand-out to its end.
    pub duration: Duration,
}

impl EndedHandout {
    /// The hand-out that a command has ended, by the job before and after it.
    pub fn between(before: Option<Timestamp>, after: &Job, now: Timestamp) -> Option<EndedHandout> {
        let began_at = before.filter(|_| after.status() != Status::Running)?;
        Some(EndedHandout { how: after.last.as_ref()?.how, duration: now.since(began_at) })
    }

    /// The worker did not report in time.
    pub fn is_lost(&self) -> bool {
        matches!(self.how, Ending::LeaseExpired | Ending::HeartbeatLost)
    }
}

/// Why a command did nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Declined {
    /// No such job within the caller's reach.
    NotFound,
    Refused(Refusal),
}

/// A job with what is needed to show it.
#[derive(Clone, Debug)]
pub struct FoundJob {
    pub job: Job,
    pub queue: Arc<Queue>,
}

/// Which jobs to list, newest first.
#[derive(Clone, Debug)]
pub struct ListJobs {
    pub reach: Reach,
    pub queue: Option<String>,
    pub status: Option<Status>,
    /// All of them must match; the first one selects.
    pub tags: Vec<(String, String)>,
    pub key: Option<String>,
    /// Only jobs older than this position.
    pub before: Option<u64>,
    pub limit: usize,
}

impl ListJobs {
    /// Has the job every tag and the key asked for? An index selects by one of them only, or by its hash.
    pub(crate) fn fits_labels(&self, spec: &Spec) -> bool {
        let tagged =
            |tag: &(String, String)| spec.tags.iter().any(|(name, value)| **name == *tag.0 && **value == *tag.1);
        self.tags.iter().all(tagged) && self.key.as_ref().is_none_or(|key| spec.key.as_deref() == Some(key))
    }
}

/// A page may be short, even empty, and still have a `next`: a page looks at a bounded number of jobs, and ends when they
/// fill it ([`crate::page`]). The jobs are without their payloads.
#[derive(Clone, Debug)]
pub struct JobPage {
    pub jobs: Vec<FoundJob>,
    pub next: Option<u64>,
}

#[async_trait]
pub trait JobStore: Send + Sync {
    /// Stores each job, or finds the one that has its key. Answers in order, after one sync.
    async fn publish(&self, jobs: Vec<NewJob>) -> Result<Vec<Published>, Error>;

    /// Stores each inbound event together with its jobs, or finds the one it duplicates. Answers in order, after one
    /// sync.
    async fn ingest(&self, inbound_events: Vec<NewInboundEvent>) -> Result<Vec<Ingested>, Error>;
    async fn inbound_event(&self, namespace: NamespaceId, id: InboundEventId) -> Result<Option<InboundEvent>, Error>;
    async fn inbound_events(&self, list: ListInboundEvents) -> Result<InboundEventPage, Error>;
    /// Deletes up to `limit` inbound events that were received before this time. Returns how many.
    async fn prune_inbound_events(&self, before: Timestamp, limit: usize) -> Result<usize, Error>;

    /// Hands out up to `limit` queued jobs in order of priority, then age, and no more than fill a page: the others stay
    /// queued. `None` when there is no such queue.
    async fn claim(&self, want: ClaimRequest) -> Result<Option<Claimed>, Error>;

    /// Carries out each command on its own; one sync for all. Answers in order.
    async fn apply(&self, orders: Vec<JobCommand>) -> Result<Vec<Result<Applied, Declined>>, Error>;

    /// Up to `limit` jobs whose alarm has rung, and the first alarm of every other kind. Only names them: `apply` with
    /// `Command::Wake`, `due_deletions`, `prune_inbound_events` and `advance_operation` act.
    async fn due(&self, limit: usize) -> Result<Due, Error>;

    async fn job(&self, reach: &Reach, id: JobId) -> Result<Option<FoundJob>, Error>;
    /// A job with all that its page shows, as of one moment. Loads no result.
    async fn job_detail(&self, reach: &Reach, id: JobId) -> Result<Option<JobDetail>, Error>;
    async fn jobs(&self, list: ListJobs) -> Result<JobPage, Error>;
    /// Dead letters of one queue, the latest failure first.
    async fn dead_letters(&self, list: ListDeadLetters) -> Result<DeadLetterPage, Error>;
    /// Up to `limit` events after `after`, oldest first, and no more than fill a page ([`crate::page`]). `None` when there
    /// is no such job.
    async fn events(&self, reach: &Reach, id: JobId, after: u64, limit: usize) -> Result<Option<Vec<Event>>, Error>;
    /// The inline result of a succeeded job.
    async fn result(&self, reach: &Reach, id: JobId) -> Result<Option<InlineResult>, Error>;
    /// The data that attempts have saved. `None` when there is no such job.
    async fn artifacts(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error>;
    /// Up to `limit` sections in order of name, after `after`, and no more than fill a page. `None` when there is no such
    /// job.
    async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error>;
    async fn section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error>;
    /// The objects of a job, expected and kept. `None` when there is no such job.
    async fn objects(&self, reach: &Reach, id: JobId) -> Result<Option<Vec<StoredObject>>, Error>;
    /// The job's result was asked for once more.
    async fn count_download(&self, id: JobId) -> Result<(), Error>;
    /// Records what an inspection of an object found. An object that is gone is fine.
    async fn record_inspection(&self, key: &ObjectKey, found: ObjectInspection) -> Result<(), Error>;
    /// Up to `limit` objects whose time has come, of all jobs.
    async fn due_deletions(&self, limit: usize) -> Result<DueDeletions, Error>;
    /// These objects could not be deleted: they are due again later.
    async fn postpone_deletions(&self, keys: &[ObjectKey], until: Timestamp) -> Result<(), Error>;
    /// These objects have been deleted.
    async fn forget_objects(&self, keys: &[ObjectKey]) -> Result<(), Error>;

    /// Creates or replaces a queue's settings, if `expect` holds.
    async fn save_queue(
        &self,
        namespace: NamespaceId,
        name: &str,
        draft: QueueDraft,
        expect: ExpectedVersion,
    ) -> Result<Result<StoredQueue, SaveRefusal>, Error>;
    async fn set_paused(&self, namespace: NamespaceId, name: &str, paused: bool) -> Result<Option<Arc<Queue>>, Error>;
    /// Deletes a queue that has no jobs.
    async fn delete_queue(&self, namespace: NamespaceId, name: &str) -> Result<Result<(), DeleteRefusal>, Error>;
    async fn queue(&self, namespace: NamespaceId, name: &str) -> Result<Option<(Arc<Queue>, QueueCounts)>, Error>;
    /// Up to `limit` queues in order of name, after `after`.
    async fn queues(
        &self,
        namespace: NamespaceId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error>;
    /// Since when the oldest queued job of each queue can be handed out; queues without one are left out. For the metrics.
    async fn oldest_waiting(&self) -> Result<Vec<(QueueId, Timestamp)>, Error>;
    /// All queues of all namespaces with their counts, for the metrics.
    async fn census(&self) -> Result<Vec<(Arc<Queue>, QueueCounts)>, Error>;

    /// Records that this node serves the alarms. Returns the last outage: a time in which no node did, so that workers
    /// could not report either. Cheap; call it with every read of the alarms.
    async fn record_attendance(&self) -> Result<Option<Outage>, Error>;
    /// Deliveries that were under way when this store's last process ended. None where other nodes may be making them.
    async fn interrupted(&self) -> Result<Vec<JobId>, Error>;
    /// The key that secrets are sealed with in this store, by its fingerprint; `key` from now on if there was none, or if
    /// it was one of those that `key` takes the place of.
    async fn sealing_key(&self, key: i64, replaces: &[i64]) -> Result<i64, Error>;

    /// The number of a namespace, made if it is new.
    async fn namespace(&self, name: &str) -> Result<NamespaceId, Error>;
    async fn add_key(&self, key: NewKey) -> Result<KeyRecord, Error>;
    /// Adds a key if there has never been one. Of many callers at once, on any number of nodes, one gets its record.
    async fn add_first_key(&self, key: NewKey) -> Result<Option<KeyRecord>, Error>;
    /// All keys, revoked ones included.
    async fn keys(&self) -> Result<Vec<KeyRecord>, Error>;
    /// Those that were made or revoked at this time or later.
    async fn keys_since(&self, since: Timestamp) -> Result<Vec<KeyRecord>, Error> {
        let has_changed = |key: &KeyRecord| key.created_at >= since || key.revoked_at.is_some_and(|at| at >= since);
        Ok(self.keys().await?.into_iter().filter(has_changed).collect())
    }
    /// The last working admin key of a namespace is revoked only with `force`, whatever else is revoked at the same time.
    async fn revoke_key(&self, namespace: Option<NamespaceId>, id: KeyId, force: bool) -> Result<Revocation, Error>;

    async fn start_operation(&self, operation: NewOperation) -> Result<Option<Operation>, Error>;
    async fn operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error>;
    /// The newest operations of a namespace.
    async fn operations(&self, namespace: NamespaceId, limit: usize) -> Result<Vec<Operation>, Error>;
    /// Operations that still have work to do, of all namespaces.
    async fn open_operations(&self) -> Result<Vec<Operation>, Error>;
    async fn stop_operation(&self, namespace: NamespaceId, id: OperationId) -> Result<Option<Operation>, Error>;
    /// Does up to `limit` jobs of an operation and remembers how far it came, in one transaction.
    async fn advance_operation(&self, id: OperationId, limit: usize) -> Result<Option<Operation>, Error>;
    /// How many jobs an operation would touch, counting at most `limit`.
    async fn count_operation(&self, operation: &NewOperation, limit: usize) -> Result<u64, Error>;

    /// Damage that this process has found in the store since it started.
    fn damage(&self) -> Damage {
        Damage::default()
    }

    /// How long commits of this process took, syncs included.
    fn commit_times(&self) -> Option<Arc<Histogram>> {
        None
    }

    /// Does a write come back? Cheap; for readiness.
    async fn ping(&self) -> Result<(), Error>;
    /// Finishes what is under way and closes. Later calls get `Stopped`.
    async fn close(&self);
}
