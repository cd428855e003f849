//! The benchmark's clock: the one place that reads the machine's monotonic time.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
