//! The finer rules, one by one: leases, repeated reports, races, deadlines, the queue's hold.

use std::time::Duration;

use super::stage::{SECOND, Stage, ack, claim, defer, nack, object, report, settings, uploaded};
use crate::alarm::alarm;
use crate::change::{Change, Effect, Refusal};
use crate::command::{Command, Evidence, Outcome, OutcomeKind};
use crate::event::{EXCERPT_BYTES_MAX, EventKind, Reason};
use crate::gate::{Hold, HoldCause};
use crate::job::Spec;
use crate::queue::{AckTimeoutAction, DeferScope, QueueSettings};
use crate::state::{CancelReason, Ending, FailReason, Phase, State, Status};
use crate::time::Timestamp;

fn user_cancel() -> Command {
    Command::Cancel { reason: CancelReason::User }
}

fn wake_at_alarm(stage: &mut Stage) {
    stage.now = alarm(&stage.job, &stage.queue).unwrap();
    stage.run(Command::WAKE);
}

/// I-14, I-15.
#[test]
fn a_superseded_lease_is_refused_and_changes_nothing() {
    let mut stage = Stage::leased(settings());
    let old = stage.lease();
    wake_at_alarm(&mut stage);
    stage.run(claim(Phase::Leased));

    assert_ne!(stage.lease(), old);
    assert_eq!(stage.job.epoch, 2);
    for command in [
        report(Some(old), ack()),
        report(Some(old), nack(true)),
        report(Some(old), defer(1)),
        report(Some(old), Outcome::Release),
        report(Some(old), Outcome::Cancelled),
        Command::beat(Some(old), None),
        Command::Finalize { lease: Some(old), object: object() },
        Command::Receipt { lease: old },
    ] {
        assert_eq!(stage.ask(command.clone()), Err(Refusal::LeaseLost), "{command:?}");
    }
}

/// I-15: a lease that was taken away is no longer worth anything, also before the next hand-out.
#[test]
fn a_lease_that_ran_out_is_refused_while_the_job_waits() {
    let mut stage = Stage::leased(settings());
    let lease = stage.lease();
    wake_at_alarm(&mut stage);

    assert_eq!(stage.ask(report(Some(lease), ack())), Err(Refusal::LeaseLost));
}

#[test]
fn the_same_report_again_is_fine_and_another_one_is_a_conflict() {
    for (outcome, recorded) in [
        (ack(), OutcomeKind::Ack),
        (nack(true), OutcomeKind::Nack),
        (defer(60), OutcomeKind::Defer),
        (Outcome::Release, OutcomeKind::Release),
    ] {
        let mut stage = Stage::leased(settings());
        let lease = stage.lease();
        stage.run(report(Some(lease), outcome.clone()));

        for other in [ack(), nack(true), defer(60), Outcome::Release] {
            let expected = match other.kind() == recorded {
                true => Ok(Change::None),
                false => Err(Refusal::OutcomeConflict { status: stage.job.status(), recorded }),
            };
            assert_eq!(stage.ask(report(Some(lease), other.clone())), expected, "{other:?} after {outcome:?}");
        }
    }
}

/// A row of before digests were kept leaves open which result or delay it had; then the same kind is fine, as it was.
#[test]
fn a_repeated_report_of_a_row_without_a_digest_is_compared_by_what_the_row_says() {
    let with = |result: &str| Outcome::Ack { result: Some(result.into()) };
    let again = |first: Outcome, second: Outcome| {
        let mut stage = Stage::leased(settings());
        let lease = stage.lease();
        stage.run(report(Some(lease), first));
        if let Some(last) = &mut stage.job.last {
            last.digest = None;
        }
        stage.ask(report(Some(lease), second))
    };

    assert_eq!(again(with("1"), with("2")), Ok(Change::None));
    assert_eq!(again(nack(false), nack(true)), Ok(Change::None));
    assert_eq!(again(ack(), ack()), Ok(Change::None));
    assert!(again(ack(), with("1")).is_err(), "the row says that there was no result");
}

/// I-16: whoever comes first wins, and the other one learns it from the answer.
#[test]
fn cancel_racing_ack_has_one_winner() {
    let mut acked_first = Stage::leased(settings());
    acked_first.run(report(Some(acked_first.lease()), ack()));
    assert_eq!(acked_first.act(user_cancel()), Ok(Change::None));
    assert_eq!(acked_first.job.status(), Status::Succeeded);

    let mut asked_first = Stage::leased(settings());
    asked_first.run(user_cancel());
    asked_first.run(report(Some(asked_first.lease()), ack()));
    assert_eq!(asked_first.job.status(), Status::Succeeded);

    let mut revoked_first = Stage::leased(settings());
    let lease = revoked_first.lease();
    revoked_first.run(user_cancel());
    wake_at_alarm(&mut revoked_first);
    assert_eq!(revoked_first.job.status(), Status::Cancelled);
    assert_eq!(revoked_first.ask(report(Some(lease), ack())), Err(Refusal::LeaseLost));

    let mut confirmed_first = Stage::leased(settings());
    let lease = confirmed_first.lease();
    confirmed_first.run(user_cancel());
    confirmed_first.run(report(Some(lease), Outcome::Cancelled));
    let conflict = Refusal::OutcomeConflict { status: Status::Cancelled, recorded: OutcomeKind::Cancelled };
    assert_eq!(confirmed_first.ask(report(Some(lease), ack())), Err(conflict));
}

