//! The end of a job's log, read once for all followers: the first follower begins a read, and the others share its result. Part
//! of the job's topic; it holds one page, and drops it as soon as all followers have seen it.
//!
//! The read is a shared future that any waiter polls, so a slow or dropped waiter blocks nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use outlast_core::Event;
use outlast_store::Error;

use super::stream::{PAGE_MAX, is_full};

/// Up to [`PAGE_MAX`] events; `None` when the job is gone.
pub(crate) type Page = Result<Option<Arc<[Event]>>, Error>;

#[derive(Default)]
pub(crate) struct SharedTail(Mutex<State>);

#[derive(Default)]
struct State {
    followers: usize,
    read: Option<PageRead>,
    caught_up: CaughtUp,
}

/// How many followers have seen the whole log as of an epoch of the topic.
#[derive(Default)]
struct CaughtUp {
    look: u64,
    count: usize,
}

/// A page that is being read, or was.
#[derive(Clone)]
pub(crate) struct PageRead {
    /// It begins after this event.
    pub(crate) from: u64,
    /// The epoch of the topic before it began.
    pub(crate) look: u64,
    pub(crate) page: Shared<BoxFuture<'static, Page>>,
}

impl PageRead {
    /// May it hold events after `after`, or show that there are none up to the epoch `look`?
    fn serves(&self, after: u64, look: u64) -> bool {
        if after < self.from {
            return false;
        }
        match self.page.peek() {
            // Also if it began before the last wake-up: a second read at the same time would return much the same.
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

impl SharedTail {
    pub(crate) fn join(&self) {
        self.lock().followers += 1;
    }

    /// A follower leaves that had caught up with that epoch.
    pub(crate) fn leave(&self, caught_up: Option<u64>) {
        let mut state = self.lock();
        state.followers = state.followers.saturating_sub(1);
        if caught_up == Some(state.caught_up.look) {
            state.caught_up.count = state.caught_up.count.saturating_sub(1);
        }
        state.let_go();
    }

    /// The read to wait for, for a follower that has seen the log up to `after` and began at the epoch `look`. `begin` reads the
    /// page after that.
    pub(crate) fn read(&self, after: u64, look: u64, begin: impl FnOnce() -> BoxFuture<'static, Page>) -> PageRead {
        let mut state = self.lock();
        if let Some(present) = state.read.as_ref().filter(|present| present.serves(after, look)) {
            return present.clone();
        }
        let read = PageRead { from: after, look, page: begin().shared() };
        // A follower that is far behind reads alone: the others wait for new events.
        if state.read.as_ref().is_none_or(|present| plus(after, PAGE_MAX) > present.from) {
            state.read = Some(read.clone());
        }
        read
    }

    /// A follower has seen the whole log as of that epoch; it says so once per epoch.
    pub(crate) fn caught_up(&self, look: u64) {
        let mut state = self.lock();
        if look > state.caught_up.look {
            state.caught_up = CaughtUp { look, count: 0 };
        }
        if look == state.caught_up.look {
            state.caught_up.count += 1;
        }
        state.let_go();
    }

    #[cfg(test)]
    fn holds_page(&self) -> bool {
        self.lock().read.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the page when no follower will take it.
    fn let_go(&mut self) {
        if self.caught_up.count >= self.followers {
            self.read = None;
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
        let tail = SharedTail::default();
        (0..3).for_each(|_| tail.join());

        let _ = tail.read(5, 1, || ready(page(5, 2))).page.await;
        tail.caught_up(1);
        for place in [5, 6, 7] {
            assert_eq!(tail.read(place, 1, never).from, 5, "after {place}");
        }
        tail.caught_up(1);
        assert!(tail.holds_page());
        tail.caught_up(1);

        assert!(!tail.holds_page());
    }

    #[tokio::test]
    async fn a_page_from_before_a_ring_serves_only_those_it_has_news_for() {
        let tail = SharedTail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.read(5, 1, || ready(page(5, 2))).page.await;

        assert_eq!(tail.read(6, 2, never).from, 5);
        let newer = tail.read(7, 2, || ready(page(7, 0)));

        assert_eq!((newer.from, newer.look), (7, 2));
    }

    #[tokio::test]
    async fn a_full_page_is_not_the_end_and_a_failed_one_is_tried_again() {
        let tail = SharedTail::default();
        tail.join();
        let end = plus(0, PAGE_MAX);
        let _ = tail.read(0, 1, || ready(page(0, PAGE_MAX))).page.await;

        let failed = tail.read(end, 1, || ready(Err(Error::Unavailable)));
        assert!(failed.page.await.is_err());
        let again = tail.read(end, 1, || ready(page(end, 1)));

        assert!(again.page.await.is_ok());
    }

    #[tokio::test]
    async fn who_is_far_behind_does_not_take_the_page_from_the_others() {
        let tail = SharedTail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.read(500, 1, || ready(page(500, 1))).page.await;

        let _ = tail.read(0, 1, || ready(page(0, PAGE_MAX))).page.await;

        assert_eq!(tail.read(500, 1, never).from, 500);
    }

    #[tokio::test]
    async fn those_who_leave_are_not_waited_for() {
        let tail = SharedTail::default();
        (0..2).for_each(|_| tail.join());
        let _ = tail.read(5, 1, || ready(page(5, 2))).page.await;
        tail.caught_up(1);
        assert!(tail.holds_page());

        tail.leave(None);

        assert!(!tail.holds_page());
    }
}
