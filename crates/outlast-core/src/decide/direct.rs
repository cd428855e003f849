//! Leaves directives for the holder, which gets them with its next answer.

use crate::change::{Change, Refusal};
use crate::state::Directives;

use super::builder::TransitionBuilder;
use super::go_on;

pub(super) fn direct(builder: TransitionBuilder<'_>, directives: Directives) -> Result<Change, Refusal> {
    let mut running = builder.running().ok_or(Refusal::NotRunning { status: builder.job.status() })?;
    running.work.directives = directives;
    Ok(go_on(builder, running))
}
