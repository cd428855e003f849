//! The holder lives: its lease is extended, and what came with the heartbeat is kept.

use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, Refusal};
use crate::checkpoint::Checkpoint;
use crate::ids::Lease;
use crate::progress::Progress;

use super::checkpoint::keep_checkpoint;
use super::draft::Draft;
use super::progress::take_progress;
use super::{go_on, holder};

pub(super) fn heartbeat(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    extend: Option<Duration>,
    (progress, checkpoint): (Option<Arc<Progress>>, Option<Arc<Checkpoint>>),
) -> Result<Change, Refusal> {
    let mut running = holder(&draft, lease)?;
    running.heartbeat_at = Some(draft.now);
    // Never shortens a lease: a worker that heartbeats early must not lose time it already has.
    running.expires_at = running.expires_at.max(draft.now.plus(extend.unwrap_or(running.extension)));
    if let Some(progress) = &progress {
        take_progress(&mut draft, &mut running, progress);
    }
    if let Some(checkpoint) = checkpoint {
        keep_checkpoint(&mut draft, &mut running, checkpoint);
    }
    Ok(go_on(draft, running))
}
