//! The holder saves one finished part of the work.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal};
use crate::checkpoint::Section;
use crate::event::EventKind;
use crate::ids::Lease;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

pub(super) fn section(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    section: Arc<Section>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    running.work.is_stalled = false;
    let section = Arc::new(Section { at: builder.now, ..Section::clone(&section) });
    builder.job.work_summary.has_sections = true;
    builder.job.work_summary.moved_at = Some(builder.now);
    builder.event(EventKind::Checkpoint {
        schema_version: 0,
        section: Some(section.name.clone()),
        length: u64::try_from(section.body.len()).unwrap_or(u64::MAX),
    });
    builder.effect(Effect::KeepSection(section));
    Ok(go_on(builder, running))
}
