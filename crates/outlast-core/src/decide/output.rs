//! The holder writes to the job's log.

use std::sync::Arc;

use crate::change::{Change, OUTPUT_BYTES_MAX, Refusal};
use crate::event::EventKind;
use crate::ids::Lease;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

pub(super) fn output(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    text: Arc<str>,
) -> Result<Change, Refusal> {
    let running = holder(&builder, lease)?;
    let bytes = builder.job.work_summary.output_bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
    if bytes > OUTPUT_BYTES_MAX {
        return Err(Refusal::OutputFull);
    }
    builder.job.work_summary.output_bytes = bytes;
    let attempt = builder.job.attempt;
    builder.event(EventKind::Output { attempt, text });
    Ok(go_on(builder, running))
}
