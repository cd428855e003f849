//! Starts a job that failed or was cancelled again.

use std::sync::Arc;

use crate::change::{Change, Doom, Effect, Refusal};
use crate::event::Reason;
use crate::job::Spec;
use crate::object::Role;
use crate::queue::Mode;
use crate::state::State;

use super::draft::Draft;

pub(super) fn replay(mut draft: Draft<'_>, fresh: bool, payload: Option<Arc<str>>) -> Result<Change, Refusal> {
    let (State::Failed { .. } | State::Cancelled { .. }) = draft.job.state else {
        return Err(Refusal::NotReplayable { status: draft.job.status() });
    };
    if payload.is_some() && draft.queue.settings.mode == Mode::Callback {
        return Err(Refusal::PayloadFixed);
    }
    if let Some(payload) = payload {
        draft.job.spec = Arc::new(Spec { payload, ..Spec::clone(&draft.job.spec) });
    }
    if fresh {
        draft.drop_checkpoints();
    }
    // What the cancelled attempt had uploaded is not the result of the next one.
    if std::mem::take(&mut draft.job.headway.has_upload) {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Result), kept: true, at: draft.now }));
    }
    let job = &mut draft.job;
    job.headway.moved_at = None;
    job.replays += 1;
    job.attempt = 1;
    job.deferrals = 0;
    job.opened_at = draft.now;
    job.started_at = None;
    job.last = None;
    job.last_error = None;
    let ready_at = draft.now;
    draft.go(State::Queued { ready_at }, Reason::Replayed);
    Ok(draft.change())
}
