//! The loop that reads dirty jobs and publishes them to the followers. It sleeps while no queue has followers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{JobId, Queue, State};
use outlast_store::Error;
use outlast_store::jobs::Reach;
use outlast_store::queues::QueueCounts;
use tokio::time::{Instant, sleep, sleep_until};

use super::{DirtySet, JobSummary, QueueEvent, QueueName};
use crate::feeds::Feeds;

/// Changes gather for this long: a job that changes several times is read once.
const GATHER: Duration = Duration::from_millis(100);
/// The queue and its counts are read no more often; counting may be expensive for a store.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// A job of an unknown queue costs a read even if its queue has no followers. So many a second are read.
const UNPLACED_PER_SECOND: u32 = 500;

/// The last events of a queue's feed.
#[derive(Default)]
struct Shown {
    looked_at: Option<Instant>,
    queue: Option<(Arc<Queue>, QueueCounts)>,
    /// Not read yet.
    left: DirtySet,
}

type ShownQueues = BTreeMap<QueueName, Shown>;

/// The state of the loop.
struct Publisher {
    memory: ShownQueues,
    /// Jobs of unknown queues are not read before.
    unplaced_at: Instant,
    has_unplaced: bool,
}

impl Feeds {
    pub(crate) async fn run_queue_feeds(self: Arc<Self>) {
        let mut stopping = self.lifecycle.stopping();
        let mut publisher = Publisher { memory: ShownQueues::new(), unplaced_at: Instant::now(), has_unplaced: false };
        let mut patrol_at = self.next_patrol();
        while !*stopping.borrow() {
            let feeds = self.announcer.notifier.queue_feeds();
            let due = publisher.due();
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = feeds.marked.notified() => {}
                () = at(due) => {}
                () = at(patrol_at.filter(|_| !feeds.has_no_listeners())) => {
                    feeds.patrol();
                    patrol_at = self.next_patrol();
                }
            }
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = sleep(GATHER) => {}
            }
            self.show(&mut publisher).await;
        }
        tracing::debug!("the feeds have ended");
    }

    /// Never on an embedded store, where every change is marked.
    fn next_patrol(&self) -> Option<Instant> {
        self.peer_bus.poll_interval().map(|floor| Instant::now() + self.random.jitter(floor))
    }

    /// One round: takes all dirty sets, reads, publishes.
    async fn show(&self, publisher: &mut Publisher) {
        self.take_dirty(&mut publisher.memory);
        let mut jobs = self.take_unplaced(publisher);
        for shown in publisher.memory.values_mut() {
            jobs.append(&mut shown.left.jobs);
        }
        for id in jobs {
            if let Err(error) = self.show_job(id, &mut publisher.memory).await {
                tracing::debug!(%error, "a feed could not be kept up");
                publisher.memory.values_mut().for_each(|shown| shown.left.lose());
                break;
            }
        }
        for (name, shown) in &mut publisher.memory {
            if shown.due().is_some_and(|due| due <= Instant::now()) {
                self.show_queue(name, shown).await;
            }
        }
    }

    /// Adds new dirty jobs to those that are left, and drops queues without followers.
    fn take_dirty(&self, memory: &mut ShownQueues) {
        let mut state = self.announcer.notifier.queue_feeds().lock();
        memory.retain(|name, _| state.feeds.contains_key(name));
        for (name, feed) in &mut state.feeds {
            let dirty = std::mem::take(&mut feed.dirty);
            let left = &mut memory.entry(name.clone()).or_default().left;
            left.is_lost |= dirty.is_lost;
            left.is_stale |= dirty.is_stale;
            left.is_unsure |= dirty.is_unsure;
            left.is_counted |= dirty.is_counted;
            dirty.jobs.into_iter().for_each(|id| left.add_job(id));
        }
    }

    /// Jobs whose queue has to be read; too many of them, and every feed starts over.
    fn take_unplaced(&self, publisher: &mut Publisher) -> BTreeSet<JobId> {
        let mut state = self.announcer.notifier.queue_feeds().lock();
        publisher.has_unplaced = state.unplaced != DirtySet::default();
        if !publisher.has_unplaced || Instant::now() < publisher.unplaced_at {
            return BTreeSet::new();
        }
        let unplaced = std::mem::take(&mut state.unplaced);
        if unplaced.is_lost {
            publisher.memory.values_mut().for_each(|shown| shown.left.lose());
        }
        let count = u32::try_from(unplaced.jobs.len()).unwrap_or(u32::MAX);
        publisher.has_unplaced = false;
        publisher.unplaced_at = Instant::now() + Duration::from_secs(1) * count / UNPLACED_PER_SECOND;
        unplaced.jobs
    }

    async fn show_job(&self, id: JobId, memory: &mut ShownQueues) -> Result<(), Error> {
        self.announcer.counters.job_reads.add(1);
        let Some(found) = self.store.job(&Reach::Everything, id).await? else {
            return Ok(());
        };
        let name: QueueName = (found.queue.namespace, Arc::from(found.queue.name.as_str()));
        if let Some(shown) = memory.get_mut(&name) {
            shown.left.is_counted = true;
            let progress = match &found.job.state {
                State::Running(running) => self.work.known_progress(id, running),
                _ => None,
            };
            self.tell(&name, QueueEvent::Job(JobSummary::of(&found.job, progress, self.clock.now())));
        }
        Ok(())
    }

    async fn show_queue(&self, name: &QueueName, shown: &mut Shown) {
        shown.looked_at = Some(Instant::now());
        let (queue, counts) = match self.store.queue(name.0, &name.1).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.announcer.notifier.queue_feeds().lock().feeds.remove(name);
                return;
            }
            // The dirty set stays for the next round.
            Err(_) => return,
        };
        let left = std::mem::take(&mut shown.left);
        let before = shown.queue.replace((Arc::clone(&queue), counts));
        let has_other_counts = before.as_ref().is_none_or(|(_, before)| *before != counts);
        // Before the first read its followers may have seen any state.
        let is_other = left.is_stale && before.is_none_or(|(before, _)| before != queue);
        let was_missed = has_other_counts && left.is_unsure && !left.is_counted;
        if left.is_lost {
            self.tell(name, QueueEvent::Resync);
        } else if is_other || was_missed {
            self.tell(name, QueueEvent::Queue(queue, counts));
        } else if has_other_counts {
            self.tell(name, QueueEvent::Counts(counts));
        }
    }

    fn tell(&self, name: &QueueName, sight: QueueEvent) {
        let state = self.announcer.notifier.queue_feeds().lock();
        if let Some(feed) = state.feeds.get(name) {
            // The last follower may just have left.
            let _ = feed.events.send(sight);
        }
    }
}

impl Publisher {
    /// When there is something to do even if nothing more is marked.
    fn due(&self) -> Option<Instant> {
        let unplaced_at = self.has_unplaced.then_some(self.unplaced_at);
        self.memory.values().filter_map(Shown::due).chain(unplaced_at).min()
    }
}

impl Shown {
    /// When the queue must be read, if it must.
    fn due(&self) -> Option<Instant> {
        let left = &self.left;
        let is_wanted = left.is_lost || left.is_stale || left.is_unsure || left.is_counted || self.queue.is_none();
        is_wanted.then(|| self.looked_at.map_or_else(Instant::now, |looked_at| looked_at + COUNT_PAUSE))
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
