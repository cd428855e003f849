//! The database's clock as this node knows it: what the database last said, carried on by the monotonic clock. All nodes
//! so agree on the time whatever their own clocks say. Deadlines are decided by the time a transaction is given by the
//! database itself; this clock only says when it is worth looking.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outlast_core::{Clock, Timestamp};
use tokio::time::Instant;

/// An answer is late by the way it took, so of all answers within this time the earliest is the best.
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct DatabaseClock {
    started: Instant,
    /// Database time minus time since start, in milliseconds.
    offset: Mutex<Offset>,
    /// The latest time decided by, and the latest one shown: neither goes back within a process.
    decided: AtomicI64,
    shown: AtomicI64,
}

#[derive(Debug)]
struct Offset {
    since: Instant,
    present: i64,
    before: i64,
}

impl DatabaseClock {
    pub(super) fn new(database_now: Timestamp) -> DatabaseClock {
        let now = Instant::now();
        let millis = database_now.as_millis();
        let offset = Mutex::new(Offset { since: now, present: millis, before: millis });
        DatabaseClock { started: now, offset, decided: AtomicI64::new(millis), shown: AtomicI64::new(millis) }
    }

    /// The database has just said what time it is. Gives the time to decide by.
    pub(super) fn learn(&self, database_now: Timestamp) -> Timestamp {
        let seen = database_now.as_millis().saturating_sub(self.elapsed());
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        if offset.since.elapsed() > WINDOW {
            *offset = Offset { since: Instant::now(), before: offset.present, present: seen };
        }
        offset.present = offset.present.max(seen);
        drop(offset);
        latest(&self.decided, database_now.as_millis())
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let offset = {
            let offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
            offset.present.max(offset.before)
        };
        let now = offset.saturating_add(self.elapsed());
        latest(&self.shown, now)
    }
}

fn latest(known: &AtomicI64, millis: i64) -> Timestamp {
    Timestamp::from_millis(known.fetch_max(millis, Ordering::SeqCst).max(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_database_and_never_goes_back() {
        let clock = DatabaseClock::new(Timestamp::from_millis(1_000_000));

        assert_eq!(clock.learn(Timestamp::from_millis(2_000_000)), Timestamp::from_millis(2_000_000));
        assert_eq!(clock.learn(Timestamp::from_millis(1_500_000)), Timestamp::from_millis(2_000_000));

        assert!(clock.now() >= Timestamp::from_millis(2_000_000));
        assert!(clock.now() < Timestamp::from_millis(2_060_000));
    }
}
