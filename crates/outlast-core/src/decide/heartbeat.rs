//! The holder lives: its lease is extended, and what came with the heartbeat is kept.

use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, Refusal};
use crate::checkpoint::Checkpoint;
use crate::ids::Lease;
use crate::progress::Progress;

use super::builder::TransitionBuilder;
use super::checkpoint::keep_checkpoint;
use super::progress::take_progress;
use super::{go_on, holder};

pub(super) fn heartbeat(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    extend: Option<Duration>,
    (progress, checkpoint): (Option<Arc<Progress>>, Option<Arc<Checkpoint>>),
) -> Result<Change, Refusal> {
    let mut running = holder(&builder, lease)?;
    running.heartbeat_at = Some(builder.now);
    // Never shortens a lease: a worker that heartbeats early must not lose time it already has.
    running.expires_at = running.expires_at.max(builder.now.plus(extend.unwrap_or(running.extension)));
    if let Some(progress) = &progress {
        take_progress(&mut builder, &mut running, progress);
    }
    if let Some(checkpoint) = checkpoint {
        keep_checkpoint(&mut builder, &mut running, checkpoint);
    }
    Ok(go_on(builder, running))
}
