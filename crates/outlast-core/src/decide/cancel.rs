//! Cancels a waiting job at once; asks the holder of a running one to stop.

use crate::change::Change;
use crate::event::Reason;
use crate::state::{CancelReason, State};

use super::draft::Draft;

pub(super) fn cancel(mut draft: Draft<'_>, reason: CancelReason) -> Change {
    match draft.job.state.clone() {
        State::Pending { .. } | State::Queued { .. } => {
            draft.cancelled(reason);
            draft.change()
        }
        State::Running(mut running) if running.revoke_at.is_none() => {
            running.revoke_at = Some(draft.now.plus(draft.queue.settings.drain_timeout));
            draft.go(State::Running(running), Reason::CancelRequested);
            draft.change()
        }
        State::Running(_)
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Expired { .. } => Change::None,
    }
}
