//! The holder saves one finished part of the work.

use std::sync::Arc;

use crate::change::{Change, Effect, Refusal};
use crate::checkpoint::Section;
use crate::event::EventKind;
use crate::ids::Lease;

use super::draft::Draft;
use super::{go_on, holder};

pub(super) fn section(mut draft: Draft<'_>, lease: Option<Lease>, section: Arc<Section>) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.work.is_stalled = false;
    let section = Arc::new(Section { at: draft.now, ..Section::clone(&section) });
    draft.job.headway.has_sections = true;
    draft.job.headway.moved_at = Some(draft.now);
    draft.event(EventKind::Checkpoint {
        schema_version: 0,
        section: Some(section.name.clone()),
        length: u64::try_from(section.body.len()).unwrap_or(u64::MAX),
    });
    draft.effect(Effect::KeepSection(section));
    Ok(go_on(draft, running))
}
