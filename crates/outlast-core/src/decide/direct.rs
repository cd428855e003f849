//! Leaves directives for the holder, which gets them with its next answer.

use crate::change::{Change, Refusal};
use crate::state::Directives;

use super::draft::Draft;
use super::go_on;

pub(super) fn direct(draft: Draft<'_>, directives: Directives) -> Result<Change, Refusal> {
    let mut running = draft.running().ok_or(Refusal::NotRunning { status: draft.job.status() })?;
    running.work.directives = directives;
    Ok(go_on(draft, running))
}
