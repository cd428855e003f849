//! The holder announces an object that it will write.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal};
use crate::ids::Lease;
use crate::object::Object;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

pub(super) fn upload(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    object: Arc<Object>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    running.work.has_uploads = true;
    builder.effect(Effect::Expect(object));
    Ok(go_on(builder, running))
}
