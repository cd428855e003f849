//! An endpoint in ack mode has taken a delivery: the outcome comes later.

use crate::change::{Change, Effect, Refusal};
use crate::event::Reason;
use crate::gate::{Hold, HoldCause};
use crate::ids::Lease;
use crate::state::{Phase, State};

use super::builder::TransitionBuilder;

pub(super) fn receipt(mut builder: TransitionBuilder<'_>, lease: Lease) -> Result<Change, Refusal> {
    let Some(mut running) = builder.running() else {
        // The worker may report before the webhook's own answer arrives: then the receipt says nothing new.
        let reported = builder.job.last.is_some_and(|last| last.lease == lease && last.how.is_report());
        return if reported { Ok(Change::None) } else { Err(Refusal::LeaseLost) };
    };
    if running.lease != lease {
        return Err(Refusal::LeaseLost);
    }
    if running.phase != Phase::Delivering {
        return Ok(Change::None);
    }
    running.phase = Phase::AwaitingAck;
    running.extension = builder.job.ack_timeout(builder.queue);
    let expires_at = builder.now.plus(running.extension);
    // A heartbeat may have come before the answer; what it gave is not taken back.
    running.expires_at = running.heartbeat_at.map_or(expires_at, |_| expires_at.max(running.expires_at));
    running.heartbeat_at.get_or_insert(builder.now);
    // The endpoint takes jobs again. A worker's own wish is another matter: that ends with the outcome.
    let probes = |hold: &Hold| hold.probe == Some(builder.job.id) && hold.cause != HoldCause::Deferred;
    if builder.queue.hold.as_ref().is_some_and(probes) {
        builder.effect(Effect::SetHold(None));
    }
    builder.go(State::Running(running), Reason::Received);
    Ok(builder.change())
}
