//! The room of running work: heartbeats, progress, checkpoints, sections, output. Heartbeats, checkpoints and sections are persisted
//! at once. Progress is held in memory and persisted when it begins and then at intervals, so that a restart or another node
//! knows it roughly, and the alarm for stalled work exactly enough.

pub mod lease_watch;
mod output_part;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_core::alarm::move_lag;
use outlast_core::checkpoint::{Checkpoint, Section};
use outlast_core::{
    Clock, Command, Job, JobId, Lease, Progress, ProgressReport, Queue, Running, State, Timestamp, held,
};
use outlast_store::artifacts::Artifacts;
use outlast_store::jobs::{Applied, Declined, FoundJob, JobCommand, Reach};
use outlast_store::peer_bus::{LeaseDigest, PeerBus};
use outlast_store::{Error, JobStore};

use crate::announcer::Announcer;
use crate::engine::Parts;
use crate::jobs::Jobs;
use crate::progress_cache::Entry;

/// Progress of another node may come from a clock that is a little ahead; beyond this it is forged, and would never expire.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// How long a lease read from a shared store counts as held, while other nodes may change it: less than a polling interval.
const CHECKED_FOR: Duration = Duration::from_secs(1);
/// How many leases of one call are looked up at once.
const CHECKS_MAX: usize = 16;

/// The content of a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct Beat {
    pub extend: Option<Duration>,
    pub progress: Option<ProgressReport>,
    pub checkpoint: Option<Arc<Checkpoint>>,
}

/// A worker's claim to a job: what it reaches, the job, and its lease.
#[derive(Clone, Debug)]
pub struct Worker {
    pub reach: Reach,
    pub id: JobId,
    pub lease: Option<Lease>,
}

impl Worker {
    fn order(&self, command: Command) -> JobCommand {
        JobCommand { id: self.id, reach: self.reach.clone(), command }
    }
}

/// A command that persists progress.
struct Keep {
    order: JobCommand,
    progress: Option<Arc<Progress>>,
}

/// The result of a report.
enum Heard {
    Held(Arc<Progress>),
    Keep(Keep, Arc<Progress>),
    Declined(Declined),
}

pub struct Work {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) peer_bus: Arc<dyn PeerBus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) jobs: Arc<Jobs>,
    /// Other nodes work on the same store.
    pub(crate) is_shared: bool,
}

impl Work {
    pub(crate) fn new(parts: &Parts, jobs: &Arc<Jobs>) -> Work {
        let Parts { store, peer_bus, clock, announcer, is_shared, .. } = parts.clone();
        Work { store, peer_bus, clock, announcer, jobs: Arc::clone(jobs), is_shared }
    }

    /// Extends the lease durably and stores what came with it; the answer has the job as it is then.
    pub async fn heartbeat(&self, worker: &Worker, beat: Beat) -> Result<Result<Applied, Declined>, Error> {
        only(self.heartbeats(vec![(worker.clone(), beat)]).await?)
    }

    /// The same for many jobs: one commit, and each on its own. Answers in order.
    pub async fn heartbeats(&self, beats: Vec<(Worker, Beat)>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        let keep = |(worker, beat): (Worker, Beat)| {
            let known = self.announcer.progress.get(worker.id).filter(|entry| self.is_of(entry, &worker));
            let progress = match beat.progress {
                Some(report) => Some(self.next_progress(known.as_ref(), report)),
                // The job is written anyway: progress since the last write goes with it.
                None => known.filter(|entry| entry.moved_at > entry.noted_at).map(|entry| entry.progress),
            };
            let (lease, extend, checkpoint) = (worker.lease, beat.extend, beat.checkpoint);
            let command = Command::Heartbeat { lease, extend, progress: progress.clone(), checkpoint };
            Keep { order: worker.order(command), progress }
        };
        self.keep_all(beats.into_iter().map(keep).collect()).await
    }