#[test]
fn a_cancel_that_is_not_confirmed_revokes_the_lease_after_the_drain_time() {
    let mut stage = Stage::leased(QueueSettings { drain_timeout: 5 * SECOND, ..settings() });
    stage.pass(SECOND);
    stage.run(user_cancel());

    assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(5 * SECOND)));
    assert_eq!(stage.act(user_cancel()), Ok(Change::None));
    wake_at_alarm(&mut stage);
    assert!(matches!(stage.job.state, State::Cancelled { reason: CancelReason::User, .. }));
}

#[test]
fn a_finalised_result_is_adopted_when_the_lease_is_lost() {
    let mut stage = Stage::leased(settings());
    stage.run(Command::Finalize { lease: None, object: object() });
    wake_at_alarm(&mut stage);

    assert_eq!(stage.job.state, State::Succeeded { at: stage.now, result: Some(uploaded()) });
    assert_eq!(stage.last_reason(), Some(Reason::ResultAdopted));
}

#[test]
fn an_inline_result_is_kept_and_dropped_after_its_time() {
    let mut stage = Stage::leased(QueueSettings { result_ttl: 9 * SECOND, ..settings() });
    let update = stage.run(report(None, Outcome::Ack { result: Some("[1]".into()) }));
    let succeeded_at = stage.now;

    assert_eq!(update.effects, [Effect::KeepResult("[1]".into())]);
    assert!(update.events.iter().any(|event| event.kind == EventKind::Result { length: 3 }));

    stage.now = stage.now.plus(9 * SECOND);
    let update = stage.run(Command::WAKE);
    assert_eq!(update.effects, [Effect::DropResult]);
    assert_eq!(stage.job.state, State::Expired { at: succeeded_at, expired_at: stage.now });
}

#[test]
fn a_heartbeat_extends_the_lease_and_never_shortens_it() {
    let mut stage = Stage::leased(settings());
    let State::Running(before) = stage.job.state.clone() else { panic!() };
    stage.pass(10 * SECOND);

    stage.run(Command::beat(None, Some(SECOND)));
    let State::Running(short) = stage.job.state.clone() else { panic!() };
    assert_eq!(short.expires_at, before.expires_at);

    stage.run(Command::beat(None, None));
    let State::Running(long) = stage.job.state.clone() else { panic!() };
    assert_eq!(long.expires_at, stage.now.plus(stage.queue.settings.visibility_timeout));
}

#[test]
fn each_limit_ends_the_attempt_in_its_own_way() {
    let hour = Duration::from_secs(3600);
    let base = QueueSettings { visibility_timeout: hour, ..settings() };
    for (limits, after, status, reason) in [
        (
            QueueSettings { heartbeat_timeout: Some(3 * SECOND), ..base.clone() },
            3,
            Status::Queued,
            Reason::HeartbeatLost,
        ),
        (QueueSettings { hard_time_limit: Some(4 * SECOND), ..base.clone() }, 4, Status::Queued, Reason::HardTimeLimit),
        (
            QueueSettings { job_timeout: Some(5 * SECOND), ..base.clone() },
            5,
            Status::Cancelled,
            Reason::CancelledByTimeout,
        ),
        (QueueSettings { visibility_timeout: 6 * SECOND, ..base }, 6, Status::Queued, Reason::LeaseExpired),
    ] {
        let mut stage = Stage::leased(limits);
        let began_at = stage.now;
        wake_at_alarm(&mut stage);

        assert_eq!(stage.now, began_at.plus(after * SECOND), "{reason:?}");
        assert_eq!((stage.job.status(), stage.last_reason()), (status, Some(reason)));
    }
}

#[test]
fn the_time_limit_of_a_run_also_strikes_between_its_attempts() {
    let mut stage = Stage::leased(QueueSettings { job_timeout: Some(5 * SECOND), ..settings() });
    stage.run(report(None, Outcome::Nack { retryable: true, delay: Some(60 * SECOND) }));
    wake_at_alarm(&mut stage);

    assert!(matches!(stage.job.state, State::Cancelled { reason: CancelReason::Timeout, .. }));
}

#[test]
fn a_job_that_is_not_started_in_time_is_cancelled_even_by_the_claim() {
    let start_by = Timestamp::from_millis(super::stage::BEGINNING + 5000);
    let spec = Spec { payload: "1".into(), start_by: Some(start_by), ..Spec::default() };
    let mut by_alarm = Stage::published(spec.clone(), settings());
    let mut by_claim = Stage::published(spec, settings());

    wake_at_alarm(&mut by_alarm);
    by_claim.now = start_by;
    by_claim.run(claim(Phase::Leased));

    assert_eq!(by_alarm.now, start_by);
    assert_eq!(by_alarm.job.state, by_claim.job.state);
    assert_eq!(by_claim.job.state, State::Cancelled { at: start_by, reason: CancelReason::Timeout });
    assert_eq!(by_claim.job.epoch, 0);
}

