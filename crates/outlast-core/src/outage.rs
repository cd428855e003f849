//! A time in which nobody could be heard: the server was paused, stopped or without its database. Who held a lease then
//! could not keep it, so its deadline moves.

use std::time::Duration;

use crate::state::Running;
use crate::time::Timestamp;

/// From the last sign of life to the first one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Outage {
    /// Until when a lease lasts whose deadline has passed: as much longer as the outage was, and never more than one
    /// `extension` beyond its end, by which a living holder has been heard. `None` when it has nothing to do with it, or
    /// has had its grace.
    pub(crate) fn grace(&self, running: &Running, deadline: Timestamp, extension: Duration) -> Option<Timestamp> {
        let heard_at = running.heartbeat_at.unwrap_or(running.began_at);
        let had_grace = running.work.grace_until.is_some_and(|until| until >= self.to);
        if heard_at > self.to || deadline < self.from || had_grace {
            return None;
        }
        let longer = deadline.plus(self.to.since(self.from));
        Some(longer.min(self.to.plus(extension))).filter(|until| *until > deadline)
    }
}
