//! A random walk of one job, with its own account of what has happened: counted from the log and from the commands, never
//! read from the job's own counters, so that the two can be compared.

use std::time::Duration;

use super::stage::{Stage, ack, object, report};
use crate::alarm::alarm;
use crate::breaker::cool_down;
use crate::change::{Change, Refusal};
use crate::command::{Command, Evidence, Outcome};
use crate::event::{EventKind, Reason};
use crate::gate::HoldCause;
use crate::ids::Lease;
use crate::job::Job;
use crate::queue::range;
use crate::state::{CancelReason, Ending, FailReason, PendingReason, Phase, State, Status};
use crate::time::Timestamp;

/// Whose lease a command carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    Present,
    /// One of those given before, counted from the first.
    Earlier(u8),
    Foreign,
    Unnamed,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Claim(Phase, Option<Duration>),
    Receipt(Whose),
    Report(Whose, Outcome),
    Heartbeat(Whose, Option<Duration>),
    Finalize(Whose),
    Cancel(CancelReason),
    Replay(bool),
    Wake,
    Abandon,
}

/// How much time passes before the act.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pause {
    For(Duration),
    UntilAlarm,
    JustBeforeAlarm,
}

/// The account of a job since its last replay.
#[derive(Default)]
struct SinceReplay {
    hand_outs: u32,
    charged: u32,
    free: u32,
    deferred: u32,
}

pub(super) struct Walk {
    pub(super) stage: Stage,
    leases: Vec<Lease>,
    since_replay: SinceReplay,
}

impl Walk {
    pub(super) fn new(stage: Stage) -> Walk {
        Walk { stage, leases: Vec::new(), since_replay: SinceReplay::default() }
    }

    pub(super) fn step(&mut self, pause: Pause, act: &Act) {
        if self.stage.deleted {
            return;
        }
        self.pass(pause);
        let command = self.command(act);
        let before = self.stage.job.clone();
        let events = self.stage.log.len();
        let answer = self.stage.act(command.clone());
        self.check_lease(&before, &command, &answer);
        if let Ok(Change::Update(_)) = answer {
            self.account(&before, &command, events);
            self.check_budgets();
            self.check_wait(&before, &command);
        }
        self.check_that_old_leases_are_dead();
        self.check_that_the_end_is_the_end();
        self.check_alarm();
    }

    fn pass(&mut self, pause: Pause) {
        let alarm = alarm(&self.stage.job, &self.stage.queue);
        let now = self.stage.now;
        self.stage.now = match (pause, alarm) {
            (Pause::For(time), _) => now.plus(time),
            (Pause::UntilAlarm, Some(at)) => at.max(now),
            (Pause::JustBeforeAlarm, Some(at)) => Timestamp::from_millis(at.as_millis() - 1).max(now),
            (_, None) => now,
        };
    }

    fn command(&self, act: &Act) -> Command {
        let evidence = Evidence { error: Some("no".into()), ..Evidence::default() };
        match act.clone() {
            Act::Claim(phase, visibility) => Command::Claim { phase, visibility, worker: None },
            Act::Receipt(whose) => Command::Receipt { lease: self.lease(whose).unwrap_or(Lease::from_u128(1)) },
            Act::Report(whose, outcome) => Command::Report { lease: self.lease(whose), outcome, evidence },
            Act::Heartbeat(whose, extend) => Command::beat(self.lease(whose), extend),
            Act::Finalize(whose) => Command::Finalize { lease: self.lease(whose), object: object() },
            Act::Cancel(reason) => Command::Cancel { reason },
            Act::Replay(fresh) => Command::Replay { fresh, payload: None },
            Act::Wake => Command::WAKE,
            Act::Abandon => Command::Abandon,
        }
    }

    fn lease(&self, whose: Whose) -> Option<Lease> {
        match whose {
            Whose::Present => Some(self.stage.lease()),
            Whose::Earlier(at) => self.leases.get(usize::from(at) % self.leases.len().max(1)).copied(),
            Whose::Foreign => Some(Lease::from_u128(1)),
            Whose::Unnamed => None,
        }
    }

    fn present(&self) -> Option<Lease> {
        present(&self.stage.job)
    }

    /// I-14, I-15: a command that names another lease than the present one changes nothing.
    fn check_lease(&self, before: &Job, command: &Command, answer: &Result<Change, Refusal>) {
        let named = match command {
            Command::Report { lease, .. } | Command::Heartbeat { lease, .. } | Command::Finalize { lease, .. } => {
                *lease
            }
            Command::Receipt { lease } => Some(*lease),
            _ => None,
        };
        if named.is_some() && named != present(before) {
            assert!(!matches!(answer, Ok(Change::Update(_) | Change::Delete)), "{command:?} took effect: {answer:?}");
            assert_eq!(&self.stage.job, before);
        }
    }

