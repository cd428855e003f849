//! Decides when a running program gets SIGTERM or SIGKILL: on a cancel, a time limit, a lost lease or a stop of the worker.
//! Pure; `attempt` sends the signals.

use std::time::Duration;

use tokio::time::Instant;

use super::Stop;
use super::lease::LeaseState;

/// Why a program was asked to stop. A later variant overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopReason {
    SoftLimit,
    HandOver,
    Stop,
    Cancel,
    /// The server ends the attempt by its own clock.
    HardLimit,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Terminate,
    Kill,
}

#[derive(Debug)]
pub(crate) struct Directives {
    /// Time between SIGTERM and SIGKILL.
    grace: Duration,
    pub why: Option<StopReason>,
    pub kill_at: Option<Instant>,
    /// The hard time limit: the attempt ends whatever the program does.
    pub hard_end: Option<Instant>,
}

impl Directives {
    pub(crate) fn new(grace: Duration, hard_time_limit: Option<Duration>) -> Directives {
        Directives { grace, why: None, kill_at: None, hard_end: hard_time_limit.map(|limit| Instant::now() + limit) }
    }

    /// Applies the response to a heartbeat.
    pub(crate) fn observe(&mut self, lease_state: &LeaseState) -> Option<StopSignal> {
        self.hard_end = lease_state.hard_end.or(self.hard_end);
        if lease_state.lost.is_some() {
            // After a cancel, a lost lease means that the queue's cancel grace has ended.
            let was_asked = self.why >= Some(StopReason::Cancel);
            self.raise(StopReason::Lost);
            return Some(if was_asked { self.kill() } else { self.terminate_within_grace() });
        }
        // The server enforces the grace after a cancel and the time between soft and hard limit, so no kill is scheduled here.
        if lease_state.is_cancelled && self.raise(StopReason::Cancel) {
            return Some(StopSignal::Terminate);
        }
        if lease_state.is_handed_over && self.raise(StopReason::HandOver) {
            return Some(self.terminate_within_grace());
        }
        (lease_state.is_past_soft_limit && self.raise(StopReason::SoftLimit)).then_some(StopSignal::Terminate)
    }

    /// Applies a signal to the worker.
    pub(crate) fn stop(&mut self, stop: Stop) -> Option<StopSignal> {
        match stop {
            Stop::Working => None,
            Stop::Draining => {
                self.raise(StopReason::Stop);
                Some(self.terminate_within_grace())
            }
            Stop::Aborting => {
                self.raise(StopReason::Stop);
                Some(self.kill())
            }
        }
    }

    /// The hard limit has passed.
    pub(crate) fn end_hard(&mut self) -> StopSignal {
        self.raise(StopReason::HardLimit);
        self.hard_end = None;
        self.kill()
    }

    pub(crate) fn kill(&mut self) -> StopSignal {
        self.kill_at = None;
        StopSignal::Kill
    }

    /// Returns whether `why` overrides the reason so far.
    fn raise(&mut self, why: StopReason) -> bool {
        let counts = self.why < Some(why);
        self.why = self.why.max(Some(why));
        counts
    }

    fn terminate_within_grace(&mut self) -> StopSignal {
        let at = Instant::now() + self.grace;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
        StopSignal::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn directives() -> Directives {
        Directives::new(GRACE, None)
    }

    #[tokio::test]
    async fn a_cancel_terminates_once_and_kills_only_when_the_lease_is_gone() {
        let mut directives = directives();
        let cancelled = LeaseState { is_cancelled: true, ..LeaseState::default() };

        assert_eq!(directives.observe(&cancelled), Some(StopSignal::Terminate));
        assert_eq!((directives.observe(&cancelled), directives.kill_at), (None, None));
        assert_eq!(
            directives.observe(&LeaseState { lost: Some("over".to_owned()), ..cancelled }),
            Some(StopSignal::Kill)
        );
        assert_eq!(directives.why, Some(StopReason::Lost));
    }

    #[tokio::test]
    async fn a_lost_lease_has_the_grace_to_end() {
        let mut directives = directives();

        let sign = directives.observe(&LeaseState { lost: Some("gone".to_owned()), ..LeaseState::default() });

        assert_eq!(sign, Some(StopSignal::Terminate));
        assert!(directives.kill_at.is_some_and(|at| at <= Instant::now() + GRACE));
    }

    #[tokio::test]
    async fn a_cancel_after_the_soft_limit_terminates_again() {
        let mut directives = directives();
        let late = LeaseState { is_past_soft_limit: true, ..LeaseState::default() };

        assert_eq!(directives.observe(&late), Some(StopSignal::Terminate));
        assert_eq!(directives.observe(&late), None);
        assert_eq!(directives.observe(&LeaseState { is_cancelled: true, ..late }), Some(StopSignal::Terminate));
        assert_eq!(directives.why, Some(StopReason::Cancel));
    }

    #[tokio::test]
    async fn a_stop_does_not_make_a_cancelled_job_a_released_one() {
        let mut directives = directives();
        directives.observe(&LeaseState { is_cancelled: true, ..LeaseState::default() });

        assert_eq!(directives.stop(Stop::Draining), Some(StopSignal::Terminate));
        assert_eq!((directives.why, directives.kill_at.is_some()), (Some(StopReason::Cancel), true));
        assert_eq!((directives.stop(Stop::Aborting), directives.kill_at), (Some(StopSignal::Kill), None));
    }

    #[tokio::test]
    async fn the_hard_end_may_move_and_kills() {
        let mut directives = Directives::new(GRACE, Some(Duration::from_secs(1)));
        let first = directives.hard_end;
        directives
            .observe(&LeaseState { hard_end: Some(Instant::now() + Duration::from_secs(90)), ..LeaseState::default() });

        assert!(first < directives.hard_end);
        assert_eq!(directives.end_hard(), StopSignal::Kill);
        assert_eq!((directives.why, directives.hard_end), (Some(StopReason::HardLimit), None));
    }
}
