//! The loop that looks at what was marked and shows it to those who follow. It sleeps while nobody follows a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{JobId, Queue, State};
use outlast_store::Error;
use outlast_store::jobs::Reach;
use outlast_store::queues::Counts;
use tokio::time::{Instant, sleep, sleep_until};

use super::{JobSight, Marks, Place, Sight};
use crate::engine::Engine;

/// Marks gather for so long: what changes several times in it is looked at once.
const GATHER: Duration = Duration::from_millis(100);
/// The queue and its counts are looked at no more often; counting may cost a store a lot.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

/// A job whose queue nobody has told costs a look even if nobody follows that queue. So many a second are looked up.
const STRAYS_A_SECOND: u32 = 500;

/// What the followers of a queue were shown last.
#[derive(Default)]
struct Shown {
    looked_at: Option<Instant>,
    queue: Option<(Arc<Queue>, Counts)>,
    /// What could not be looked at yet.
    left: Marks,
}

type Memory = BTreeMap<Place, Shown>;

/// The loop's own memory.
struct Rounds {
    memory: Memory,
    /// No strays are looked up before.
    strays_at: Instant,
    has_strays: bool,
}

impl Engine {
    pub(crate) async fn run_boards(self) {
        let mut stopping = self.stopping();
        let mut rounds = Rounds { memory: Memory::new(), strays_at: Instant::now(), has_strays: false };
        let mut patrol_at = self.next_patrol();
        while !*stopping.borrow() {
            let boards = self.shared.wakes.boards();
            let due = rounds.due();
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = boards.marked.notified() => {}
                () = at(due) => {}
                () = at(patrol_at.filter(|_| !boards.is_silent())) => {
                    boards.patrol();
                    patrol_at = self.next_patrol();
                }
            }
            tokio::select! {
                biased;
                _ = stopping.changed() => continue,
                () = sleep(GATHER) => {}
            }
            self.show(&mut rounds).await;
        }
        tracing::debug!("the boards have ended");
    }

    /// Never on an embedded store, where every change is marked.
    fn next_patrol(&self) -> Option<Instant> {
        self.shared.live.floor().map(|floor| Instant::now() + self.jitter(floor))
    }

    /// One round: takes all marks, looks, tells.
    async fn show(&self, rounds: &mut Rounds) {
        self.take_marks(&mut rounds.memory);
        let mut jobs = self.take_strays(rounds);
        for shown in rounds.memory.values_mut() {
            jobs.append(&mut shown.left.jobs);
        }
        for id in jobs {
            if let Err(error) = self.show_job(id, &mut rounds.memory).await {
                tracing::debug!(%error, "a board could not be kept up");
                rounds.memory.values_mut().for_each(|shown| shown.left.lose());
                break;
            }
        }
        for (place, shown) in &mut rounds.memory {
            if shown.due().is_some_and(|due| due <= Instant::now()) {
                self.show_queue(place, shown).await;
            }
        }
    }

    /// Adds new marks to those that are left, and forgets queues that nobody follows.
    fn take_marks(&self, memory: &mut Memory) {
        let mut state = self.shared.wakes.boards().lock();
        memory.retain(|place, _| state.boards.contains_key(place));
        for (place, board) in &mut state.boards {
            let marks = std::mem::take(&mut board.marks);
            let left = &mut memory.entry(place.clone()).or_default().left;
            left.is_lost |= marks.is_lost;
            left.is_stale |= marks.is_stale;
            left.is_unsure |= marks.is_unsure;
            left.is_counted |= marks.is_counted;
            marks.jobs.into_iter().for_each(|id| left.add_job(id));
        }
    }

    /// Jobs whose queue has to be looked up; too many of them, and every board begins again.
    fn take_strays(&self, rounds: &mut Rounds) -> BTreeSet<JobId> {
        let mut state = self.shared.wakes.boards().lock();
        rounds.has_strays = state.strays != Marks::default();
        if !rounds.has_strays || Instant::now() < rounds.strays_at {
            return BTreeSet::new();
        }
        let strays = std::mem::take(&mut state.strays);
        if strays.is_lost {
            rounds.memory.values_mut().for_each(|shown| shown.left.lose());
        }
        let count = u32::try_from(strays.jobs.len()).unwrap_or(u32::MAX);
        rounds.has_strays = false;
        rounds.strays_at = Instant::now() + Duration::from_secs(1) * count / STRAYS_A_SECOND;
        strays.jobs
    }

    async fn show_job(&self, id: JobId, memory: &mut Memory) -> Result<(), Error> {
        self.shared.meters.job_reads.add(1);
        let Some(found) = self.shared.store.job(&Reach::Everything, id).await? else {
            return Ok(());
        };
        let place: Place = (found.queue.namespace, Arc::from(found.queue.name.as_str()));
        if let Some(shown) = memory.get_mut(&place) {
            shown.left.is_counted = true;
            let progress = match &found.job.state {
                State::Running(running) => self.known_progress(id, running),
                _ => None,
            };
            self.tell(&place, Sight::Job(JobSight::of(&found.job, progress, self.now())));
        }
        Ok(())
    }

    async fn show_queue(&self, place: &Place, shown: &mut Shown) {
        shown.looked_at = Some(Instant::now());
        let (queue, counts) = match self.shared.store.queue(place.0, &place.1).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.shared.wakes.boards().lock().boards.remove(place);
                return;
            }
            // What is left stays left.
            Err(_) => return,
        };
        let left = std::mem::take(&mut shown.left);
        let before = shown.queue.replace((Arc::clone(&queue), counts));
        let has_other_counts = before.as_ref().is_none_or(|(_, before)| *before != counts);
        // Before the first look its followers may have seen anything.
        let is_other = left.is_stale && before.is_none_or(|(before, _)| before != queue);
        let was_missed = has_other_counts && left.is_unsure && !left.is_counted;
        if left.is_lost {
            self.tell(place, Sight::Resync);
        } else if is_other || was_missed {
            self.tell(place, Sight::Queue(queue, counts));
        } else if has_other_counts {
            self.tell(place, Sight::Counts(counts));
        }
    }

    fn tell(&self, place: &Place, sight: Sight) {
        let state = self.shared.wakes.boards().lock();
        if let Some(board) = state.boards.get(place) {
            // Nobody may listen any more; then there is nobody to tell.
            let _ = board.sights.send(sight);
        }
    }
}

impl Rounds {
    /// When there is something to do even if nothing more is marked.
    fn due(&self) -> Option<Instant> {
        let strays_at = self.has_strays.then_some(self.strays_at);
        self.memory.values().filter_map(Shown::due).chain(strays_at).min()
    }
}

impl Shown {
    /// When the queue is to be looked at, if it is.
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
