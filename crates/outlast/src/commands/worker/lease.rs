//! Sends the heartbeats of one job and publishes what the responses say. Retries without end while the server is
//! unavailable: only the server knows whether the lease still holds, because it extends leases by its own downtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use outlast_core::Clock;
use outlast_engine::ports::SystemClock;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::job_client::{CallError, JobClient};
use crate::output;

/// The shortest time between two heartbeats.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Timeout of one heartbeat where the interval is shorter.
const ANSWER_MIN: Duration = Duration::from_secs(2);
/// The longest time between two heartbeats after a cancel: only their responses tell that the queue's cancel grace has ended.
const CANCELLED_INTERVAL: Duration = Duration::from_secs(1);

/// The state of the lease, by the responses to heartbeats so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaseState {
    /// Why the lease is lost.
    pub lost: Option<String>,
    pub is_cancelled: bool,
    pub is_past_soft_limit: bool,
    pub is_handed_over: bool,
    /// The hard time limit: the attempt ends whatever the program does.
    pub hard_end: Option<Instant>,
}

/// The lease asked for and the time between heartbeats.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// The lease that is asked for.
    pub lease: Duration,
    /// As given by the user; a third of the lease otherwise.
    pub interval: Option<Duration>,
}

/// Runs until the lease is lost; its owner ends it with the job. `directives` is a file that has the latest ones.
pub(crate) async fn keep(
    client: Arc<JobClient>,
    pace: Pace,
    first_end: Option<Timestamp>,
    directives: PathBuf,
    lease_state: watch::Sender<LeaseState>,
) {
    let mut backoff = Backoff::new(&client.id);
    let mut wait = pace.interval(left(first_end));
    loop {
        tokio::time::sleep(wait).await;
        let interval = pace.interval(None);
        let answer = timeout(interval.max(ANSWER_MIN), client.heartbeat(pace.lease)).await;
        wait = match answer.unwrap_or_else(|_| Err(CallError::Unavailable("no answer to a heartbeat".to_owned()))) {
            Ok(answer) => {
                if !backoff.is_first() {
                    output::note(&format!("job {}: heartbeats work again", client.id));
                    backoff.reset();
                }
                write_directives(&directives, &answer).await;
                lease_state.send_modify(|lease_state| lease_state.take(&answer, &pace));
                let wait = pace.interval(left(time(&answer, "leaseExpiresAt")));
                if lease_state.borrow().is_cancelled { wait.min(CANCELLED_INTERVAL) } else { wait }
            }
            Err(CallError::Lost(why)) => {
                lease_state.send_modify(|lease_state| lease_state.lost = Some(why));
                return;
            }
            Err(CallError::Unavailable(why) | CallError::Refused(why) | CallError::TooLarge(why)) => {
                if backoff.is_first() {
                    output::note(&format!("job {}: heartbeat: {why}; retrying", client.id));
                }
                backoff.next().min(interval)
            }
        };
    }
}

impl LeaseState {
    fn take(&mut self, answer: &Value, pace: &Pace) {
        let says = |field: &str| answer.get(field) == Some(&Value::Bool(true));
        let directs = |word: &str| {
            let words = answer.get("directives").and_then(Value::as_array);
            words.into_iter().flatten().any(|directive| directive == word)
        };
        self.is_cancelled |= says("cancelRequested") || directs("cancel");
        self.is_past_soft_limit |= says("softLimitReached");
        self.is_handed_over |= directs("hand_over");
        if let Some(left) = until_hard_end(answer, pace.lease) {
            self.hard_end = Some(Instant::now() + left);
        }
    }
}

impl Pace {
    /// The time until the next heartbeat, when `left` of the lease is left. A shorter lease than was asked for, for the
    /// sake of the queue's `heartbeatTimeout`, is kept as well; one that cannot be right shows that the clocks differ.
    fn interval(&self, left: Option<Duration>) -> Duration {
        let left = left.filter(|left| !left.is_zero() && *left < self.lease).unwrap_or(self.lease);
        self.interval.unwrap_or(self.lease / 3).min(left / 3).max(INTERVAL_MIN)
    }
}

/// The answer has two times of the same clock. The lease ends one lease after the answer at the latest, so the hard end
/// is at most this far away, however wrong our own clock is.
fn until_hard_end(answer: &Value, lease: Duration) -> Option<Duration> {
    let (deadline, expires) = (time(answer, "deadline")?, time(answer, "leaseExpiresAt")?);
    let between = Duration::try_from(deadline.duration_since(expires)).ok();
    let early = Duration::try_from(expires.duration_since(deadline)).unwrap_or_default();
    Some(between.unwrap_or_default() + lease.saturating_sub(early))
}

fn time(answer: &Value, field: &str) -> Option<Timestamp> {
    answer.get(field)?.as_str()?.parse().ok()
}

fn left(end: Option<Timestamp>) -> Option<Duration> {
    let now = Timestamp::from_millisecond(SystemClock::start().now().as_millis()).ok()?;
    Duration::try_from(end?.duration_since(now)).ok()
}

/// One word per line, replaced as a whole, so that a program never reads half of it.
async fn write_directives(path: &std::path::Path, answer: &Value) {
    let words = answer.get("directives").and_then(Value::as_array);
    let lines: String = words.into_iter().flatten().filter_map(Value::as_str).map(|word| format!("{word}\n")).collect();
    let fresh = path.with_extension("new");
    // Of use only to programs that ask for it; without room on the disk they go on without.
    if tokio::fs::write(&fresh, lines).await.is_ok() {
        let _ = tokio::fs::rename(&fresh, path).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PACE: Pace = Pace { lease: Duration::from_secs(30), interval: None };

    #[test]
    fn heartbeats_come_every_third_of_the_lease_or_sooner() {
        let seconds = Duration::from_secs;
        for (left, interval) in [(None, 10), (Some(seconds(12)), 4), (Some(seconds(90)), 10), (Some(seconds(0)), 10)] {
            assert_eq!(PACE.interval(left), seconds(interval), "{left:?}");
        }
        let given = Pace { interval: Some(seconds(2)), ..PACE };
        assert_eq!(given.interval(None), seconds(2));
        assert_eq!(Pace { lease: Duration::from_millis(1), ..PACE }.interval(None), INTERVAL_MIN);
    }

    #[test]
    fn the_hard_end_follows_from_the_times_of_the_response() {
        let answer = |deadline: Value| json!({"leaseExpiresAt": "2000-01-01T00:00:30.000Z", "deadline": deadline});

        for (deadline, seconds) in [("2000-01-01T00:01:00.000Z", 60), ("2000-01-01T00:00:10.000Z", 10)] {
            let left = until_hard_end(&answer(json!(deadline)), PACE.lease);
            assert_eq!(left, Some(Duration::from_secs(seconds)), "{deadline}");
        }
        assert_eq!(until_hard_end(&answer(Value::Null), PACE.lease), None);
    }

    #[test]
    fn a_request_to_stop_is_never_taken_back() {
        let mut lease_state = LeaseState::default();
        lease_state.take(&json!({"directives": ["cancel", "checkpoint_now"], "cancelRequested": true}), &PACE);
        lease_state.take(&json!({"directives": ["hand_over"], "softLimitReached": true}), &PACE);

        assert!(
            lease_state.is_cancelled
                && lease_state.is_handed_over
                && lease_state.is_past_soft_limit
                && lease_state.hard_end.is_none()
        );
    }
}
