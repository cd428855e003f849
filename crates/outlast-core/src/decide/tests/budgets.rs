//! What a job may cost: charged attempts, free deferrals, poison, and the time between two attempts.

use std::time::Duration;

use super::stage::{SECOND, Stage, claim, defer, nack, report, settings};
use crate::alarm::alarm;
use crate::command::{Command, Outcome};
use crate::gate::HoldCause;
use crate::queue::{DeferScope, QueueSettings};
use crate::retry::{Backoff, Seconds};
use crate::state::{FailReason, PendingReason, Phase, State, Status};

/// Hands the job out and ends the hand-out, again and again, until the job is finished. Returns the hand-outs.
fn exhaust(stage: &mut Stage, phase: Phase, mut end: impl FnMut(&mut Stage)) -> u32 {
    for hand_outs in 0..2000 {
        if stage.job.status().is_terminal() {
            return hand_outs;
        }
        while stage.job.status() == Status::Pending {
            stage.now = alarm(&stage.job, &stage.queue).unwrap();
            stage.run(Command::WAKE);
        }
        stage.run(claim(phase));
        end(stage);
    }
    panic!("the job never ends: {:?}", stage.job);
}

/// I-17.
#[test]
fn charged_attempts_never_exceed_the_limit() {
    for max_attempts in [1, 2, 5, 20] {
        let settings = QueueSettings { max_attempts, ..settings() };
        let mut nacked = Stage::queued(settings.clone());
        let mut expired = Stage::queued(settings);

        let nacks = exhaust(&mut nacked, Phase::Leased, |stage| drop(stage.run(report(None, nack(true)))));
        let losses = exhaust(&mut expired, Phase::Leased, |stage| {
            stage.now = alarm(&stage.job, &stage.queue).unwrap();
            stage.run(Command::WAKE);
        });

        assert_eq!((nacks, losses), (max_attempts, max_attempts));
        assert!(matches!(nacked.job.state, State::Failed { reason: FailReason::AttemptsExhausted, .. }));
        assert_eq!(nacked.job.attempt, max_attempts);
    }
}

/// I-17: a free ending costs a hand-out and no attempt.
#[test]
fn hand_outs_are_bounded_by_attempts_and_free_endings() {
    let mut stage = Stage::queued(QueueSettings { max_attempts: 3, ..settings() });
    let mut releases = 0;

    let hand_outs = exhaust(&mut stage, Phase::Leased, |stage| {
        let release = stage.job.epoch % 2 == 1;
        releases += u32::from(release);
        stage.run(report(None, if release { Outcome::Release } else { nack(true) }));
    });

    assert_eq!(hand_outs, 3 + releases);
}

/// I-18.
#[test]
fn deferrals_burn_no_attempt_and_are_bounded_in_number() {
    let settings = QueueSettings { max_deferrals: 7, max_age: Duration::from_secs(86_400), ..settings() };
    let mut stage = Stage::queued(settings);

    let hand_outs = exhaust(&mut stage, Phase::Leased, |stage| {
        stage.run(report(None, defer(1)));
        assert_eq!(stage.job.attempt, 1);
    });

    assert_eq!(hand_outs, 8);
    assert_eq!(stage.job.deferrals, 7);
    assert!(matches!(stage.job.state, State::Failed { reason: FailReason::DeferralExhausted, .. }));
}

/// I-18.
#[test]
fn deferrals_are_bounded_in_age() {
    let mut stage = Stage::queued(QueueSettings { max_age: 25 * SECOND, ..settings() });

    let hand_outs = exhaust(&mut stage, Phase::Leased, |stage| drop(stage.run(report(None, defer(10)))));

    assert_eq!((hand_outs, stage.job.attempt), (4, 1), "at 0, 10 and 20 seconds, and once more at its greatest age");
    assert!(matches!(stage.job.state, State::Failed { reason: FailReason::MaxAgeExceeded, .. }));
}