    fn account(&mut self, before: &Job, command: &Command, events: usize) {
        let after = &self.stage.job;
        if after.replays != before.replays {
            assert_eq!(after.replays, before.replays + 1);
            self.since_replay = SinceReplay::default();
        }
        if present(before).is_none()
            && let Some(lease) = present(after)
        {
            assert!(matches!(command, Command::Claim { .. }), "I-14: {command:?} gave a lease");
            assert!(!self.leases.contains(&lease), "I-14: a lease was given twice");
            assert_eq!(after.epoch, before.epoch + 1, "I-14: an epoch per hand-out");
            self.leases.push(lease);
            self.since_replay.hand_outs += 1;
        }
        for event in &self.stage.log[events..] {
            if let EventKind::Attempt(attempt) = &event.kind {
                assert_eq!(attempt.number, before.attempt);
                self.since_replay.count(attempt.outcome, after.status());
            }
        }
    }

    /// I-17, I-18, I-19.
    fn check_budgets(&self) {
        let (job, queue) = (&self.stage.job, &self.stage.queue);
        let limit = job.max_attempts(queue);
        assert!(self.since_replay.charged <= limit, "I-17: {} charged of {limit}", self.since_replay.charged);
        assert!(self.since_replay.hand_outs <= limit + self.since_replay.free, "I-17: too many hand-outs");
        let gave_up =
            matches!(job.state, State::Failed { .. }) && self.since_replay.charged > 0 && self.last_was_charged();
        let expected = if gave_up { self.since_replay.charged } else { self.since_replay.charged + 1 };
        assert_eq!(job.attempt, expected, "I-17: attempt is one more than what was charged");
        assert!(self.since_replay.deferred <= job.max_deferrals(queue) + 1, "I-18: too many deferrals");
        if let State::Pending { reason: PendingReason::Deferred, until } = job.state {
            assert!(until.since(job.opened_at) <= job.max_age(queue), "I-18: deferred beyond its age");
        }
    }

    fn last_was_charged(&self) -> bool {
        let last = self.stage.log.iter().rev().find_map(|event| match &event.kind {
            EventKind::Attempt(attempt) => Some(attempt.outcome),
            _ => None,
        });
        last.is_some_and(is_charge)
    }

    /// I-22, and that a deferral waits as long as it was asked to.
    fn check_wait(&self, before: &Job, command: &Command) {
        let State::Pending { reason, until } = self.stage.job.state else {
            return;
        };
        let settings = &self.stage.queue.settings;
        let waited = until.since(self.stage.now);
        match (reason, command) {
            (PendingReason::Backoff, Command::Report { outcome: Outcome::Nack { delay: Some(delay), .. }, .. }) => {
                assert_eq!(waited, *delay);
            }
            (PendingReason::Backoff, _) => {
                let full = settings.backoff.base(before.attempt);
                let least = full.mul_f64(1.0 - settings.backoff.jitter());
                assert!(waited + Duration::from_millis(1) >= least, "I-22: {waited:?} is earlier than {least:?}");
                assert!(waited <= full, "I-22: {waited:?} is later than {full:?}");
            }
            (PendingReason::Deferred, Command::Report { outcome: Outcome::Defer { retry_after, cause, .. }, .. }) => {
                let max_age = before.max_age(&self.stage.queue);
                let left = max_age.saturating_sub(self.stage.now.since(before.opened_at));
                let day = *range::RETRY_AFTER.end();
                let longest = if *cause == HoldCause::Backpressure { day.min(max_age / 2) } else { day };
                let whole = |wait: Duration| Duration::from_millis(u64::try_from(wait.as_millis()).unwrap());
                let bounded = |wait: Duration| whole(wait.min(longest).min(left));
                match (retry_after, cause) {
                    (Some(asked), _) => assert_eq!(waited, bounded(*asked)),
                    (None, HoldCause::Backpressure | HoldCause::Deferred) => {
                        assert_eq!(waited, bounded(settings.backpressure_delay));
                    }
                    (None, HoldCause::Circuit) => {
                        assert!((0..8).any(|round| waited == bounded(cool_down(round))), "{waited:?}");
                    }
                }
            }
            (reason, command) => panic!("{command:?} made the job wait: {reason:?}"),
        }
    }

