//! Read deadlines. A process that was paused sees its timers before the bytes that arrived meanwhile;
//! so a peer that seems too late is polled once more.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

/// The output of the future by the deadline; `None` if it is not ready even at a second poll.
pub(crate) async fn ready_by<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Ok(output) = timeout_at(deadline, future.as_mut()).await {
        return Some(output);
    }
    look_again().await;
    timeout(Duration::ZERO, future).await.ok()
}

/// Until the runtime has asked the system what has come: it does so before it looks at the clock, and a new timer rings
/// at the next look.
pub(crate) async fn look_again() {
    sleep(Duration::from_millis(1)).await;
}