/// I-18: the longest wait that one header can ask for leaves every job at least half of its greatest age.
#[test]
fn one_header_never_makes_a_dead_letter() {
    let day = Duration::from_secs(86_400);
    for (max_age, asked, expected) in [(day, day, day / 2), (10 * SECOND, day, 5 * SECOND), (4 * day, day, day)] {
        for scope in [DeferScope::Queue, DeferScope::Job] {
            let mut stage = Stage::leased(QueueSettings { max_age, ..settings() });
            let retry_after = Some(asked);
            stage.run(report(None, Outcome::Defer { retry_after, scope: Some(scope), cause: HoldCause::Backpressure }));

            assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(expected)), "{max_age:?}");
            let held_until = stage.queue.hold.map(|hold| hold.until);
            assert_eq!(held_until, (scope == DeferScope::Queue).then(|| stage.now.plus(expected)), "{max_age:?}");
        }
    }
}

/// What a worker asks for itself is kept to, as far as the job's age allows.
#[test]
fn a_worker_may_defer_for_as_long_as_the_job_has_left() {
    let max_age = 30 * SECOND;
    let mut stage = Stage::leased(QueueSettings { max_age, ..settings() });

    let retry_after = Some(20 * SECOND);
    stage.run(report(None, Outcome::Defer { retry_after, scope: Some(DeferScope::Job), cause: HoldCause::Deferred }));

    assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(20 * SECOND)));
}

/// I-18: a hold is never longer than a day, whatever was asked for.
#[test]
fn a_deferral_is_clamped_to_a_day() {
    let mut stage = Stage::leased(QueueSettings { max_age: Duration::from_secs(999 * 86_400), ..settings() });
    stage.run(report(
        None,
        Outcome::Defer {
            retry_after: Some(Duration::MAX),
            scope: Some(DeferScope::Job),
            cause: HoldCause::Backpressure,
        },
    ));

    assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(Duration::from_secs(86_400))));
}

/// I-19.
#[test]
fn a_job_that_kills_the_server_is_charged_and_bounded() {
    let mut stage = Stage::queued(QueueSettings { max_attempts: 4, ..settings() });

    let deaths = exhaust(&mut stage, Phase::Delivering, |stage| drop(stage.run(Command::Abandon)));

    assert_eq!(deaths, 4);
    assert!(matches!(stage.job.state, State::Failed { reason: FailReason::AttemptsExhausted, .. }));
}

/// I-22: no earlier than the wait minus its jitter, no later than the wait.
#[test]
fn a_retry_waits_for_its_backoff() {
    let schedule = [3, 30].map(|seconds| Seconds(Duration::from_secs(seconds))).to_vec();
    for (backoff, jitter, waits) in [
        (Backoff::Exponential { delay: SECOND, factor: 3.0, max_delay: 20 * SECOND, jitter: 0.5 }, 0.5, [1, 3, 9, 20]),
        (Backoff::Fixed { delay: 7 * SECOND, jitter: 0.0 }, 0.0, [7, 7, 7, 7]),
        (Backoff::Schedule { delays: schedule, jitter: 1.0 }, 1.0, [3, 30, 30, 30]),
    ] {
        for seed in 0..50 {
            let mut stage = Stage::queued(QueueSettings { backoff: backoff.clone(), ..settings() });
            stage.seed(seed);
            for wait in waits {
                stage.run(claim(Phase::Leased));
                stage.run(report(None, nack(true)));
                let full = Duration::from_secs(wait);
                let earliest = stage.now.plus(full.mul_f64(1.0 - jitter));
                if let State::Pending { reason, until } = stage.job.state {
                    assert_eq!(reason, PendingReason::Backoff);
                    assert!((earliest..=stage.now.plus(full)).contains(&until), "{backoff:?} {wait}");
                    stage.now = until;
                    stage.run(Command::WAKE);
                }
                assert_eq!(stage.job.status(), Status::Queued);
            }
        }
    }
}
