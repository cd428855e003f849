//! Seats for streams: so many on this node, so many per key, and so many by tokens to one job: those who watch one job in a
//! browser do not take the seats of others. A stream is no request in flight, it may last an hour; this is what bounds it
//! instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::JobId;
use outlast_store::keys::KeyId;

use crate::call::Call;
use crate::error::{Code, Problem};
use crate::limits::Limits;

#[derive(Default)]
pub(crate) struct Seats(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    by_holder: HashMap<Holder, usize>,
}

/// Who shares a number of seats: a key, or all who hold tokens of it to one job.
type Holder = (KeyId, Option<JobId>);

/// One stream's place; free again when dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    holder: Holder,
}

impl Seats {
    pub(crate) fn take(call: &Call) -> Result<Seat, Problem> {
        let holder = (call.caller()?.key, call.token.as_ref().map(|token| token.job));
        call.seats.seat(holder, &call.limits)
    }

    fn seat(self: &Arc<Self>, holder: Holder, limits: &Limits) -> Result<Seat, Problem> {
        let mut taken = self.lock();
        if taken.by_holder.get(&holder).is_some_and(|count| *count >= limits.streams_per_key) {
            let whose = if holder.1.is_some() { "tokens to this job have" } else { "this key has" };
            let detail = format!("{whose} {} open streams, which is the limit; close one", limits.streams_per_key);
            return Err(Problem::new(Code::TooManyRequests, detail));
        }
        if taken.all >= limits.streams {
            return Err(Problem::new(Code::Overloaded, "too many streams are open on this server; try again"));
        }
        taken.all += 1;
        *taken.by_holder.entry(holder).or_insert(0) += 1;
        Ok(Seat { seats: Arc::clone(self), holder })
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
        if let Some(count) = taken.by_holder.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                taken.by_holder.remove(&self.holder);
            }
        }
    }
}
