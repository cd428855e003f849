//! An object that the holder has written becomes the result of its hand-out.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal, ScheduledDelete};
use crate::ids::Lease;
use crate::object::{Object, Role};
use crate::state::ResultMeta;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

/// A later upload of the same hand-out takes the place of an earlier one.
pub(super) fn finalize(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    object: Arc<Object>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    running.upload = Some(ResultMeta { length: object.length, inline: false });
    if std::mem::replace(&mut builder.job.work_summary.has_upload, true) {
        builder.effect(Effect::ScheduleDelete(ScheduledDelete {
            role: Some(Role::Result),
            attached: true,
            at: builder.now,
        }));
    }
    builder.effect(Effect::Keep(object));
    Ok(go_on(builder, running))
}