    /// Keeps a checkpoint and, in the same transaction, its progress.
    pub async fn checkpoint(
        &self,
        worker: &Worker,
        checkpoint: Arc<Checkpoint>,
        report: Option<ProgressReport>,
    ) -> Result<Result<Applied, Declined>, Error> {
        let known = self.announcer.progress.get(worker.id).filter(|entry| self.is_of(entry, worker));
        let progress = report.map(|report| self.next_progress(known.as_ref(), report));
        let command = Command::Checkpoint { lease: worker.lease, checkpoint, progress: progress.clone() };
        let kept = self.keep_all(vec![Keep { order: worker.order(command), progress }]).await;
        // The one it replaces may have been an object.
        self.announcer.deletions_scheduled();
        only(kept?)
    }

    /// Stores one finished section.
    pub async fn section(&self, worker: &Worker, section: Section) -> Result<Result<Applied, Declined>, Error> {
        let command = Command::Section { lease: worker.lease, section: Arc::new(section) };
        self.jobs.apply_one(worker.order(command)).await
    }

    /// Appends text to the job's log. A part that was appended before is left as it is.
    pub async fn output(
        &self,
        worker: &Worker,
        part: Option<u64>,
        text: Arc<str>,
    ) -> Result<Result<Applied, Declined>, Error> {
        self.jobs.apply_one(worker.order(Command::Output { lease: worker.lease, part, text })).await
    }

    /// How far the work has come. Mostly in memory: see the head of this file.
    pub async fn report(
        &self,
        worker: &Worker,
        report: ProgressReport,
    ) -> Result<Result<Arc<Progress>, Declined>, Error> {
        only(self.reports(vec![(worker.clone(), report)]).await?)
    }

    /// The same of many jobs; what must be written is one commit. Answers in order.
    pub async fn reports(
        &self,
        said: Vec<(Worker, ProgressReport)>,
    ) -> Result<Vec<Result<Arc<Progress>, Declined>>, Error> {
        let heard: Vec<Heard> = stream::iter(said)
            .map(|(worker, report)| self.hear(worker, report))
            .buffered(CHECKS_MAX)
            .try_collect()
            .await?;
        let (mut answers, mut keeps) = (Vec::with_capacity(heard.len()), Vec::new());
        for heard in heard {
            answers.push(match heard {
                Heard::Held(progress) => Ok(progress),
                Heard::Declined(declined) => Err(declined),
                Heard::Keep(keep, progress) => {
                    keeps.push((answers.len(), keep));
                    Ok(progress)
                }
            });
        }
        let (places, keeps): (Vec<usize>, Vec<Keep>) = keeps.into_iter().unzip();
        for (place, kept) in places.into_iter().zip(self.keep_all(keeps).await?) {
            if let (Err(declined), Some(answer)) = (kept, answers.get_mut(place)) {
                *answer = Err(declined);
            }
        }
        Ok(answers)
    }

    /// Takes one report into memory, or returns the command that must be written for it.
    async fn hear(&self, worker: Worker, report: ProgressReport) -> Result<Heard, Error> {
        let generation = self.announcer.progress.generation(worker.id);
        let known = self.announcer.progress.get(worker.id).filter(|entry| self.trusts(entry, &worker));
        let known = match known {
            Some(entry) => Some(entry),
            None => match self.check(&worker).await? {
                Ok(entry) => entry,
                Err(declined) => return Ok(Heard::Declined(declined)),
            },
        };
        let progress = self.next_progress(known.as_ref(), report);
        let keep = || {
            let command = Command::Progress { lease: worker.lease, progress: Arc::clone(&progress) };
            Keep { order: worker.order(command), progress: Some(Arc::clone(&progress)) }
        };
        let Some(mut entry) = known else {
            // The first report of a hand-out is persisted, and with it its time.
            return Ok(Heard::Keep(keep(), progress));
        };
        let now = self.clock.now();
        if progress.has_moved_since(&entry.progress) {
            entry.moved_at = now;
        }
        if entry.moved_at > entry.noted_at && now.since(entry.noted_at) >= entry.lag {
            return Ok(Heard::Keep(keep(), progress));
        }
        let (lease, queue) = (entry.lease, Arc::clone(&entry.queue));
        entry.progress = Arc::clone(&progress);
        self.announcer.progress.put(worker.id, entry, generation);
        self.announcer.notifier.queue_feeds().job_changed(queue.namespace, &queue.name, worker.id);
        self.publish_progress(worker.id, lease, &progress);
        Ok(Heard::Held(progress))
    }

