//! How far this node has read the ready list of each queue. Jobs that were handed out leave dead entries at the front
//! of the index until the next vacuum; a claim that starts behind them does not skip them again and again.
//!
//! A cursor is a hint. Jobs that this node inserts before it move it back immediately; jobs of other nodes are found by
//! the full scan that is due now and then.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::codec::row::IndexEntry;
use outlast_core::QueueId;
use tokio::time::Instant;

/// A place in the line: priority, age, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyRank {
    pub(super) place: i16,
    pub(super) ready_at: i64,
    pub(super) seq: i64,
}

impl ReadyRank {
    /// Before everything.
    const FIRST: ReadyRank = ReadyRank { place: i16::MIN, ready_at: i64::MIN, seq: i64::MIN };

    pub(super) fn of(place: &IndexEntry, seq: i64) -> ReadyRank {
        ReadyRank { place: 100 - i16::from(place.priority), ready_at: place.ready_at.as_millis(), seq }
    }
}

/// A whole look is due at least this often, so this is how long another node's job may stand unseen in front of a mark.
const WHOLE_EVERY: Duration = Duration::from_millis(50);
/// Whole looks may take one part in so many of the time, as long as they are not put off longer than this.
const WHOLE_SHARE: u32 = 20;
const WHOLE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Own inserts that are remembered while a look is under way.
const INSERTS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct ClaimCursors(Mutex<HashMap<QueueId, ClaimCursor>>);

#[derive(Debug, Default)]
struct ClaimCursor {
    reached: Option<ReadyRank>,
    whole_at: Option<Instant>,
    whole_took: Duration,
    /// The first rank of each insert of this node, with its number.
    inserts: VecDeque<(u64, ReadyRank)>,
    inserted: u64,
}

impl ClaimCursor {
    /// How long until a whole look is due.
    fn due_in(&self) -> Duration {
        let pause = (self.whole_took * WHOLE_SHARE).clamp(WHOLE_EVERY, WHOLE_PAUSE_MAX);
        self.whole_at.map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()))
    }
}

/// A look that is about to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct CursorScan {
    pub(super) from: ReadyRank,
    began: Instant,
    inserted: u64,
    is_whole: bool,
}

impl ClaimCursors {
    pub(super) fn look(&self, queue: QueueId) -> CursorScan {
        let mut cursors = self.lock();
        let mark = cursors.entry(queue).or_default();
        let reached = mark.reached.filter(|_| !mark.due_in().is_zero());
        CursorScan {
            from: reached.unwrap_or(ReadyRank::FIRST),
            began: Instant::now(),
            inserted: mark.inserted,
            is_whole: reached.is_none(),
        }
    }

    /// Records the result of a scan: the last job it took, and whether there may be more behind it. Returns the time
    /// after which another scan may find jobs that this one could not see.
    pub(super) fn seen(
        &self,
        queue: QueueId,
        look: CursorScan,
        last: Option<ReadyRank>,
        is_full: bool,
    ) -> Option<Duration> {
        let mut cursors = self.lock();
        let mark = cursors.entry(queue).or_default();
        if look.is_whole {
            mark.whole_at = Some(look.began);
            mark.whole_took = look.began.elapsed();
        }
        let reached = if is_full { last } else { last.max(mark.reached) };
        let meanwhile = mark.inserts.iter().filter(|(number, _)| *number >= look.inserted);
        let forgotten = mark.inserts.front().is_some_and(|(first, _)| *first > look.inserted);
        let earliest = meanwhile.map(|(_, rank)| *rank).min();
        mark.reached = match earliest {
            _ if forgotten => None,
            Some(earliest) => reached.map(|reached| reached.min(earliest)),
            None => reached,
        };
        (!look.is_whole && !is_full).then(|| mark.due_in())
    }

    /// This node has committed jobs to the line, the first of each queue at this rank.
    pub(super) fn inserted(&self, firsts: &BTreeMap<QueueId, ReadyRank>) {
        let mut cursors = self.lock();
        for (queue, rank) in firsts {
            let mark = cursors.entry(*queue).or_default();
            mark.reached = mark.reached.map(|reached| reached.min(*rank));
            mark.inserts.push_back((mark.inserted, *rank));
            mark.inserted += 1;
            if mark.inserts.len() > INSERTS_MAX {
                mark.inserts.pop_front();
            }
        }
    }

    /// A look took this job and left it in line.
    pub(super) fn left(&self, queue: QueueId, rank: ReadyRank) {
        let mut cursors = self.lock();
        let mark = cursors.entry(queue).or_default();
        mark.reached = mark.reached.map(|reached| reached.min(rank));
    }

    /// A transaction did not end as expected: what it took may be back in line.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueId, ClaimCursor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueId = QueueId(1);

    fn rank(seq: i64) -> ReadyRank {
        ReadyRank { place: 100, ready_at: 0, seq }
    }

    #[test]
    fn a_look_begins_where_the_last_one_ended() {
        let cursors = ClaimCursors::default();
        let whole = cursors.look(QUEUE);
        assert_eq!((whole.from, whole.is_whole), (ReadyRank::FIRST, true));
        assert_eq!(cursors.seen(QUEUE, whole, Some(rank(10)), true), None);

        let next = cursors.look(QUEUE);

        assert_eq!((next.from, next.is_whole), (rank(10), false));
        let again = cursors.seen(QUEUE, next, None, false).expect("something of another node may stand in front");
        assert!(again <= WHOLE_EVERY, "{again:?}");
        cursors.forget();
        assert!(cursors.look(QUEUE).is_whole);
    }

    #[test]
    fn what_this_node_puts_in_front_moves_the_mark_back() {
        let cursors = ClaimCursors::default();
        cursors.seen(QUEUE, cursors.look(QUEUE), Some(rank(10)), true);

        cursors.inserted(&BTreeMap::from([(QUEUE, rank(4))]));
        assert_eq!(cursors.look(QUEUE).from, rank(4));

        // Committed while the look was under way, which did not see it.
        let look = cursors.look(QUEUE);
        cursors.inserted(&BTreeMap::from([(QUEUE, rank(7))]));
        cursors.seen(QUEUE, look, Some(rank(20)), true);
        assert_eq!(cursors.look(QUEUE).from, rank(7));
    }

    #[test]
    fn too_many_inserts_to_remember_forget_the_mark() {
        let cursors = ClaimCursors::default();
        let look = cursors.look(QUEUE);
        for seq in 0..100 {
            cursors.inserted(&BTreeMap::from([(QUEUE, rank(1000 + seq))]));
        }

        cursors.seen(QUEUE, look, Some(rank(20)), true);

        assert!(cursors.look(QUEUE).is_whole);
    }
}
