//! The room for deliveries on this node, shared by all lanes: nobody may have more than what is still free. So one lane
//! alone gets half of it, and a lane that has nothing under way always gets one place, whatever others have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct Room(Arc<State>);

struct State {
    max: usize,
    taken: AtomicUsize,
    freed: Notify,
}

impl Room {
    pub(crate) fn new(max: usize) -> Room {
        Room(Arc::new(State { max: max.max(2), taken: AtomicUsize::new(0), freed: Notify::new() }))
    }

    /// Places for up to `wanted` more deliveries of a lane that has `mine` already; perhaps none.
    pub(crate) fn take(&self, mine: usize, wanted: usize) -> Places {
        let mut count = 0;
        let update = self.0.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
            let share = self.0.max.saturating_sub(taken).saturating_sub(mine).div_ceil(2);
            // One for a lane that has none, even if others have taken all there is.
            count = share.max(usize::from(mine == 0)).min(wanted);
            Some(taken + count)
        });
        debug_assert!(update.is_ok());
        Places { room: self.clone(), count }
    }

    fn give_back(&self, count: usize) {
        if count > 0 {
            self.0.taken.fetch_sub(count, Ordering::SeqCst);
            self.0.freed.notify_waiters();
        }
    }

    /// Rings when a delivery has ended.
    pub(crate) fn freed(&self) -> &Notify {
        &self.0.freed
    }

    pub(crate) fn taken(&self) -> usize {
        self.0.taken.load(Ordering::SeqCst)
    }

    /// Waits until nothing is under way.
    pub(crate) async fn empty(&self) {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            freed.as_mut().enable();
            if self.taken() == 0 {
                return;
            }
            freed.await;
        }
    }
}

/// Places that no delivery has yet. A claim asks for many and mostly finds few jobs, so they are one number, and what is
/// left goes back at once.
pub(crate) struct Places {
    room: Room,
    count: usize,
}

impl Places {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives back all but `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        let surplus = self.count.saturating_sub(count);
        self.count -= surplus;
        self.room.give_back(surplus);
    }
}

impl Iterator for Places {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        self.count = self.count.checked_sub(1)?;
        Some(Place(self.room.clone()))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.room.give_back(self.count);
    }
}

/// Held while a delivery is under way; dropping it makes room.
pub(crate) struct Place(Room);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.give_back(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as much as it can get.
    fn greedy(room: &Room) -> Vec<Place> {
        let mut mine = Vec::new();
        loop {
            let more = room.take(mine.len(), 10);
            if more.is_empty() {
                return mine;
            }
            mine.extend(more);
        }
    }

    #[test]
    fn one_lane_gets_half_and_each_further_one_half_of_the_rest() {
        let room = Room::new(100);

        let lanes = [greedy(&room), greedy(&room), greedy(&room), greedy(&room)];

        assert_eq!(lanes.each_ref().map(Vec::len), [50, 25, 13, 6]);
        drop(lanes);
        assert_eq!(room.taken(), 0);
        assert_eq!(room.take(0, 3).len(), 3);
    }

    #[test]
    fn places_without_a_delivery_go_back() {
        let room = Room::new(100);

        let mut places = room.take(0, 10);
        let mine = places.next();
        places.truncate(5);
        assert_eq!((places.len(), room.taken()), (5, 6));
        drop(places);

        assert_eq!(room.taken(), 1);
        drop(mine);
        assert_eq!(room.taken(), 0);
    }
}