    /// The latest progress of a running job; `None` once its worker has not reported for long.
    pub async fn progress(&self, found: &FoundJob) -> Option<Arc<Progress>> {
        let State::Running(running) = &found.job.state else {
            return None;
        };
        let mut latest = self.known_progress(found.job.id, running);
        if self.is_shared
            && let Some(told) = self.peer_progress(found.job.id, running.lease).await
        {
            latest = Some(Arc::new(latest.map_or_else(|| told.clone(), |known| known.joined(&told))));
        }
        let now = self.clock.now();
        latest.filter(|progress| progress.is_fresh(now))
    }

    /// The progress that another node received in this hand-out, if it can be read.
    async fn peer_progress(&self, id: JobId, lease: Lease) -> Option<Progress> {
        let (hand_out, told) = self.peer_bus.progress(id).await?;
        (hand_out == LeaseDigest::of(lease) && is_credible(&told, self.clock.now())).then_some(told)
    }

    /// The same as far as this node knows.
    pub fn known_progress(&self, id: JobId, running: &Running) -> Option<Arc<Progress>> {
        let held = self.announcer.progress.get(id).filter(|entry| entry.lease == running.lease);
        let written = running.work.progress.clone();
        match (held.map(|entry| entry.progress), written) {
            (Some(held), Some(written)) if written.at > held.at => Some(Arc::new(held.joined(&written))),
            (Some(held), _) => Some(held),
            (None, written) => written,
        }
    }

    /// Publishes the persisted progress to watchers here, where no link to other nodes would.
    pub(crate) async fn publish_written_progress(&self, id: JobId) {
        let is_linked = self.peer_bus.link().is_some_and(|link| link.is_connected);
        if !self.is_shared || is_linked {
            return;
        }
        // After a failed read, the next page tries again.
        if let Ok(Some(found)) = self.store.job(&Reach::Everything, id).await
            && let State::Running(running) = &found.job.state
            && let Some(progress) = &running.work.progress
        {
            self.announcer.notifier.publish_progress(id, LeaseDigest::of(running.lease), progress);
        }
    }

    /// When work last moved in the present hand-out, as far as this node knows.
    pub fn moved_at(&self, id: JobId, running: &Running) -> Option<Timestamp> {
        self.announcer.progress.get(id).filter(|entry| entry.lease == running.lease).map(|entry| entry.moved_at)
    }

    /// The checkpoint and the names of the sections. `None` when there is no such job.
    pub async fn saved(&self, reach: &Reach, id: JobId) -> Result<Option<Artifacts>, Error> {
        self.store.artifacts(reach, id).await
    }

