//! Following a job's log: first what is there, page by page, then what comes, until the run has ended. Woken by the job's
//! bell, never by a clock of its own; the store is the only source, so no event is missed, repeated or out of order.

use std::time::Duration;

use outlast_core::{Event, EventKind, JobId};
use outlast_store::Error;
use outlast_store::jobs::Reach;
use tokio::time::sleep;

use crate::engine::Engine;
use crate::wakes::Bell;

/// Events read, and held for a slow reader, at once. With the longest errors and excerpts that is a quarter of a MiB.
pub const PAGE_MAX: usize = 48;
/// The pause after a store error that will pass, before looking again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What comes of asking to follow a job from some event on.
pub enum Opened {
    Following(Follower),
    /// The run has ended and there is nothing after that event.
    Finished,
    /// The job has not come that far: no reader of this log can have seen that event.
    Beyond {
        last: u64,
    },
}

/// A reader's place in the log of one job.
pub struct Follower {
    engine: Engine,
    reach: Reach,
    id: JobId,
    bell: Bell<JobId>,
    /// The last event that was given out.
    after: u64,
    /// That event ended the run.
    has_ended: bool,
    /// How far the bell had rung before the look that found no more.
    looked: Option<u64>,
}

impl Engine {
    /// Follows a job from after the event `after` on. `None` when there is no such job.
    pub async fn follow(&self, reach: Reach, id: JobId, after: u64) -> Result<Option<Opened>, Error> {
        let Some(found) = self.shared.store.job(&reach, id).await? else {
            return Ok(None);
        };
        let last = found.job.events;
        if after >= last && found.job.status().is_terminal() {
            return Ok(Some(Opened::Finished));
        }
        if after > last {
            return Ok(Some(Opened::Beyond { last }));
        }
        let (engine, bell) = (self.clone(), self.shared.wakes.watch_job(id));
        Ok(Some(Opened::Following(Follower { engine, reach, id, bell, after, has_ended: false, looked: None })))
    }
}

impl Follower {
    /// The next events, at least one. `None` when there will be no more here: the run has ended, the job is gone, or the
    /// server stops. Cancel-safe: the place moves only with what is given out.
    pub async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            // Rings from here on are for a later look.
            let look = self.bell.look();
            if self.engine.is_draining() || (self.has_ended && self.looked.is_some()) {
                return None;
            }
            if self.looked == Some(look) {
                self.bell.rung_since(look).await;
                continue;
            }
            let store = &self.engine.shared.store;
            match store.events(&self.reach, self.id, self.after, PAGE_MAX).await {
                Ok(Some(events)) => {
                    // A full page may end with the end of a run that was replayed since: only a short one is the last.
                    self.looked = (events.len() < PAGE_MAX).then_some(look);
                    if let Some(last) = events.last() {
                        self.after = last.seq;
                        self.has_ended = ends_run(last);
                        return Some(events);
                    }
                }
                Ok(None) => return None,
                Err(Error::Unavailable | Error::Overloaded) => sleep(self.engine.jitter(RETRY_PAUSE)).await,
                Err(error) => {
                    tracing::debug!(%error, "a log can be followed no further");
                    return None;
                }
            }
        }
    }
}

fn ends_run(event: &Event) -> bool {
    matches!(&event.kind, EventKind::State { to, .. } if to.is_terminal())
}
