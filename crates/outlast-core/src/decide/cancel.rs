//! Cancels a waiting job at once; asks the holder of a running one to stop.

use crate::change::Change;
use crate::event::Reason;
use crate::state::{CancelReason, State};

use super::builder::TransitionBuilder;

pub(super) fn cancel(mut builder: TransitionBuilder<'_>, reason: CancelReason) -> Change {
    match builder.job.state.clone() {
        State::Pending { .. } | State::Queued { .. } => {
            builder.cancelled(reason);
            builder.change()
        }
        State::Running(mut running) if running.revoke_at.is_none() => {
            running.revoke_at = Some(builder.now.plus(builder.queue.settings.drain_timeout));
            builder.go(State::Running(running), Reason::CancelRequested);
            builder.change()
        }
        State::Running(_)
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Expired { .. } => Change::None,
    }
}
