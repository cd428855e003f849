//! Starts a job that failed or was cancelled again.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal, ScheduledDelete};
use crate::event::Reason;
use crate::job::Spec;
use crate::object::Role;
use crate::queue::Mode;
use crate::state::State;

use super::builder::TransitionBuilder;

pub(super) fn replay(
    mut builder: TransitionBuilder<'_>,
    fresh: bool,
    payload: Option<Arc<str>>,
) -> Result<Change, Refusal> {
    let (State::Failed { .. } | State::Cancelled { .. }) = builder.job.state else {
        return Err(Refusal::NotReplayable { status: builder.job.status() });
    };
    if payload.is_some() && builder.queue.settings.mode == Mode::Callback {
        return Err(Refusal::PayloadFixed);
    }
    if let Some(payload) = payload {
        builder.job.spec = Arc::new(Spec { payload, ..Spec::clone(&builder.job.spec) });
    }
    if fresh {
        builder.drop_checkpoints();
    }
    // An upload of the cancelled attempt is not the result of the next one.
    if std::mem::take(&mut builder.job.work_summary.has_upload) {
        builder.effect(Effect::ScheduleDelete(ScheduledDelete {
            role: Some(Role::Result),
            attached: true,
            at: builder.now,
        }));
    }
    let job = &mut builder.job;
    job.work_summary.moved_at = None;
    job.replays += 1;
    job.attempt = 1;
    job.deferrals = 0;
    job.opened_at = builder.now;
    job.started_at = None;
    job.last = None;
    job.last_error = None;
    let ready_at = builder.now;
    builder.go(State::Queued { ready_at }, Reason::Replayed);
    Ok(builder.change())
}
