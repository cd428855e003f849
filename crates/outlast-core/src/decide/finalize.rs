//! An object that the holder has written becomes the result of its hand-out.

use std::sync::Arc;

use crate::change::{Change, Doom, Effect, Refusal};
use crate::ids::Lease;
use crate::object::{Object, Role};
use crate::state::ResultMeta;

use super::draft::Draft;
use super::{go_on, holder};

/// A later upload of the same hand-out takes the place of an earlier one.
pub(super) fn finalize(mut draft: Draft<'_>, lease: Option<Lease>, object: Arc<Object>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.upload = Some(ResultMeta { length: object.length, inline: false });
    if std::mem::replace(&mut draft.job.headway.has_upload, true) {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Result), kept: true, at: draft.now }));
    }
    draft.effect(Effect::Keep(object));
    Ok(go_on(draft, running))
}
