//! The holder saves what a later attempt resumes from.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal, ScheduledDelete};
use crate::checkpoint::{Checkpoint, CheckpointData};
use crate::event::EventKind;
use crate::ids::Lease;
use crate::object::Role;
use crate::progress::Progress;
use crate::state::Running;

use super::builder::TransitionBuilder;
use super::progress::take_progress;
use super::{go_on, holder};

/// A checkpoint proves life, but only a heartbeat extends the lease.
pub(super) fn checkpoint(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    checkpoint: Arc<Checkpoint>,
    progress: Option<Arc<Progress>>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    if let Some(progress) = &progress {
        take_progress(&mut builder, &mut running, progress);
    }
    keep_checkpoint(&mut builder, &mut running, checkpoint);
    Ok(go_on(builder, running))
}

pub(super) fn keep_checkpoint(builder: &mut TransitionBuilder<'_>, running: &mut Running, checkpoint: Arc<Checkpoint>) {
    let checkpoint = Arc::new(Checkpoint {
        at: builder.now,
        replays: builder.job.replays,
        attempt: builder.job.attempt,
        ..Checkpoint::clone(&checkpoint)
    });
    running.work.directives.checkpoint_now = false;
    let has_earlier = std::mem::replace(&mut builder.job.work_summary.has_checkpoint, true);
    builder.event(EventKind::Checkpoint {
        schema_version: checkpoint.schema_version,
        section: None,
        length: checkpoint.length(),
    });
    if has_earlier {
        builder.effect(Effect::ScheduleDelete(ScheduledDelete {
            role: Some(Role::Checkpoint),
            attached: true,
            at: builder.now,
        }));
    }
    if let CheckpointData::Object(object) = &checkpoint.data {
        builder.effect(Effect::Keep(Arc::clone(object)));
    }
    builder.effect(Effect::KeepCheckpoint(checkpoint));
}
