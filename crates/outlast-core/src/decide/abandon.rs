//! A server died during a delivery, so the outcome of that delivery is unknown.

use crate::change::Change;
use crate::entropy::Entropy;
use crate::state::{Ending, Phase};

use super::draft::Draft;
use super::ending::lose;

/// The server died while delivering. Charged, so that a job whose handling kills the server is bounded.
pub(super) fn abandon(draft: Draft<'_>, entropy: &mut dyn Entropy) -> Change {
    match draft.running() {
        Some(running) if running.phase == Phase::Delivering => lose(draft, &running, Ending::Unknown, entropy),
        _ => Change::None,
    }
}