#[test]
fn an_unacknowledged_delivery_dies_at_once_where_the_queue_says_so() {
    let mut stage = Stage::queued(QueueSettings { ack_timeout_action: AckTimeoutAction::Dead, ..settings() });
    stage.run(claim(Phase::Delivering));
    stage.run(Command::Receipt { lease: stage.lease() });
    wake_at_alarm(&mut stage);

    assert_eq!(stage.job.state, State::Failed { at: stage.now, reason: FailReason::AckTimeout });
    assert_eq!(stage.job.last_error.as_deref(), Some("ack_timeout"), "one name for one thing");
    assert_eq!(stage.job.last.map(|last| last.how), Some(Ending::AckTimeout));
}

#[test]
fn a_released_job_keeps_its_place() {
    let mut stage = Stage::queued(settings());
    let published_at = stage.now;
    stage.pass(10 * SECOND);
    stage.run(claim(Phase::Leased));
    stage.pass(SECOND);
    stage.run(report(None, Outcome::Release));

    assert_eq!(stage.job.state, State::Queued { ready_at: published_at });
}

#[test]
fn a_replay_starts_a_fresh_run_of_the_same_job() {
    let mut stage = Stage::leased(settings());
    stage.run(report(None, nack(true)));
    wake_at_alarm(&mut stage);
    stage.run(claim(Phase::Leased));
    stage.run(report(None, nack(false)));
    let failed = stage.job.clone();
    stage.pass(SECOND);

    stage.run(Command::Replay { fresh: true, payload: Some("[2]".into()) });

    assert_eq!((stage.job.replays, stage.job.attempt, stage.job.deferrals), (1, 1, 0));
    assert_eq!((stage.job.last, stage.job.last_error.clone(), stage.job.started_at), (None, None, None));
    assert_eq!((stage.job.id, stage.job.created_at, stage.job.epoch), (failed.id, failed.created_at, failed.epoch));
    assert_eq!(&*stage.job.spec.payload, "[2]");
}

#[test]
fn a_defer_of_the_whole_queue_holds_it_and_a_probe_lifts_the_hold() {
    let mut stage = Stage::leased(settings());
    stage.run(report(None, defer(9)));
    let until = stage.now.plus(9 * SECOND);
    assert_eq!(stage.queue.hold, Some(Hold::new(until, HoldCause::Backpressure)));

    wake_at_alarm(&mut stage);
    stage.run(claim(Phase::Leased));
    assert_eq!(stage.queue.hold, Some(Hold { probe: Some(stage.job.id), ..Hold::new(until, HoldCause::Backpressure) }));

    stage.run(report(None, Outcome::Release));
    assert_eq!(
        stage.queue.hold,
        Some(Hold::new(until, HoldCause::Backpressure)),
        "a release says nothing about the endpoint"
    );

    stage.run(claim(Phase::Leased));
    stage.run(report(None, ack()));
    assert_eq!(stage.queue.hold, None);
}

#[test]
fn a_defer_of_the_job_alone_leaves_the_queue_open() {
    let mut stage = Stage::leased(settings());
    stage.run(report(
        None,
        Outcome::Defer { retry_after: Some(9 * SECOND), scope: Some(DeferScope::Job), cause: HoldCause::Backpressure },
    ));

    assert_eq!(stage.queue.hold, None);
}

#[test]
fn a_defer_by_a_worker_holds_the_queue_only_if_it_says_so() {
    for (cause, scope, holds) in [
        (HoldCause::Deferred, None, false),
        (HoldCause::Deferred, Some(DeferScope::Job), false),
        (HoldCause::Deferred, Some(DeferScope::Queue), true),
        (HoldCause::Backpressure, None, true),
        (HoldCause::Circuit, None, true),
    ] {
        let mut stage = Stage::leased(settings());
        stage.run(report(None, Outcome::Defer { retry_after: Some(9 * SECOND), scope, cause }));

        assert_eq!(stage.queue.hold.is_some(), holds, "{cause:?} {scope:?}");
    }
}

#[test]
fn an_excerpt_is_cut_at_a_whole_character() {
    let mut stage = Stage::leased(settings());
    let excerpt = format!("{}ä", "x".repeat(EXCERPT_BYTES_MAX - 1));
    let evidence = Evidence {
        excerpt: Some(excerpt.into()),
        error: Some("boom".into()),
        status_code: Some(500),
        ..Evidence::default()
    };

    let update = stage.run(Command::Report { lease: None, outcome: nack(true), evidence });

    let EventKind::Attempt(attempt) = &update.events[0].kind else { panic!() };
    assert_eq!(attempt.excerpt.as_deref().map(str::len), Some(EXCERPT_BYTES_MAX - 1));
    assert_eq!((attempt.number, attempt.status_code), (1, Some(500)));
    assert_eq!(stage.job.last_error.as_deref(), Some("boom"));
}
