//! The engine's random numbers: one generator, shared by all rooms.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outlast_core::Entropy;
use outlast_core::entropy::unit;

pub struct Random(Mutex<Box<dyn Entropy + Send>>);

impl Random {
    pub(crate) fn new(entropy: Box<dyn Entropy + Send>) -> Random {
        Random(Mutex::new(entropy))
    }

    /// A little less than `pause`, so that nodes which started together do not poll together, and no poll is late.
    pub(crate) fn jitter(&self, pause: Duration) -> Duration {
        pause.mul_f64(1.0 - 0.2 * self.draw(unit))
    }

    /// Somewhere between the two, so that what began together does not go on together.
    pub fn between(&self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.draw(unit))
    }

    pub(crate) fn draw<T>(&self, from: impl FnOnce(&mut dyn Entropy) -> T) -> T {
        from(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut())
    }
}
