//! The end of a job's log, read once for all who follow it: whoever looks first begins to read, and the others take what he
//! gets. It hangs on the job's bell, holds one page, and lets go of it as soon as all have seen it.
//!
//! A reading belongs to nobody: each who waits for it drives it on, so that one who leaves or is slow holds up none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use outlast_core::Event;
use outlast_store::Error;

use crate::stream::{PAGE_MAX, is_full};

/// Up to [`PAGE_MAX`] events; `None` when the job is gone.
pub(crate) type Page = Result<Option<Arc<[Event]>>, Error>;

#[derive(Default)]
pub(crate) struct Tail(Mutex<State>);

#[derive(Default)]
struct State {
    followers: usize,
    reading: Option<Reading>,
    settled: Settled,
}

/// How many followers know all there was when the bell had rung so often.
#[derive(Default)]
struct Settled {
    look: u64,
    count: usize,
}

/// A page that is being read, or was.
#[derive(Clone)]
pub(crate) struct Reading {
    /// It begins after this event.
    pub(crate) from: u64,
    /// How far the bell had rung before it began.
    pub(crate) look: u64,
    pub(crate) page: Shared<BoxFuture<'static, Page>>,
}

impl Reading {
    /// May it hold what comes after `after`, or tell that nothing has come up to `look`?
    fn serves(&self, after: u64, look: u64) -> bool {
        if after < self.from {
            return false;
        }
        match self.page.peek() {
            // Also if it began before the last ring: two at once would read much the same.
            None => after < plus(self.from, PAGE_MAX),
            Some(Ok(Some(events))) => after < plus(self.from, events.len()) || (self.look >= look && !is_full(events)),
            Some(Ok(None)) => true,
            Some(Err(_)) => false,
        }
    }
}

fn plus(from: u64, count: usize) -> u64 {
    from.saturating_add(u64::try_from(count).unwrap_or(u64::MAX))
}

impl Tail {
    pub(crate) fn join(&self) {
        self.lock().followers += 1;
    }

    /// A follower is gone who had settled at that look.
    pub(crate) fn leave(&self, settled: Option<u64>) {
        let mut state = self.lock();
        state.followers = state.followers.saturating_sub(1);
        if settled == Some(state.settled.look) {
            state.settled.count = state.settled.count.saturating_sub(1);
        }
        state.let_go();
    }

    /// What to wait for, for one who has seen the log up to `after` and began to look at `look`. `begin` reads the page
    /// after that.
    pub(crate) fn reading(&self, after: u64, look: u64, begin: impl FnOnce() -> BoxFuture<'static, Page>) -> Reading {
        let mut state = self.lock();
        if let Some(present) = state.reading.as_ref().filter(|present| present.serves(after, look)) {
            return present.clone();
        }
        let reading = Reading { from: after, look, page: begin().shared() };
        // Who is far behind reads for himself alone: the others wait for what is new.
        if state.reading.as_ref().is_none_or(|present| plus(after, PAGE_MAX) > present.from) {
            state.reading = Some(reading.clone());
        }
        reading
    }

    /// A follower has seen all there was at that look; he says so once per look.
    pub(crate) fn settle(&self, look: u64) {
        let mut state = self.lock();
        if look > state.settled.look {
            state.settled = Settled { look, count: 0 };
        }
        if look == state.settled.look {
            state.settled.count += 1;
        }
        state.let_go();
    }

    #[cfg(test)]
    fn holds_page(&self) -> bool {
        self.lock().reading.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the page when nobody is left who would take it.
    fn let_go(&mut self) {
        if self.settled.count >= self.followers {
            self.reading = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::{EventKind, Timestamp};

    use super::*;

    fn page(from: u64, count: usize) -> Page {
        let note = |seq| Event { seq, at: Timestamp::EPOCH, kind: EventKind::Note { text: "".into() } };
        Ok(Some((from + 1..).take(count).map(note).collect()))
    }

    fn ready(page: Page) -> BoxFuture<'static, Page> {
        async move { page }.boxed()
    }

    fn never() -> BoxFuture<'static, Page> {
        unreachable!("nobody has to read")
    }

    #[tokio::test]
    async fn what_one_has_read_the_others_take_until_all_have_it() {
        let tail = Tail::default();
        (0..3).for_each(|_| tail.join());

        let _ = tail.reading(5, 1, || ready(page(5, 2))).page.await;
        tail.settle(1);
        for place in [5, 6, 7] {
            assert_eq!(tail.reading(place, 1, never).from, 5, "after {place}");
        }
        tail.settle(1);
        assert!(tail.holds_page());
        tail.settle(1);

        assert!(!tail.holds_page());
    }

    #[tokio::test]
    async fn a_page_from_before_a_ring_serves_only_those_it_has_news_for() {
        let tail = Tail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.reading(5, 1, || ready(page(5, 2))).page.await;

        assert_eq!(tail.reading(6, 2, never).from, 5);
        let newer = tail.reading(7, 2, || ready(page(7, 0)));

        assert_eq!((newer.from, newer.look), (7, 2));
    }

    #[tokio::test]
    async fn a_full_page_is_not_the_end_and_a_failed_one_is_tried_again() {
        let tail = Tail::default();
        tail.join();
        let end = plus(0, PAGE_MAX);
        let _ = tail.reading(0, 1, || ready(page(0, PAGE_MAX))).page.await;

        let failed = tail.reading(end, 1, || ready(Err(Error::Unavailable)));
        assert!(failed.page.await.is_err());
        let again = tail.reading(end, 1, || ready(page(end, 1)));

        assert!(again.page.await.is_ok());
    }

    #[tokio::test]
    async fn who_is_far_behind_does_not_take_the_page_from_the_others() {
        let tail = Tail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.reading(500, 1, || ready(page(500, 1))).page.await;

        let _ = tail.reading(0, 1, || ready(page(0, PAGE_MAX))).page.await;

        assert_eq!(tail.reading(500, 1, never).from, 500);
    }

    #[tokio::test]
    async fn those_who_leave_are_not_waited_for() {
        let tail = Tail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.reading(5, 1, || ready(page(5, 2))).page.await;
        tail.settle(1);
        assert!(tail.holds_page());

        tail.leave(None);

        assert!(!tail.holds_page());
    }
}
