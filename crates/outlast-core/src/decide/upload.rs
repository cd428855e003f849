//! The holder announces an object that it will write.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal};
use crate::ids::Lease;
use crate::object::Object;

use super::draft::Draft;
use super::{go_on, holder};

pub(super) fn upload(mut draft: Draft<'_>, lease: Option<Lease>, object: Arc<Object>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.work.has_uploads = true;
    draft.effect(Effect::Expect(object));
    Ok(go_on(draft, running))
}
