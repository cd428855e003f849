//! A time in which no node could serve: the server was paused, stopped or without its database. The holder of a lease
//! could not extend it then, so its deadline moves.

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
    /// The new end of a lease whose deadline has passed: later by the length of the outage, and never more than one
    /// `extension` after its end, by which time a living holder has reported. `None` when the outage does not concern
    /// the lease, or when it was extended already.
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
