//! The holder says how far the work has come.

use std::sync::Arc;

use crate::change::{Change, Refusal};
use crate::ids::Lease;
use crate::progress::Progress;
use crate::state::Running;

use super::builder::TransitionBuilder;
use super::{go_on, holder};

pub(super) fn progress(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    progress: &Arc<Progress>,
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    take_progress(&mut builder, &mut running, progress);
    Ok(go_on(builder, running))
}

/// Merges with the stored progress: the report may come from a node that knew less.
pub(super) fn take_progress(builder: &mut TransitionBuilder<'_>, running: &mut Running, progress: &Arc<Progress>) {
    let known = running.work.progress.as_deref();
    let joined = known.map_or_else(|| progress.settled(), |known| progress.joined(known).settled());
    if known.is_none_or(|known| joined.has_moved_since(known)) {
        builder.job.work_summary.moved_at = Some(builder.now);
        running.work.is_stalled = false;
    }
    running.work.progress = Some(Arc::new(joined));
}
