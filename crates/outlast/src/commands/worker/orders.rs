//! What a running program is to be told, and when it is killed. Decides only; the signals are sent by its caller.

use std::time::Duration;

use tokio::time::Instant;

use super::Stop;
use super::lease::Heard;

/// Why a program was told to end. A later one counts more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    SoftLimit,
    HandOver,
    Stop,
    Cancel,
    /// The server ends the attempt by itself, by its own clock.
    HardLimit,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Terminate,
    Kill,
}

#[derive(Debug)]
pub(crate) struct Orders {
    /// Between the request to end and the kill.
    grace: Duration,
    pub why: Option<Why>,
    pub kill_at: Option<Instant>,
    /// When the attempt is over whatever the program does.
    pub hard_end: Option<Instant>,
}

impl Orders {
    pub(crate) fn new(grace: Duration, hard_time_limit: Option<Duration>) -> Orders {
        Orders { grace, why: None, kill_at: None, hard_end: hard_time_limit.map(|limit| Instant::now() + limit) }
    }

    /// After an answer to a heartbeat.
    pub(crate) fn hear(&mut self, heard: &Heard) -> Option<Sign> {
        self.hard_end = heard.hard_end.or(self.hard_end);
        if heard.lost.is_some() {
            // After a cancel this says that the time to drain is over: it was asked to end long ago.
            let was_asked = self.why >= Some(Why::Cancel);
            self.raise(Why::Lost);
            return Some(if was_asked { self.kill() } else { self.terminate_within_grace() });
        }
        // A cancel has the time that the queue gives it to drain, and the soft limit that until the hard one: the server
        // keeps both. Only what the worker itself wants has its grace.
        if heard.is_cancelled && self.raise(Why::Cancel) {
            return Some(Sign::Terminate);
        }
        if heard.is_handed_over && self.raise(Why::HandOver) {
            return Some(self.terminate_within_grace());
        }
        (heard.is_past_soft_limit && self.raise(Why::SoftLimit)).then_some(Sign::Terminate)
    }

    /// After a signal to the worker.
    pub(crate) fn obey(&mut self, stop: Stop) -> Option<Sign> {
        match stop {
            Stop::Working => None,
            Stop::Draining => {
                self.raise(Why::Stop);
                Some(self.terminate_within_grace())
            }
            Stop::Aborting => {
                self.raise(Why::Stop);
                Some(self.kill())
            }
        }
    }

    /// The hard limit has passed.
    pub(crate) fn end_hard(&mut self) -> Sign {
        self.raise(Why::HardLimit);
        self.hard_end = None;
        self.kill()
    }

    pub(crate) fn kill(&mut self) -> Sign {
        self.kill_at = None;
        Sign::Kill
    }

    /// Whether it counts more than what was there.
    fn raise(&mut self, why: Why) -> bool {
        let counts = self.why < Some(why);
        self.why = self.why.max(Some(why));
        counts
    }

    fn terminate_within_grace(&mut self) -> Sign {
        let at = Instant::now() + self.grace;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
        Sign::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn orders() -> Orders {
        Orders::new(GRACE, None)
    }

    #[tokio::test]
    async fn a_cancel_is_told_once_and_killed_only_when_the_lease_is_gone() {
        let mut orders = orders();
        let cancelled = Heard { is_cancelled: true, ..Heard::default() };

        assert_eq!(orders.hear(&cancelled), Some(Sign::Terminate));
        assert_eq!((orders.hear(&cancelled), orders.kill_at), (None, None));
        assert_eq!(orders.hear(&Heard { lost: Some("over".to_owned()), ..cancelled }), Some(Sign::Kill));
        assert_eq!(orders.why, Some(Why::Lost));
    }

    #[tokio::test]
    async fn a_lost_lease_has_the_grace_to_end() {
        let mut orders = orders();

        let sign = orders.hear(&Heard { lost: Some("gone".to_owned()), ..Heard::default() });

        assert_eq!(sign, Some(Sign::Terminate));
        assert!(orders.kill_at.is_some_and(|at| at <= Instant::now() + GRACE));
    }

    #[tokio::test]
    async fn a_cancel_after_the_soft_limit_is_told_again() {
        let mut orders = orders();
        let late = Heard { is_past_soft_limit: true, ..Heard::default() };

        assert_eq!(orders.hear(&late), Some(Sign::Terminate));
        assert_eq!(orders.hear(&late), None);
        assert_eq!(orders.hear(&Heard { is_cancelled: true, ..late }), Some(Sign::Terminate));
        assert_eq!(orders.why, Some(Why::Cancel));
    }

    #[tokio::test]
    async fn a_stop_does_not_make_a_cancelled_job_a_released_one() {
        let mut orders = orders();
        orders.hear(&Heard { is_cancelled: true, ..Heard::default() });

        assert_eq!(orders.obey(Stop::Draining), Some(Sign::Terminate));
        assert_eq!((orders.why, orders.kill_at.is_some()), (Some(Why::Cancel), true));
        assert_eq!((orders.obey(Stop::Aborting), orders.kill_at), (Some(Sign::Kill), None));
    }

    #[tokio::test]
    async fn the_hard_end_may_move_and_kills() {
        let mut orders = Orders::new(GRACE, Some(Duration::from_secs(1)));
        let first = orders.hard_end;
        orders.hear(&Heard { hard_end: Some(Instant::now() + Duration::from_secs(90)), ..Heard::default() });

        assert!(first < orders.hard_end);
        assert_eq!(orders.end_hard(), Sign::Kill);
        assert_eq!((orders.why, orders.hard_end), (Some(Why::HardLimit), None));
    }
}
