//! Seats for streams: so many on this node, so many per key. A stream is no request in flight, it may last an hour; this
//! is what bounds it instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_store::keys::KeyId;

use crate::error::{Code, Problem};
use crate::limits::Limits;

#[derive(Default)]
pub(crate) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    by_key: HashMap<KeyId, usize>,
}

/// One stream's place; free again when dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    key: KeyId,
}

impl Seats {
    pub(crate) fn take(self: &Arc<Self>, key: KeyId, limits: &Limits) -> Result<Seat, Problem> {
        let mut taken = self.lock();
        if taken.by_key.get(&key).is_some_and(|count| *count >= limits.streams_per_key) {
            let detail = format!("this key has {} open streams, which is its limit; close one", limits.streams_per_key);
            return Err(Problem::new(Code::TooManyRequests, detail));
        }
        if taken.all >= limits.streams {
            return Err(Problem::new(Code::Overloaded, "too many streams are open on this server; try again"));
        }
        taken.all += 1;
        *taken.by_key.entry(key).or_insert(0) += 1;
        Ok(Seat { seats: Arc::clone(self), key })
    }

    /// Open streams.
    pub(crate) fn count(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        taken.all -= 1;
        if let Some(count) = taken.by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.by_key.remove(&self.key);
            }
        }
    }
}
