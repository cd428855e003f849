//! The holder saves what a later attempt resumes from.

use std::sync::Arc;

use crate::change::{Change, Doom, Effect, Refusal};
use crate::checkpoint::{Checkpoint, Data};
use crate::event::EventKind;
use crate::ids::Lease;
use crate::object::Role;
use crate::progress::Progress;
use crate::state::Running;

use super::draft::Draft;
use super::progress::take_progress;
use super::{go_on, holder};

/// A checkpoint proves life, but only a heartbeat extends the lease.
pub(super) fn checkpoint(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    checkpoint: Arc<Checkpoint>,
    progress: Option<Arc<Progress>>,
) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    if let Some(progress) = &progress {
        take_progress(&mut draft, &mut running, progress);
    }
    keep_checkpoint(&mut draft, &mut running, checkpoint);
    Ok(go_on(draft, running))
}

pub(super) fn keep_checkpoint(draft: &mut Draft<'_>, running: &mut Running, checkpoint: Arc<Checkpoint>) {
    let checkpoint = Arc::new(Checkpoint {
        at: draft.now,
        replays: draft.job.replays,
        attempt: draft.job.attempt,
        ..Checkpoint::clone(&checkpoint)
    });
    running.work.directives.checkpoint_now = false;
    let has_earlier = std::mem::replace(&mut draft.job.headway.has_checkpoint, true);
    draft.event(EventKind::Checkpoint {
        schema_version: checkpoint.schema_version,
        section: None,
        length: checkpoint.length(),
    });
    if has_earlier {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Checkpoint), kept: true, at: draft.now }));
    }
    if let Data::Object(object) = &checkpoint.data {
        draft.effect(Effect::Keep(Arc::clone(object)));
    }
    draft.effect(Effect::KeepCheckpoint(checkpoint));
}