    /// I-15: no earlier lease is good for anything. A repeated report may be told that it was heard.
    fn check_that_old_leases_are_dead(&self) {
        let present = self.present();
        for lease in self.leases.iter().copied().filter(|lease| Some(*lease) != present) {
            let beat = self.stage.ask(Command::beat(Some(lease), None));
            assert_eq!(beat, Err(Refusal::LeaseLost));
            for outcome in [ack(), Outcome::Nack { retryable: true, delay: None }, Outcome::Release] {
                let heard = self.stage.job.last.is_some_and(|last| last.lease == lease && last.how.is_report());
                match self.stage.ask(report(Some(lease), outcome)) {
                    Err(Refusal::LeaseLost) => assert!(!heard),
                    Ok(Change::None) | Err(Refusal::OutcomeConflict { .. }) => assert!(heard && present.is_none()),
                    other => panic!("I-15: an old lease got {other:?}"),
                }
            }
        }
    }

    /// I-16: nothing but replay and the clock touches a finished job.
    fn check_that_the_end_is_the_end(&self) {
        if !self.stage.job.status().is_terminal() {
            return;
        }
        let lease = Some(self.stage.lease());
        for command in [
            report(lease, ack()),
            report(lease, Outcome::Cancelled),
            report(None, ack()),
            Command::Cancel { reason: CancelReason::User },
            Command::Claim { phase: Phase::Leased, visibility: None, worker: None },
            Command::beat(lease, None),
            Command::Finalize { lease, object: object() },
            Command::Abandon,
        ] {
            let answer = self.stage.ask(command.clone());
            assert!(
                matches!(answer, Ok(Change::None) | Err(_)),
                "I-16: {command:?} changed a finished job: {answer:?}"
            );
        }
    }

    /// An alarm does nothing before its time, and at its time something that moves it on: a sweep always comes to an end.
    fn check_alarm(&mut self) {
        if self.stage.deleted {
            return;
        }
        let Some(at) = alarm(&self.stage.job, &self.stage.queue) else {
            return;
        };
        let now = self.stage.now;
        if at > now {
            assert_eq!(self.stage.ask(Command::WAKE), Ok(Change::None));
            self.stage.now = at;
        }
        match self.stage.ask(Command::WAKE) {
            Ok(Change::Delete) => {}
            Ok(Change::Update(update)) => assert_ne!(update.job.status(), self.stage.job.status()),
            other => panic!("an alarm that rang gave {other:?}"),
        }
        self.stage.now = now;
    }
}

impl SinceReplay {
    /// Free endings are those that neither charge nor finish the job.
    fn count(&mut self, how: Ending, status: Status) {
        self.deferred += u32::from(how == Ending::Deferred);
        match status {
            Status::Succeeded | Status::Cancelled => self.free += 1,
            _ if is_charge(how) => self.charged += 1,
            _ => self.free += 1,
        }
    }
}

fn is_charge(how: Ending) -> bool {
    use Ending::{AckTimeout, HardTimeLimit, HeartbeatLost, LeaseExpired, Nacked, Unknown};
    matches!(how, Nacked | LeaseExpired | AckTimeout | HeartbeatLost | HardTimeLimit | Unknown)
}

fn present(job: &Job) -> Option<Lease> {
    match &job.state {
        State::Running(running) => Some(running.lease),
        _ => None,
    }
}

/// The log tells the whole story: each move starts where the last one ended, and no two hand-outs stand side by side.
pub(super) fn check_log(stage: &Stage) {
    let mut at = None;
    let (mut open, mut told) = (false, false);
    for event in &stage.log {
        match &event.kind {
            EventKind::State { from, to, reason, .. } => {
                assert!(at.is_none() || *from == at, "a move from {from:?} while {at:?}");
                let finished = at.is_some_and(Status::is_terminal);
                assert!(!finished || matches!(reason, Reason::Replayed | Reason::ResultExpired), "I-16: {reason:?}");
                if *reason == Reason::Claimed {
                    assert!(!open, "I-14: two hand-outs without an ending between them");
                    open = true;
                }
                if matches!(to, Status::Succeeded | Status::Failed | Status::Cancelled) {
                    assert_eq!(told, stage.job.spec.callback_url.is_some(), "I-28: {reason:?}");
                }
                told = false;
                at = Some(*to);
            }
            EventKind::Attempt(_) => {
                assert!(open, "I-14: an ending without a hand-out");
                open = false;
            }
            EventKind::Callback => told = true,
            EventKind::Checkpoint { .. } | EventKind::Output { .. } => assert!(open, "I-15: work without a hand-out"),
            EventKind::Result { .. } | EventKind::Note { .. } => {}
        }
    }
    if let State::Failed { reason: FailReason::DeferralExhausted, .. } = stage.job.state {
        assert_eq!(stage.job.deferrals, stage.job.max_deferrals(&stage.queue), "I-18");
    }
    assert_eq!(open, stage.job.status() == Status::Running);
}
