//! Waiting for a condition: poll with a deadline, never a fixed sleep. Deadlines count the time that the machine gave,
//! not what it withheld (see [`Stopwatch`]).

use std::pin::pin;
use std::time::Duration;

use crate::stopwatch::Stopwatch;

/// How often a condition is looked at. Small against every deadline, large against one request.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until `probe` gives a value; panics with `what` when the deadline passes.
pub async fn until<T, Probe>(what: &str, deadline: Duration, mut probe: Probe) -> T
where
    Probe: AsyncFnMut() -> Option<T>,
{
    let stopwatch = Stopwatch::start();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(!stopwatch.has_passed(deadline), "{}", still_waiting(what, deadline, &stopwatch));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The same for a condition that is looked at without waiting.
pub async fn until_now<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let stopwatch = Stopwatch::start();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(!stopwatch.has_passed(deadline), "{}", still_waiting(what, deadline, &stopwatch));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The output of `work` before the deadline.
pub async fn within<T>(deadline: Duration, work: impl Future<Output = T>) -> Option<T> {
    let stopwatch = Stopwatch::start();
    let mut work = pin!(work);
    loop {
        let left = deadline.saturating_sub(stopwatch.charged());
        if let Ok(value) = tokio::time::timeout(left.max(POLL_INTERVAL), &mut work).await {
            return Some(value);
        }
        if stopwatch.has_passed(deadline) {
            return None;
        }
    }
}

pub(crate) fn still_waiting(what: &str, deadline: Duration, stopwatch: &Stopwatch) -> String {
    format!("the deadline of {deadline:?} has passed after {}, still waiting: {what}", stopwatch.reading())
}

#[cfg(test)]
mod tests {
    use super::within;
    use std::time::Duration;

    #[tokio::test]
    async fn an_output_before_the_deadline_is_returned() {
        assert_eq!(within(Duration::from_secs(600), async { 7 }).await, Some(7));
    }

    #[tokio::test]
    async fn waiting_for_a_missing_output_ends() {
        assert_eq!(within(Duration::from_millis(30), std::future::pending::<()>()).await, None);
    }
}
