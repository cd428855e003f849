//! Announces commits: after each store call it wakes the consumers, readers and loops that the change concerns, here and on other
//! nodes. Every room that writes announces through here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_core::system_queue::SYSTEM_QUEUES;
use outlast_core::{Clock, JobId, NamespaceId, Status};
use outlast_store::jobs::{Applied, ClaimRequest, Claimed, Published};
use outlast_store::operations::{Operation, OperationKind};

use crate::alarms::Alarms;
use crate::counters::Counters;
use crate::notifier::Notifier;
use crate::progress_cache::ProgressCache;
use crate::push::PushCandidates;

/// Deletion of objects is not urgent: those that become due in this time are deleted together.
pub(crate) const GC_DELAY: Duration = Duration::from_millis(500);

pub(crate) struct Announcer {
    pub(crate) notifier: Notifier,
    pub(crate) alarms: Alarms,
    pub(crate) progress: ProgressCache,
    pub(crate) push_candidates: PushCandidates,
    pub(crate) counters: Arc<Counters>,
    clock: Arc<dyn Clock>,
    /// Objects were announced, or their deletion was scheduled, since this process began.
    has_objects: AtomicBool,
}

impl Announcer {
    pub(crate) fn new(notifier: Notifier, counters: Arc<Counters>, clock: Arc<dyn Clock>) -> Announcer {
        Announcer {
            notifier,
            alarms: Alarms::default(),
            progress: ProgressCache::default(),
            push_candidates: PushCandidates::default(),
            counters,
            clock,
            has_objects: AtomicBool::new(false),
        }
    }

    pub(crate) fn published(&self, namespace: NamespaceId, queue: &Arc<str>, answer: &Published) {
        match answer {
            Published::Created { job, wake_at, .. } => {
                self.counters.published.add(1);
                self.alarms.set(*wake_at);
                // Only here: no reader on another node can watch a new job, and the counts show it.
                self.notifier.queue_feeds().job_changed(namespace, queue, job.id);
                if job.status() == Status::Queued {
                    self.notifier.jobs_ready(namespace, queue, 1);
                }
            }
            Published::Existing { .. } => self.counters.duplicates.add(1),
            Published::QueueNotFound | Published::QuotaReached { .. } => {}
        }
    }

    /// State changes have created jobs in these queues of a namespace.
    fn created_jobs(&self, namespace: NamespaceId, queues: impl IntoIterator<Item = impl AsRef<str>>) {
        for queue in queues {
            self.push_candidates.add(namespace, queue.as_ref());
            self.notifier.jobs_ready(namespace, queue.as_ref(), 1);
        }
    }

    pub(crate) fn claimed(&self, want: &ClaimRequest, claimed: &Claimed) {
        self.counters.handed_out.add(claimed.jobs.len());
        for job in &claimed.jobs {
            let figures = self.counters.queues.of(want.namespace, job.queue);
            let eligible = job.queued_at.unwrap_or(job.opened_at);
            let taken = job.running().map(|running| running.began_at);
            figures.wait.record(taken.map_or(Duration::ZERO, |taken| taken.since(eligible)));
        }
        self.alarms.set(claimed.wake_at);
        self.created_jobs(want.namespace, &claimed.published);
        for id in claimed.jobs.iter().map(|job| job.id).chain(claimed.ended.iter().copied()) {
            self.progress.forget(id);
            self.notifier.job_changed(want.namespace, &want.queue, id);
        }
    }

    pub(crate) fn applied(&self, applied: &Applied) {
        if !applied.changed {
            return;
        }
        self.alarms.set(applied.wake_at);
        if applied.running.as_ref().is_some_and(|job| job.work_summary.has_checkpoint || job.work_summary.has_upload) {
            self.objects_expected();
        }
        if applied.status != Status::Running {
            self.progress.forget(applied.id);
            self.deletions_possible();
        }
        if applied.deleted || applied.status == Status::Expired {
            // Also objects from before this process.
            self.deletions_scheduled();
        }
        let (namespace, queue) = (applied.queue.namespace, applied.queue.name.as_str());
        self.notifier.job_changed(namespace, queue, applied.id);
        self.created_jobs(namespace, &applied.published);
        if applied.queue.hold.is_some() && (applied.frees || applied.deleted) {
            // The end of a probe, or its receipt, may open the whole queue, not only one slot. `queue` is as it was before the
            // command.
            self.notifier.queue_changed(namespace, queue);
        } else if applied.frees {
            self.notifier.jobs_ready(namespace, queue, 1);
        }
    }

    /// The store does not know whether a command was committed: every reader and loop that it may concern looks. `namespace` is
    /// `None` for the loops, which work for all namespaces.
    pub(crate) fn maybe_applied(&self, id: JobId, namespace: Option<NamespaceId>) {
        self.progress.invalidate([&id]);
        self.alarms.look_now();
        self.deletions_possible();
        if let Some(namespace) = namespace {
            SYSTEM_QUEUES.iter().for_each(|queue| self.push_candidates.add(namespace, queue.name));
        }
        self.notifier.job_changed_somewhere(id);
        self.notifier.namespace_changed(namespace);
    }

    /// The store does not know whether a write to this queue was committed: its consumers and followers look.
    pub(crate) fn maybe_written(&self, namespace: NamespaceId, queue: &str) {
        self.alarms.look_now();
        self.queue_changed(namespace, queue);
        self.notifier.queue_feeds().jobs_changed(namespace, queue);
    }

    /// A queue was made, changed or deleted, or may have been.
    pub(crate) fn queue_changed(&self, namespace: NamespaceId, queue: &str) {
        self.push_candidates.add(namespace, queue);
        self.notifier.queue_changed(namespace, queue);
    }

    /// A step of an operation changed jobs of one queue that it does not name.
    pub(crate) fn operation_advanced(&self, operation: &Operation) {
        let (namespace, queue) = (operation.namespace, &operation.queue_name);
        // It may have deleted jobs that are being worked on.
        self.progress.invalidate_queue(namespace, queue);
        self.deletions_scheduled();
        // The jobs it changed have new alarms: the end of their retention.
        self.alarms.look_now();
        self.notifier.queue_changed(namespace, queue);
        self.notifier.jobs_changed(namespace);
        self.notifier.queue_feeds().jobs_changed(namespace, queue);
        if operation.kind == OperationKind::Purge {
            self.created_jobs(namespace, SYSTEM_QUEUES.iter().map(|queue| queue.name));
        }
    }

    /// From here on the end of a job may leave objects to delete.
    pub(crate) fn objects_expected(&self) {
        self.has_objects.store(true, Ordering::Relaxed);
    }

    /// A change may have scheduled the deletion of objects, if there are any.
    fn deletions_possible(&self) {
        if self.has_objects.load(Ordering::Relaxed) {
            self.deletions_scheduled();
        }
    }

    /// The deletion of objects may have been scheduled, also of some from before this process.
    pub(crate) fn deletions_scheduled(&self) {
        self.alarms.set(Some(self.clock.now().plus(GC_DELAY)));
    }
}
