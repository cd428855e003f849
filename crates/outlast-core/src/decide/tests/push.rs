//! Rules that push brought: circuits, rates, callbacks.

use std::time::Duration;

use super::stage::{SECOND, Stage, ack, claim, report, settings};
use crate::alarm::alarm;
use crate::breaker::cool_down;
use crate::change::{Effect, Refusal};
use crate::command::{Command, Outcome};
use crate::event::{EventKind, Reason};
use crate::gate::{Hold, HoldCause};
use crate::ids::JobId;
use crate::job::Spec;
use crate::queue::{DeferScope, Mode, QueueSettings, RateLimit};
use crate::state::{CancelReason, Phase, State, Status};

fn circuit() -> Outcome {
    Outcome::Defer { retry_after: None, scope: None, cause: HoldCause::Circuit }
}

fn told(settings: QueueSettings) -> Stage {
    let spec = Spec { payload: "{}".into(), callback_url: Some("https://example.com".into()), ..Spec::default() };
    Stage::published(spec, settings)
}

#[test]
fn each_probe_that_finds_the_circuit_open_rests_longer_and_charges_nothing() {
    let mut stage = Stage::queued(settings());
    for round in 0..9 {
        stage.run(claim(Phase::Delivering));
        stage.run(report(None, circuit()));

        let hold = stage.queue.hold.unwrap();
        assert_eq!((hold.cause, hold.round), (HoldCause::Circuit, round));
        assert_eq!(hold.until, stage.now.plus(cool_down(round)));
        assert_eq!((stage.job.attempt, stage.job.deferrals), (1, round + 1));
        stage.now = alarm(&stage.job, &stage.queue).unwrap();
        stage.run(Command::WAKE);
    }

    stage.run(claim(Phase::Delivering));
    stage.run(report(None, ack()));
    assert_eq!(stage.queue.hold, None);
}

#[test]
fn a_hold_of_another_cause_starts_over() {
    let mut stage = Stage::queued(settings());
    stage.run(claim(Phase::Delivering));
    stage.run(report(None, super::stage::defer(1)));
    stage.pass(SECOND);
    stage.run(Command::WAKE);

    stage.run(claim(Phase::Delivering));
    stage.run(report(None, circuit()));

    assert_eq!(stage.queue.hold.map(|hold| (hold.cause, hold.round)), Some((HoldCause::Circuit, 0)));
}

#[test]
fn each_hand_out_uses_the_rate_a_little_more() {
    let limit = RateLimit { limit: 10, per: SECOND };
    let mut stage = Stage::queued(QueueSettings { rate_limit: Some(limit), ..settings() });

    let update = stage.run(claim(Phase::Leased));

    let gcra = stage.queue.gcra.after(1, limit, stage.now);
    assert!(update.effects.contains(&Effect::SetGcra(gcra)));
    assert!(gcra.0 >= stage.now.plus(Duration::from_millis(100)).as_millis() * 1000);
}

/// I-28: told in the very step that ends the job, before the end itself.
#[test]
fn every_end_of_a_run_is_told_once_and_last_comes_the_end() {
    let ends: [fn(&mut Stage); 3] = [
        |stage| {
            stage.run(claim(Phase::Leased));
            stage.run(report(None, ack()));
        },
        |stage| {
            stage.run(claim(Phase::Leased));
            stage.run(report(None, Outcome::Nack { retryable: false, delay: None }));
        },
        |stage| {
            stage.run(Command::Cancel { reason: CancelReason::User });
        },
    ];
    for end in ends {
        let mut stage = told(settings());
        end(&mut stage);

        let callbacks = stage.log.iter().filter(|event| event.kind == EventKind::Callback).count();
        assert_eq!(callbacks, 1);
        assert!(matches!(stage.log.last().unwrap().kind, EventKind::State { to, .. } if to.is_terminal()));
    }
}

