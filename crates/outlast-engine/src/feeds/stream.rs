//! Following a job's log: first what is there, page by page, then what comes, until the job has ended. Woken by the job's
//! topic, never by a timer; the store is the only source, so no event is missed, repeated or out of order. All followers of a
//! job share their reads. Between events comes the latest progress, at most once a second, and always before the end.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outlast_core::{Event, EventKind, JobId, Progress, Status};
use outlast_store::Error;
use outlast_store::jobs::Reach;
use outlast_store::page::{EncodedSize, PageSize};
use tokio::time::{Instant, sleep, sleep_until};

use super::Feeds;
use super::log_tail::{Page, PageRead};
use super::progress_feed::ProgressFollower;
use crate::notifier::Listener;

/// Events read at once, for all followers of a job.
pub const PAGE_MAX: usize = 48;
/// Progress is shown no more often than this.
const PROGRESS_GAP: Duration = Duration::from_secs(1);
/// Bytes given out at once, as they are written, and so held for one slow reader; a single event may have more.
const GIVEN_BYTES_MAX: usize = 32 << 10;
/// The pause after a store error that will pass, before looking again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The answer to a request to follow a job from some event on.
pub enum Opened {
    Following(Follower),
    /// The job has ended and there is nothing after that event.
    Finished(JobEnd),
    /// The job has not come that far: no reader of this log can have seen that event.
    Beyond {
        last: u64,
    },
}

/// How a job has ended: its last state, after so many replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    pub status: Status,
    pub replays: u32,
}

/// A reader's place in the log of one job.
pub struct Follower {
    feeds: Arc<Feeds>,
    /// Checked when the follower was made; a job stays in its queue.
    reach: Reach,
    id: JobId,
    listener: Listener<JobId>,
    /// The last event that was given out.
    after: u64,
    /// That event ended the job.
    end: Option<JobEnd>,
    /// The reader got the last frame.
    is_over: bool,
    /// How far the bell had notified before the look that found no more.
    looked: Option<u64>,
    /// The last such epoch that the tail knows.
    caught_up: Option<u64>,
    /// Progress that was known when the follower was made, until it is shown.
    first: Option<Arc<Progress>>,
    progress: ProgressFollower,
    /// When progress was last shown.
    shown_at: Option<Instant>,
    /// Events that wait until progress from before them is shown.
    held_back: Option<Events>,
}

/// The next part of a stream.
pub enum Frame {
    Events(Events),
    Progress(Arc<Progress>),
    /// The job has ended, and everything was shown: the last frame.
    End(JobEnd),
}

/// Some events in a row, of a page that others may hold as well.
pub struct Events {
    page: Arc<[Event]>,
    skipped: usize,
    count: usize,
}

impl Deref for Events {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        self.page.get(self.skipped..self.skipped.saturating_add(self.count)).unwrap_or_default()
    }
}

impl Feeds {
    /// Follows a job from after the event `after` on. `None` when there is no such job.
    pub async fn follow(self: &Arc<Self>, reach: Reach, id: JobId, after: u64) -> Result<Option<Opened>, Error> {
        let Some(found) = self.jobs.job(&reach, id).await? else {
            return Ok(None);
        };
        let last = found.job.events;
        if after >= last && found.job.status().is_terminal() {
            let (status, replays) = (found.job.status(), found.job.replays);
            return Ok(Some(Opened::Finished(JobEnd { status, replays })));
        }
        if after > last {
            return Ok(Some(Opened::Beyond { last }));
        }
        let listener = self.announcer.notifier.listen_job(id, reach.namespace());
        let first = self.work.progress(&found).await;
        let progress = listener.progress().follow();
        listener.tail().join();
        Ok(Some(Opened::Following(Follower {
            feeds: Arc::clone(self),
            reach,
            id,
            listener,
            after,
            end: None,
            is_over: false,
            looked: None,
            caught_up: None,
            first,
            progress,
            shown_at: None,
            held_back: None,
        })))
    }
}

impl Follower {
    /// The next events, at least one, or the latest progress; the end once, as the last frame. `None` when there will be no
    /// more here: the end was shown, the job is gone, or the server stops. Cancel-safe: the place moves only with what is given out.
    pub async fn next(&mut self) -> Option<Frame> {
        if let Some(events) = self.held_back.take() {
            return Some(Frame::Events(events));
        }
        loop {
            // Wake-ups from here on are for a later read.
            let look = self.listener.look();
            if let Some(end) = self.end.filter(|_| self.looked.is_some() && !self.is_over) {
                self.is_over = true;
                return Some(Frame::End(end));
            }
            if self.is_over || self.feeds.lifecycle.is_draining() {
                return None;
            }
            if self.looked == Some(look) {
                tokio::select! {
                    biased;
                    () = self.listener.notified_since(look) => continue,
                    () = self.progress_due() => {}
                }
                if let Some(progress) = self.take_progress() {
                    return Some(Frame::Progress(progress));
                }
                continue;
            }
            let read = self.listener.tail().read(self.after, look, || self.read());
            match read.page.clone().await {
                Ok(Some(page)) => {
                    let events = self.take(&read, page, look);
                    if events.is_empty() {
                        continue;
                    }
                    // What was said before the end is shown before the end.
                    if self.end.is_some()
                        && let Some(progress) = self.take_progress()
                    {
                        // Without the rest of the page, which a slow reader would hold.
                        let (page, count): (Arc<[Event]>, _) = (Arc::from(&*events), events.len());
                        self.held_back = Some(Events { page, skipped: 0, count });
                        return Some(Frame::Progress(progress));
                    }
                    return Some(Frame::Events(events));
                }
                Ok(None) => return None,
                Err(Error::Unavailable | Error::Overloaded) => sleep(self.feeds.random.jitter(RETRY_PAUSE)).await,
                Err(error) => {
                    tracing::debug!(%error, "a log can be followed no further");
                    return None;
                }
            }
        }
    }

