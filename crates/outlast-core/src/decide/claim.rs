//! Hands a queued job out, or cancels it if its `startBy` has passed.

use std::time::Duration;

use crate::alarm::waiting_deadline;
use crate::change::{Change, Effect, Refusal};
use crate::entropy::{self, Entropy};
use crate::event::Reason;
use crate::gate::Hold;
use crate::state::{Phase, Running, State, Work};

use super::builder::TransitionBuilder;
use super::{DELIVERY_GRACE, wake};

pub(super) fn claim(
    mut builder: TransitionBuilder<'_>,
    phase: Phase,
    visibility: Option<Duration>,
    worker: Option<Box<str>>,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    let State::Queued { .. } = builder.job.state else {
        return Err(Refusal::NotQueued { status: builder.job.status() });
    };
    if waiting_deadline(&builder.job, builder.queue).is_some_and(|deadline| deadline <= builder.now) {
        return Ok(wake::give_up_waiting(builder));
    }
    let extension = match phase {
        Phase::Leased => visibility.unwrap_or_else(|| builder.job.visibility_timeout(builder.queue)),
        Phase::Delivering => builder.queue.settings.webhook_timeout + DELIVERY_GRACE,
        Phase::AwaitingAck => builder.job.ack_timeout(builder.queue),
    };
    builder.job.epoch += 1;
    builder.job.last = None;
    builder.job.started_at.get_or_insert(builder.now);
    let running = Running {
        phase,
        lease: entropy::lease(entropy),
        began_at: builder.now,
        expires_at: builder.now.plus(extension),
        extension,
        heartbeat_at: None,
        revoke_at: None,
        worker,
        upload: None,
        work: Work::default(),
    };
    if let Some(hold) = builder.queue.hold {
        builder.effect(Effect::SetHold(Some(Hold { probe: Some(builder.job.id), ..hold })));
    }
    if let Some(limit) = builder.queue.settings.rate_limit {
        builder.effect(Effect::SetGcra(builder.queue.gcra.after(1, limit, builder.now)));
    }
    builder.go(State::Running(running), Reason::Claimed);
    Ok(builder.change())
}
