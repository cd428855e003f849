//! The holder writes to the job's log.

use std::sync::Arc;

use crate::change::{Change, OUTPUT_BYTES_MAX, Refusal};
use crate::event::EventKind;
use crate::ids::Lease;
use crate::state::OutputPart;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

pub(super) fn output(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    part: Option<u64>,
    text: Arc<str>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    let next = running.work.last_part.map_or(1, |last| last.part + 1);
    match part {
        // The worker lost the answer to this part and sends it again.
        Some(part) if part < next => return Ok(Change::None),
        Some(part) if part > next => return Err(Refusal::OutputGap { next }),
        _ => {}
    }
    let bytes = builder.job.work_summary.output_bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Refusal::OutputFull);
    }
    builder.job.work_summary.output_bytes = bytes;
    let attempt = builder.job.attempt;
    builder.event(EventKind::Output { attempt, part, text });
    if let Some(part) = part {
        running.work.last_part = Some(OutputPart { part, seq: builder.job.events });
    }
    Ok(go_on(builder, running))
}
