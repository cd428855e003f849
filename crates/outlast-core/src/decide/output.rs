//! The holder writes to the job's log.

use std::sync::Arc;

use crate::change::{Change, OUTPUT_BYTES_MAX, Refusal};
use crate::event::EventKind;
use crate::ids::Lease;

use super::draft::Draft;
use super::{go_on, holder};

pub(super) fn output(mut draft: Draft<'_>, lease: Option<Lease>, text: Arc<str>) -> Result<Change, Refusal> {
    let running = holder(&draft, lease)?;
    let bytes = draft.job.headway.output_bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Refusal::OutputFull);
    }
    draft.job.headway.output_bytes = bytes;
    let attempt = draft.job.attempt;
    draft.event(EventKind::Output { attempt, text });
    Ok(go_on(draft, running))
}
