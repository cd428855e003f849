//! Waiting for a condition: poll with a deadline, never a fixed sleep.

use std::time::{Duration, Instant};

/// How often a condition is looked at. Small against every deadline, large against one request.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until `probe` gives a value; panics with `what` when the deadline passes.
pub async fn until<T, Probe>(what: &str, deadline: Duration, mut probe: Probe) -> T
where
    Probe: AsyncFnMut() -> Option<T>,
{
    let started = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(started.elapsed() < deadline, "after {deadline:?} still waiting: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The same for a condition that is looked at without waiting.
pub async fn until_now<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(started.elapsed() < deadline, "after {deadline:?} still waiting: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