    /// Ends when there is progress to show, and its time has come. Cancel-safe.
    async fn progress_due(&self) {
        if self.first.is_none() {
            self.progress.changed().await;
        }
        if let Some(shown_at) = self.shown_at {
            sleep_until(shown_at + PROGRESS_GAP).await;
        }
    }

    /// The latest progress that was not shown yet.
    fn take_progress(&mut self) -> Option<Arc<Progress>> {
        let first = self.first.take();
        let progress = self.progress.take().or(first)?;
        self.shown_at = Some(Instant::now());
        Some(progress)
    }

    fn read(&self) -> BoxFuture<'static, Page> {
        let (feeds, reach, id, after) = (Arc::clone(&self.feeds), self.reach.clone(), self.id, self.after);
        let read = async move {
            feeds.announcer.counters.job_reads.add(1);
            let page = feeds.store.events(&reach, id, after, PAGE_MAX).await;
            feeds.work.publish_written_progress(id).await;
            page
        };
        read.map(|page| page.map(|events| events.map(Arc::from))).boxed()
    }

    /// Moves on by what a page holds for this reader, perhaps nothing.
    fn take(&mut self, read: &PageRead, page: Arc<[Event]>, look: u64) -> Events {
        let skipped = usize::try_from(self.after.saturating_sub(read.from)).unwrap_or(usize::MAX);
        let unseen = page.get(skipped..).unwrap_or_default();
        let count = fitting(unseen);
        // A full page may end with an end of a job that was replayed since: only a short one is the last. One that was
        // read before this look began may be out of date.
        let is_last = count == unseen.len() && !is_full(&page) && read.look >= look;
        self.looked = is_last.then_some(read.look);
        if is_last && self.caught_up != self.looked {
            self.caught_up = self.looked;
            self.listener.tail().caught_up(read.look);
        }
        let events = Events { page, skipped, count };
        if let Some(last) = events.last() {
            self.after = last.seq;
            self.end = end_of(last);
        }
        events
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.listener.tail().leave(self.caught_up);
    }
}

/// A full page may have a successor: it has as many events, or as many bytes, as a page may have.
pub(crate) fn is_full(page: &[Event]) -> bool {
    page.len() >= PAGE_MAX || PageSize::of(page).is_full()
}

/// How many of the events, but at least one, are given out together.
fn fitting(events: &[Event]) -> usize {
    let mut bytes = 0;
    let is_beyond = |event: &Event| {
        let is_beyond = bytes >= GIVEN_BYTES_MAX;
        bytes += event.written();
        is_beyond
    };
    events.iter().position(is_beyond).unwrap_or(events.len())
}

fn end_of(event: &Event) -> Option<JobEnd> {
    match event.kind {
        EventKind::State { to, replays, .. } if to.is_terminal() => Some(JobEnd { status: to, replays }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Timestamp;

    use super::*;

    fn output(bytes: usize) -> Event {
        let kind = EventKind::Output { attempt: 1, part: None, text: "x".repeat(bytes).into() };
        Event { seq: 1, at: Timestamp::EPOCH, kind }
    }

    fn escaped(bytes: usize) -> Event {
        let kind = EventKind::Output { attempt: 1, part: None, text: "\u{1}".repeat(bytes).into() };
        Event { seq: 1, at: Timestamp::EPOCH, kind }
    }

    #[test]
    fn what_is_given_out_at_once_is_bounded_and_never_nothing() {
        let long = vec![output(16 << 10); PAGE_MAX];

        assert_eq!(fitting(&[]), 0);
        assert_eq!(fitting(&[output(GIVEN_BYTES_MAX * 2), output(1)]), 1);
        assert_eq!(fitting(&long), GIVEN_BYTES_MAX / (16 << 10));
        assert_eq!(fitting(&vec![escaped(GIVEN_BYTES_MAX / 12); PAGE_MAX]), 2, "as they are written");
        assert_eq!(fitting(&vec![output(10); PAGE_MAX]), PAGE_MAX);
    }
}
