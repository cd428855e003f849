//! Waiting for what a peer sends. A process that stood still hears of its timers before it hears of what came meanwhile;
//! so whoever seems too late is looked at once more.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

/// What the future gives by then; `None` if it is too late even at a second look.
pub(crate) async fn heard_by<T>(deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Ok(output) = timeout_at(deadline, future.as_mut()).await {
        return Some(output);
    }
    look_again().await;
    timeout(Duration::ZERO, future).await.ok()
}

/// Until the runtime has asked the system what has come: it does so before it looks at the clock, and a new timer rings at the
/// next look.
pub(crate) async fn look_again() {
    sleep(Duration::from_millis(1)).await;
}
