//! Watchdog of a connection: its current activity, since when, and whether that is too long. Two atomics per request
//! instead of a timer per request, and no timer that ticks: the watchdog is polled with its connection and sleeps until
//! the next deadline.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::Settings;
use super::head::Faults;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Between two requests.
    Idle,
    /// In the middle of a request's head.
    Head,
    /// A request is being answered; its own deadlines apply.
    Answering,
    /// An answer without end is being written: as long as it takes, if only its reader takes it.
    Streaming,
    /// The same of a large answer whose length is known; its reader keeps a least rate.
    Sending,
    /// The same of bytes that come from an object store.
    Downloading,
}

pub(super) struct Activity {
    started: Instant,
    doing: AtomicU8,
    since_millis: AtomicU64,
    /// Since when there is something to write that the other side does not take; `NEVER` if there is not.
    blocked_millis: AtomicU64,
    /// The faults of the current request's head, as `Faults::bits`.
    faults: AtomicU8,
    /// Bytes written since the present state began.
    written_bytes: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Activity {
    pub(super) fn new() -> Activity {
        Activity {
            started: Instant::now(),
            doing: AtomicU8::new(Doing::Head as u8),
            since_millis: AtomicU64::new(0),
            blocked_millis: AtomicU64::new(NEVER),
            faults: AtomicU8::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn set(&self, doing: Doing) {
        self.since_millis.store(self.elapsed_millis(), Ordering::Relaxed);
        self.written_bytes.store(0, Ordering::Relaxed);
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    pub(super) fn bytes_read(&self) {
        if self.doing() == Doing::Idle {
            self.set(Doing::Head);
        }
    }

    /// A write was tried, and took so much, or nothing.
    pub(super) fn bytes_written(&self, taken: Option<usize>) {
        let took = taken.is_some();
        if matches!(self.doing(), Doing::Sending | Doing::Downloading) {
            let taken = u64::try_from(taken.unwrap_or(0)).unwrap_or(0);
            self.written_bytes.fetch_add(taken, Ordering::Relaxed);
        }
        let is_blocked = self.blocked_millis.load(Ordering::Relaxed) != NEVER;
        if took && is_blocked {
            self.blocked_millis.store(NEVER, Ordering::Relaxed);
        }
        if !took && !is_blocked {
            self.blocked_millis.store(self.elapsed_millis(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.doing() == Doing::Idle
    }

    pub(super) fn note(&self, faults: Faults) {
        self.faults.store(faults.bits(), Ordering::Relaxed);
    }

    /// Of the request that has just been read.
    pub(super) fn take_faults(&self) -> Faults {
        Faults::from_bits(self.faults.swap(0, Ordering::Relaxed))
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(NEVER)
    }

    pub(super) fn doing(&self) -> Doing {
        let code = self.doing.load(Ordering::Relaxed);
        let others = [Doing::Idle, Doing::Head, Doing::Streaming, Doing::Sending, Doing::Downloading];
        others.into_iter().find(|doing| *doing as u8 == code).unwrap_or(Doing::Answering)
    }

    /// When the present state will have lasted too long.
    fn deadline(&self, settings: &Settings) -> Option<Instant> {
        let since = Some(self.since_millis.load(Ordering::Relaxed));
        let blocked = Some(self.blocked_millis.load(Ordering::Relaxed)).filter(|blocked| *blocked != NEVER);
        let after = |millis: u64, allowed: Duration| self.started + Duration::from_millis(millis) + allowed;
        let unread = blocked.map(|blocked| after(blocked, settings.write_idle));
        match self.doing() {
            Doing::Head => since.map(|since| after(since, settings.head)),
            // Also while the end of an answer is not read.
            Doing::Idle => since.map(|since| after(since, settings.keep_alive)).into_iter().chain(unread).min(),
            Doing::Streaming => unread,
            // Each byte that was read buys time; only a reader that makes the server wait can be too slow.
            Doing::Sending | Doing::Downloading => unread.map(|unread| {
                let written = self.written_bytes.load(Ordering::Relaxed);
                let rate = u64::try_from(settings.write_bytes_per_second.max(1)).unwrap_or(u64::MAX);
                let bought = Duration::from_millis(written.saturating_mul(1000) / rate);
                unread.min(after(self.since_millis.load(Ordering::Relaxed), settings.write_idle + bought))
            }),
            Doing::Answering => None,
        }
    }
}

/// Ready when the connection has overstayed, with the moment by which it should have moved on; then it can be asked
/// again. Must be polled in the task of the connection and after it.
pub(super) struct Watchdog<'a> {
    activity: &'a Activity,
    settings: &'a Settings,
    /// Made when the connection first waits for its peer.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(activity: &'a Activity, settings: &'a Settings) -> Watchdog<'a> {
        Watchdog { activity, settings, sleep: None }
    }
}

impl Future for Watchdog<'_> {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        loop {
            let Some(deadline) = self.activity.deadline(self.settings) else {
                return Poll::Pending;
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            // A later deadline is found out when the earlier one rings: most requests then move no timer at all.
            if deadline < sleep.deadline() || sleep.is_elapsed() {
                sleep.as_mut().reset(deadline);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline <= Instant::now() {
                return Poll::Ready(deadline);
            }
        }
    }
}
