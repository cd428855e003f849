//! Hands a queued job out, or ends it if its time to start is over.

use std::time::Duration;

use crate::alarm::waiting_deadline;
use crate::change::{Change, Effect, Refusal};
use crate::entropy::{self, Entropy};
use crate::event::Reason;
use crate::gate::Hold;
use crate::state::{Phase, Running, State, Work};

use super::draft::Draft;
use super::{DELIVERY_GRACE, wake};

pub(super) fn claim(
    mut draft: Draft<'_>,
    phase: Phase,
    visibility: Option<Duration>,
    worker: Option<Box<str>>,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    let State::Queued { .. } = draft.job.state else {
        return Err(Refusal::NotQueued { status: draft.job.status() });
    };
    if waiting_deadline(&draft.job, draft.queue).is_some_and(|deadline| deadline <= draft.now) {
        return Ok(wake::give_up_waiting(draft));
    }
    let extension = match phase {
        Phase::Leased => visibility.unwrap_or_else(|| draft.job.visibility_timeout(draft.queue)),
        Phase::Delivering => draft.queue.settings.webhook_timeout + DELIVERY_GRACE,
        Phase::AwaitingAck => draft.job.ack_timeout(draft.queue),
    };
    draft.job.epoch += 1;
    draft.job.last = None;
    draft.job.started_at.get_or_insert(draft.now);
    let running = Running {
        phase,
        lease: entropy::lease(entropy),
        began_at: draft.now,
        expires_at: draft.now.plus(extension),
        extension,
        heartbeat_at: None,
        revoke_at: None,
        worker,
        upload: None,
        work: Work::default(),
    };
    if let Some(hold) = draft.queue.hold {
        draft.effect(Effect::SetHold(Some(Hold { probe: Some(draft.job.id), ..hold })));
    }
    if let Some(limit) = draft.queue.settings.rate_limit {
        draft.effect(Effect::SetPace(draft.queue.pace.after(1, limit, draft.now)));
    }
    draft.go(State::Running(running), Reason::Claimed);
    Ok(draft.change())
}
