//! A server died during a delivery, so the outcome of that delivery is unknown.

use crate::change::Change;
use crate::entropy::Entropy;
use crate::state::{Ending, Phase};

use super::builder::TransitionBuilder;
use super::ending::lose;

/// The server died while delivering. Charged, so that a job whose handling kills the server is bounded.
pub(super) fn abandon(builder: TransitionBuilder<'_>, entropy: &mut dyn Entropy) -> Change {
    match builder.running() {
        Some(running) if running.phase == Phase::Delivering => lose(builder, &running, Ending::Unknown, entropy),
        _ => Change::None,
    }
}
