//! Keeps the lease of one job alive and passes on what the answers say. A server that is away is tried again and again:
//! whether the lease still holds is known only when it answers, since a server that was down gives leases that time back.

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
use super::desk::{Desk, Trouble};
use crate::output;

/// The shortest time between two heartbeats.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// How long one heartbeat may take where the interval is shorter than that.
const ANSWER_MIN: Duration = Duration::from_secs(2);
/// The longest time between two heartbeats after a cancel: only their answers tell that the time to drain is over.
const CANCELLED_INTERVAL: Duration = Duration::from_secs(1);

/// What the answers have said so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// Why the job is not ours any more.
    pub lost: Option<String>,
    pub is_cancelled: bool,
    pub is_past_soft_limit: bool,
    pub is_handed_over: bool,
    /// When the attempt is over, whatever the program does.
    pub hard_end: Option<Instant>,
}

/// How often to call.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// The lease that is asked for.
    pub lease: Duration,
    /// As given by the user; a third of the lease otherwise.
    pub interval: Option<Duration>,
}

/// Runs until the lease is lost; its owner ends it with the job. `directives` is a file that has the latest ones.
pub(crate) async fn keep(
    desk: Arc<Desk>,
    pace: Pace,
    first_end: Option<Timestamp>,
    directives: PathBuf,
    heard: watch::Sender<Heard>,
) {
    let mut backoff = Backoff::new(&desk.id);
    let mut wait = pace.interval(left(first_end));
    loop {
        tokio::time::sleep(wait).await;
        let interval = pace.interval(None);
        let answer = timeout(interval.max(ANSWER_MIN), desk.heartbeat(pace.lease)).await;
        wait = match answer.unwrap_or_else(|_| Err(Trouble::Away("no answer to a heartbeat".to_owned()))) {
            Ok(answer) => {
                if !backoff.is_first() {
                    output::note(&format!("job {}: heartbeats are answered again", desk.id));
                    backoff.reset();
                }
                write_directives(&directives, &answer).await;
                heard.send_modify(|heard| heard.take(&answer, &pace));
                let wait = pace.interval(left(time(&answer, "leaseExpiresAt")));
                if heard.borrow().is_cancelled { wait.min(CANCELLED_INTERVAL) } else { wait }
            }
            Err(Trouble::Lost(why)) => {
                heard.send_modify(|heard| heard.lost = Some(why));
                return;
            }
            Err(Trouble::Away(why) | Trouble::Refused(why) | Trouble::TooLarge(why)) => {
                if backoff.is_first() {
                    output::note(&format!("job {}: heartbeat: {why}; trying again", desk.id));
                }
                backoff.next().min(interval)
            }
        };
    }
}

impl Heard {
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
    fn the_hard_end_is_told_by_the_times_of_the_answer() {
        let answer = |deadline: Value| json!({"leaseExpiresAt": "2000-01-01T00:00:30.000Z", "deadline": deadline});

        for (deadline, seconds) in [("2000-01-01T00:01:00.000Z", 60), ("2000-01-01T00:00:10.000Z", 10)] {
            let left = until_hard_end(&answer(json!(deadline)), PACE.lease);
            assert_eq!(left, Some(Duration::from_secs(seconds)), "{deadline}");
        }
        assert_eq!(until_hard_end(&answer(Value::Null), PACE.lease), None);
    }

    #[test]
    fn what_was_asked_for_once_stays_asked_for() {
        let mut heard = Heard::default();
        heard.take(&json!({"directives": ["cancel", "checkpoint_now"], "cancelRequested": true}), &PACE);
        heard.take(&json!({"directives": ["hand_over"], "softLimitReached": true}), &PACE);

        assert!(heard.is_cancelled && heard.is_handed_over && heard.is_past_soft_limit && heard.hard_end.is_none());
    }
}