#[test]
fn a_callback_is_not_told_of_itself_and_keeps_its_payload() {
    let mut stage = told(QueueSettings { mode: Mode::Callback, ..settings() });
    stage.run(claim(Phase::Delivering));
    let update = stage.run(report(None, Outcome::Nack { retryable: false, delay: None }));

    assert!(!update.effects.iter().any(Effect::is_publish));
    assert_eq!(stage.job.status(), Status::Failed);
    let changed = Command::Replay { fresh: false, payload: Some("[1]".into()) };
    assert_eq!(stage.ask(changed), Err(Refusal::PayloadFixed));
    stage.run(Command::Replay { fresh: false, payload: None });
}

#[test]
fn a_delivery_whose_lease_ran_out_ended_nobody_knows_how() {
    let mut stage = Stage::queued(settings());
    stage.run(claim(Phase::Delivering));
    stage.now = alarm(&stage.job, &stage.queue).unwrap();

    stage.run(Command::WAKE);

    assert_eq!(stage.last_reason(), Some(Reason::Unknown));
    assert_eq!(stage.job.attempt, 2);
    assert!(matches!(stage.job.state, State::Pending { .. }));
}

/// A queue on hold whose probe is out, and is `stage`'s job.
fn probing(cause: HoldCause) -> Stage {
    let ack_mode = QueueSettings { mode: Mode::Ack, heartbeat_timeout: Some(5 * SECOND), ..settings() };
    let mut stage = Stage::queued(ack_mode);
    stage.run(claim(Phase::Delivering));
    stage.run(report(None, Outcome::Defer { retry_after: Some(SECOND), scope: Some(DeferScope::Queue), cause }));
    stage.pass(SECOND);
    stage.run(Command::WAKE);
    stage.run(claim(Phase::Delivering));
    stage
}

#[test]
fn a_receipt_of_the_probe_opens_a_queue_that_its_endpoint_had_shut() {
    for (cause, is_open) in [(HoldCause::Backpressure, true), (HoldCause::Circuit, true), (HoldCause::Deferred, false)]
    {
        let mut stage = probing(cause);

        stage.run(Command::Receipt { lease: stage.lease() });

        assert_eq!(stage.queue.hold.is_none(), is_open, "{cause:?}");
    }
}

#[test]
fn a_probe_whose_server_died_leaves_the_hold_in_force() {
    let mut stage = probing(HoldCause::Backpressure);

    stage.run(Command::Abandon);

    assert_eq!(stage.queue.hold.map(|hold| hold.probe), Some(None));
}

#[test]
fn what_comes_late_from_before_the_hold_does_not_end_the_probe() {
    let mut late = Stage::queued(settings());
    late.run(claim(Phase::Delivering));
    let probe = JobId::new(late.now, 99);
    late.queue.hold = Some(Hold { probe: Some(probe), ..Hold::new(late.now, HoldCause::Backpressure) });

    late.run(report(None, super::stage::defer(60)));

    assert_eq!(late.queue.hold.and_then(|hold| hold.probe), Some(probe));
}

#[test]
fn a_delivery_is_not_ended_by_a_missing_heartbeat_and_a_receipt_takes_nothing_back() {
    let mut stage = probing(HoldCause::Circuit);
    let State::Running(delivering) = stage.job.state.clone() else { panic!() };
    assert_eq!(alarm(&stage.job, &stage.queue), Some(delivering.expires_at));

    stage.run(Command::beat(None, Some(Duration::from_secs(7200))));
    stage.run(Command::Receipt { lease: stage.lease() });

    let State::Running(waiting) = &stage.job.state else { panic!() };
    assert_eq!(waiting.expires_at, stage.now.plus(Duration::from_secs(7200)));
}

#[test]
fn the_ack_timeout_counts_from_the_receipt_however_short_it_is() {
    let mut stage = Stage::queued(QueueSettings { mode: Mode::Ack, ack_timeout: SECOND, ..settings() });
    stage.run(claim(Phase::Delivering));
    stage.run(Command::Receipt { lease: stage.lease() });

    assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(SECOND)));
}