    pub async fn sections(
        &self,
        reach: &Reach,
        id: JobId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Option<Vec<Section>>, Error> {
        self.store.sections(reach, id, after, limit).await
    }

    pub async fn one_section(&self, reach: &Reach, id: JobId, name: &str) -> Result<Option<Section>, Error> {
        self.store.section(reach, id, name).await
    }

    fn next_progress(&self, known: Option<&Entry>, report: ProgressReport) -> Arc<Progress> {
        let before = known.map(|entry| &*entry.progress);
        Arc::new(Progress::after(before, report, self.clock.now()))
    }

    /// Carries out commands that persist progress, and caches it.
    async fn keep_all(&self, keeps: Vec<Keep>) -> Result<Vec<Result<Applied, Declined>>, Error> {
        if keeps.is_empty() {
            return Ok(Vec::new());
        }
        let (orders, said): (Vec<JobCommand>, Vec<_>) = keeps
            .into_iter()
            .map(|keep| {
                let generation = self.announcer.progress.generation(keep.order.id);
                (keep.order, (keep.progress, generation))
            })
            .unzip();
        let answers = self.jobs.apply(orders).await?;
        for (answer, (progress, generation)) in answers.iter().zip(said) {
            if let (Ok(applied), Some(progress)) = (answer, progress)
                && let Some(job) = &applied.running
            {
                self.remember(job, &applied.queue, progress, generation);
            }
        }
        Ok(answers)
    }

    fn remember(&self, job: &Job, queue: &Arc<Queue>, progress: Arc<Progress>, generation: u64) {
        let State::Running(running) = &job.state else {
            return;
        };
        let now = self.clock.now();
        let progress = match &running.work.progress {
            Some(written) => Arc::new(progress.joined(written)),
            None => progress,
        };
        let noted_at = job.work_summary.moved_at.unwrap_or(now);
        let entry = Entry {
            lease: running.lease,
            queue: Arc::clone(queue),
            progress: Arc::clone(&progress),
            moved_at: noted_at,
            noted_at,
            lag: move_lag(job, queue),
            checked_at: now,
            is_certain: true,
        };
        self.announcer.progress.put(job.id, entry, generation);
        self.publish_progress(job.id, running.lease, &progress);
    }

    /// Does the entry belong to the worker's hand-out? A worker without a lease means the present one.
    fn is_of(&self, entry: &Entry, worker: &Worker) -> bool {
        worker.lease.map_or_else(|| self.trusts(entry, worker), |lease| lease == entry.lease)
    }

    /// May a report be accepted without reading the store?
    fn trusts(&self, entry: &Entry, worker: &Worker) -> bool {
        let may_speak = match worker.lease {
            Some(lease) => lease == entry.lease,
            None => entry.queue.settings.fencing == outlast_core::queue::Fencing::Optional,
        };
        let is_recent = !self.is_shared || self.clock.now().since(entry.checked_at) < CHECKED_FOR;
        entry.is_certain && may_speak && is_recent && worker.reach.covers(&entry.queue)
    }

    /// Asks the store whether the worker holds the job. `None` for a hand-out that has not reported before.
    async fn check(&self, worker: &Worker) -> Result<Result<Option<Entry>, Declined>, Error> {
        self.announcer.counters.job_reads.add(1);
        let Some(found) = self.store.job(&worker.reach, worker.id).await? else {
            return Ok(Err(Declined::NotFound));
        };
        let running = match held(&found.job, &found.queue, worker.lease) {
            Ok(running) => running,
            Err(refusal) => return Ok(Err(Declined::Refused(refusal))),
        };
        let Some(noted_at) = found.job.work_summary.moved_at.filter(|at| *at >= running.began_at) else {
            return Ok(Ok(None));
        };
        let Some(progress) = self.progress(&found).await else {
            return Ok(Ok(None));
        };
        let held_at = self.moved_at(worker.id, running);
        Ok(Ok(Some(Entry {
            lease: running.lease,
            queue: Arc::clone(&found.queue),
            progress,
            moved_at: held_at.map_or(noted_at, |at| at.max(noted_at)),
            noted_at,
            lag: move_lag(&found.job, &found.queue),
            checked_at: self.clock.now(),
            is_certain: true,
        })))
    }

    /// Publishes progress to watchers here and to the other nodes.
    fn publish_progress(&self, id: JobId, lease: Lease, progress: &Arc<Progress>) {
        self.announcer.notifier.publish_progress(id, LeaseDigest::of(lease), progress);
        self.peer_bus.report(id, lease, progress);
    }
}

/// The answer to the only one.
fn only<T>(mut answers: Vec<Result<T, Declined>>) -> Result<Result<T, Declined>, Error> {
    Ok(answers.pop().unwrap_or(Err(Declined::NotFound)))
}

/// Can this progress be genuine? The channel between nodes is untrusted.
pub(crate) fn is_credible(progress: &Progress, now: Timestamp) -> bool {
    progress.at <= now.plus(AHEAD_MAX) && progress.started_at <= progress.at
}
