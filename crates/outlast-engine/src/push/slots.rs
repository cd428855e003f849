//! The slots for deliveries on this node, shared by all dispatchers: none may hold more than are still free. So a single
//! dispatcher gets half of them, and a dispatcher without a delivery always gets one slot, whatever others hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct DeliverySlots(Arc<State>);

struct State {
    max: usize,
    taken: AtomicUsize,
    freed: Notify,
}

impl DeliverySlots {
    pub(crate) fn new(max: usize) -> DeliverySlots {
        DeliverySlots(Arc::new(State { max: max.max(2), taken: AtomicUsize::new(0), freed: Notify::new() }))
    }

    /// Slots for up to `wanted` more deliveries of a dispatcher that holds `mine` already; perhaps none.
    pub(crate) fn take(&self, mine: usize, wanted: usize) -> Reserved {
        let mut count = 0;
        let update = self.0.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
            let share = self.0.max.saturating_sub(taken).saturating_sub(mine).div_ceil(2);
            // One for a dispatcher that has none, even if others have taken all.
            count = share.max(usize::from(mine == 0)).min(wanted);
            Some(taken + count)
        });
        debug_assert!(update.is_ok());
        Reserved { slots: self.clone(), count }
    }

    fn give_back(&self, count: usize) {
        if count > 0 {
            self.0.taken.fetch_sub(count, Ordering::SeqCst);
            self.0.freed.notify_waiters();
        }
    }

    /// Notified when a delivery has ended.
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

/// Slots without a delivery. A claim asks for many and mostly finds few jobs, so they are one number, and the rest goes back
/// at once.
pub(crate) struct Reserved {
    slots: DeliverySlots,
    count: usize,
}

impl Reserved {
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
        self.slots.give_back(surplus);
    }
}

impl Iterator for Reserved {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        self.count = self.count.checked_sub(1)?;
        Some(Slot(self.slots.clone()))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.slots.give_back(self.count);
    }
}

/// Held while a delivery is under way; dropping it frees the slot.
pub(crate) struct Slot(DeliverySlots);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.give_back(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as much as it can get.
    fn greedy(slots: &DeliverySlots) -> Vec<Slot> {
        let mut mine = Vec::new();
        loop {
            let more = slots.take(mine.len(), 10);
            if more.is_empty() {
                return mine;
            }
            mine.extend(more);
        }
    }

    #[test]
    fn one_lane_gets_half_and_each_further_one_half_of_the_rest() {
        let slots = DeliverySlots::new(100);

        let dispatchers = [greedy(&slots), greedy(&slots), greedy(&slots), greedy(&slots)];

        assert_eq!(dispatchers.each_ref().map(Vec::len), [50, 25, 13, 6]);
        drop(dispatchers);
        assert_eq!(slots.taken(), 0);
        assert_eq!(slots.take(0, 3).len(), 3);
    }

    #[test]
    fn slots_without_a_delivery_go_back() {
        let slots = DeliverySlots::new(100);

        let mut reserved = slots.take(0, 10);
        let mine = reserved.next();
        reserved.truncate(5);
        assert_eq!((reserved.len(), slots.taken()), (5, 6));
        drop(reserved);

        assert_eq!(slots.taken(), 1);
        drop(mine);
        assert_eq!(slots.taken(), 0);
    }
}
