//! Long-running work: what is kept while it goes on, what becomes of it in the end, and the limits of time. I-15, I-20,
//! I-21, I-35, I-36.

use std::sync::Arc;
use std::time::Duration;

use super::stage::{SECOND, Stage, ack, claim, nack, object, report, settings, uploaded};
use crate::alarm::{alarm, lease_deadline};
use crate::change::{Change, Effect, OUTPUT_BYTES_MAX, Refusal, ScheduledDelete};
use crate::checkpoint::{Checkpoint, CheckpointData, Section};
use crate::command::{Command, Outcome};
use crate::directive::{Directive, directives};
use crate::event::{EventKind, Reason};
use crate::gate::{Hold, HoldCause};
use crate::liveness::{Liveness, liveness};
use crate::object::Role;
use crate::outage::Outage;
use crate::progress::{Progress, ProgressReport};
use crate::queue::{QueueSettings, StallAction};
use crate::state::{CancelReason, Directives, Phase, Running, State, Status};
use crate::time::Timestamp;

fn checkpoint(text: &str) -> Arc<Checkpoint> {
    let data = CheckpointData::Inline(text.into());
    Arc::new(Checkpoint { schema_version: 2, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 })
}

fn save(text: &str) -> Command {
    Command::Checkpoint { lease: None, checkpoint: checkpoint(text), progress: None }
}

fn section(name: &str) -> Command {
    let section = Section { name: name.into(), body: "{}".into(), at: Timestamp::EPOCH };
    Command::Section { lease: None, section: Arc::new(section) }
}

fn progress(stage: &Stage, pct: f64) -> Command {
    let report = ProgressReport { pct: Some(pct), ..ProgressReport::default() };
    Command::Progress { lease: None, progress: Arc::new(Progress::after(None, report, stage.now)) }
}

fn running(stage: &Stage) -> Running {
    match &stage.job.state {
        State::Running(running) => running.clone(),
        other => panic!("{other:?}"),
    }
}

fn wake_at_alarm(stage: &mut Stage) {
    stage.now = alarm(&stage.job, &stage.queue).unwrap();
    stage.run(Command::WAKE);
}

#[test]
fn a_checkpoint_is_kept_with_when_and_where_it_was_saved_and_outlives_the_attempt() {
    let mut stage = Stage::leased(settings());
    stage.pass(SECOND);

    let update = stage.run(save("[1]"));

    let kept = Checkpoint { at: stage.now, replays: 0, attempt: 1, ..Checkpoint::clone(&checkpoint("[1]")) };
    assert_eq!(update.effects, [Effect::KeepCheckpoint(Arc::new(kept))]);
    wake_at_alarm(&mut stage);
    assert!(stage.job.work_summary.has_checkpoint);
    assert_eq!(stage.job.status(), Status::Queued);
}

#[test]
fn what_was_saved_goes_with_success_and_stays_with_failure_and_cancel() {
    let leads = |settings: QueueSettings, command: fn() -> Command| {
        let mut stage = Stage::leased(settings);
        stage.run(save("[1]"));
        stage.run(section("a"));
        let update = stage.run(command());
        (update.effects.contains(&Effect::DropCheckpoints), stage.job.work_summary.has_sections)
    };
    let keeping = QueueSettings { keep_checkpoints: true, ..settings() };

    assert_eq!(leads(settings(), || report(None, ack())), (true, false));
    assert_eq!(leads(keeping, || report(None, ack())), (false, true));
    assert_eq!(leads(settings(), || report(None, nack(false))), (false, true));
    assert_eq!(leads(settings(), || Command::Cancel { reason: CancelReason::User }), (false, true));
}

#[test]
fn a_replay_goes_on_from_the_checkpoint_unless_it_is_to_be_fresh() {
    for fresh in [false, true] {
        let mut stage = Stage::leased(settings());
        stage.run(save("[1]"));
        stage.run(report(None, nack(false)));

        let update = stage.run(Command::Replay { fresh, payload: None });

        assert_eq!(update.effects.contains(&Effect::DropCheckpoints), fresh);
        assert_eq!(stage.job.work_summary.has_checkpoint, !fresh);
    }
}

#[test]
fn nothing_a_superseded_holder_says_is_taken() {
    let mut stage = Stage::leased(settings());
    let old = Some(stage.lease());
    wake_at_alarm(&mut stage);
    stage.run(claim(Phase::Leased));

    let report = Arc::new(Progress::after(None, ProgressReport::default(), stage.now));
    for command in [
        Command::beat(old, None),
        Command::Progress { lease: old, progress: report },
        Command::Checkpoint { lease: old, checkpoint: checkpoint("1"), progress: None },
        Command::Section {
            lease: old,
            section: Arc::new(Section { name: "a".into(), body: "1".into(), at: stage.now }),
        },
        Command::Output { lease: old, part: None, text: "x".into() },
        Command::Upload { lease: old, object: object() },
        Command::Finalize { lease: old, object: object() },
    ] {
        assert_eq!(stage.act(command.clone()), Err(Refusal::LeaseLost), "{command:?}");
    }
}

#[test]
fn output_is_logged_up_to_its_bound() {
    let mut stage = Stage::leased(settings());
    stage.run(Command::Output { lease: None, part: None, text: "Once".into() });
    assert_eq!(stage.log.last().unwrap().kind, EventKind::Output { attempt: 1, part: None, text: "Once".into() });

    stage.job.work_summary.output_bytes = OUTPUT_BYTES_MAX;
    assert_eq!(stage.act(Command::Output { lease: None, part: None, text: "x".into() }), Err(Refusal::OutputFull));
}

#[test]
fn a_numbered_part_of_the_output_is_appended_once_and_in_order() {
    let part = |part: u64| Command::Output { lease: None, part: Some(part), text: "x".into() };
    let mut stage = Stage::leased(settings());

    assert_eq!(stage.act(part(2)), Err(Refusal::OutputGap { next: 1 }));
    stage.run(part(1));
    stage.run(Command::Output { lease: None, part: None, text: "between".into() });
    stage.run(part(2));
    let written = stage.job.work_summary.output_bytes;
    for known in [1, 2] {
        assert_eq!(stage.act(part(known)), Ok(Change::None), "{known}");
    }

    assert_eq!(stage.act(part(4)), Err(Refusal::OutputGap { next: 3 }));
    assert_eq!(stage.job.work_summary.output_bytes, written);
    let last = stage.job.running().unwrap().work.last_part.unwrap();
    assert_eq!((last.part, last.seq), (2, stage.job.events));
    assert_eq!(stage.log.last().unwrap().kind, EventKind::Output { attempt: 1, part: Some(2), text: "x".into() });

    stage.run(report(None, Outcome::Release));
    stage.run(claim(Phase::Leased));
    assert_eq!(stage.job.attempt, 1);
    assert_eq!(stage.act(part(3)), Err(Refusal::OutputGap { next: 1 }), "another hand-out begins with part 1");
}

#[test]
fn unfinished_uploads_are_doomed_with_their_hand_out_and_a_finished_one_unless_it_succeeds() {
    let scheduled = |attached: bool, at: Timestamp| {
        let role = attached.then_some(Role::Result);
        Effect::ScheduleDelete(ScheduledDelete { role, attached, at: at.plus(crate::object::DELETE_DELAY) })
    };
    for (finished, outcome, expected) in [
        (false, ack(), &[false][..]),
        (true, ack(), &[false]),
        (false, nack(true), &[false]),
        (true, nack(true), &[false, true]),
        (true, nack(false), &[false]),
    ] {
        let mut stage = Stage::leased(settings());
        stage.run(Command::Upload { lease: None, object: object() });
        if finished {
            stage.run(Command::Finalize { lease: None, object: object() });
        }

        let update = stage.run(report(None, outcome.clone()));

        let dooms: Vec<Effect> =
            update.effects.into_iter().filter(|effect| matches!(effect, Effect::ScheduleDelete(_))).collect();
        let expected: Vec<Effect> = expected.iter().map(|attached| scheduled(*attached, stage.now)).collect();
        assert_eq!(dooms, expected, "{finished} {outcome:?}");
    }
}

#[test]
fn an_upload_is_the_result_of_an_ack_that_brings_none_and_refuses_one_that_does() {
    let mut stage = Stage::leased(settings());
    stage.run(Command::Finalize { lease: None, object: object() });

    let inline = report(None, Outcome::Ack { result: Some("1".into()) });
    assert_eq!(stage.act(inline), Err(Refusal::ResultExists));
    stage.run(report(None, ack()));
    assert_eq!(stage.job.state, State::Succeeded { at: stage.now, result: Some(uploaded()) });

    stage.pass(settings().result_ttl);
    let update = stage.run(Command::WAKE);
    assert_eq!(
        update.effects,
        [Effect::ScheduleDelete(ScheduledDelete { role: Some(Role::Result), attached: true, at: stage.now })]
    );
}

#[test]
fn a_partial_result_stays_with_a_cancelled_job_until_it_is_replayed() {
    let mut stage = Stage::leased(settings());
    stage.run(Command::Finalize { lease: None, object: object() });
    stage.run(Command::Cancel { reason: CancelReason::User });
    wake_at_alarm(&mut stage);
    assert!(stage.job.work_summary.has_upload && stage.job.status() == Status::Cancelled);

    let update = stage.run(Command::Replay { fresh: false, payload: None });

    assert_eq!(
        update.effects,
        [Effect::ScheduleDelete(ScheduledDelete { role: Some(Role::Result), attached: true, at: stage.now })]
    );
    assert!(!stage.job.work_summary.has_upload);
}

#[test]
fn work_that_does_not_move_is_flagged_once_and_again_after_it_moved() {
    let quick = QueueSettings { stall_timeout: 8 * SECOND, visibility_timeout: 600 * SECOND, ..settings() };
    let mut stage = Stage::leased(quick);
    assert_eq!(alarm(&stage.job, &stage.queue), Some(stage.now.plus(600 * SECOND)), "without a report nobody knows");
    stage.run(progress(&stage, 10.0));

    stage.pass(8 * SECOND);
    assert_eq!(stage.act(Command::WAKE), Ok(Change::None), "never early");
    wake_at_alarm(&mut stage);
    assert!(running(&stage).work.is_stalled);
    assert!(matches!(&stage.log.last().unwrap().kind, EventKind::Note { text } if text.starts_with("progress_stall")));
    stage.run(progress(&stage, 10.0));
    assert!(running(&stage).work.is_stalled, "the same again is no progress");
    stage.run(progress(&stage, 11.0));
    assert!(!running(&stage).work.is_stalled);
    wake_at_alarm(&mut stage);
    assert!(running(&stage).work.is_stalled);
}

#[test]
fn stalled_work_is_tried_again_where_the_queue_says_so() {
    let retrying = QueueSettings {
        stall_timeout: 8 * SECOND,
        stall_action: StallAction::Retry,
        visibility_timeout: 600 * SECOND,
        ..settings()
    };
    let mut stage = Stage::leased(retrying);
    stage.run(progress(&stage, 10.0));

    wake_at_alarm(&mut stage);

    assert_eq!((stage.job.status(), stage.job.attempt), (Status::Queued, 2));
    assert_eq!(stage.last_reason(), Some(Reason::Stalled));
}

#[test]
fn a_run_may_go_on_while_work_moves_and_no_longer() {
    let extending = QueueSettings {
        job_timeout: Some(20 * SECOND),
        extend_while_progressing: true,
        visibility_timeout: 600 * SECOND,
        ..settings()
    };
    let mut stage = Stage::leased(extending);
    for step in 1..=5u32 {
        stage.pass(15 * SECOND);
        assert_eq!(stage.act(Command::WAKE), Ok(Change::None));
        stage.run(progress(&stage, f64::from(step)));
    }

    let last = stage.now;
    wake_at_alarm(&mut stage);

    // A little later: not every move is written down at once.
    assert_eq!(stage.now, last.plus(20 * SECOND + 20 * SECOND / 8));
    assert!(matches!(stage.job.state, State::Cancelled { reason: CancelReason::Timeout, .. }));
}

#[test]
fn no_heartbeat_reaches_beyond_the_limits_of_the_work() {
    let limited = QueueSettings { hard_time_limit: Some(40 * SECOND), ..settings() };
    let mut stage = Stage::leased(limited);
    let end = stage.now.plus(40 * SECOND);
    for _ in 0..3 {
        stage.pass(10 * SECOND);
        stage.run(Command::beat(None, Some(Duration::from_secs(3600))));
        assert_eq!(lease_deadline(&stage.job, &stage.queue, &running(&stage)), end);
    }
    wake_at_alarm(&mut stage);
    assert_eq!((stage.now, stage.last_reason()), (end, Some(Reason::HardTimeLimit)));
}

#[test]
fn who_could_not_be_heard_gets_the_outage_as_grace_and_no_more() {
    let mut stage = Stage::leased(settings());
    let deadline = alarm(&stage.job, &stage.queue).unwrap();
    let outage = Outage { from: stage.now.plus(10 * SECOND), to: stage.now.plus(70 * SECOND) };

    stage.now = outage.to;
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(stage.job.status(), Status::Running);
    assert_eq!(alarm(&stage.job, &stage.queue), Some(deadline.plus(60 * SECOND)));

    stage.now = alarm(&stage.job, &stage.queue).unwrap();
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(stage.last_reason(), Some(Reason::LeaseExpired), "one outage is one grace");
}

#[test]
fn a_grace_ends_one_extension_after_the_outage_at_the_latest() {
    let mut stage = Stage::leased(settings());
    stage.pass(5 * SECOND);
    stage.run(Command::beat(None, Some(60 * SECOND)));
    let outage = Outage { from: stage.now.plus(10 * SECOND), to: stage.now.plus(3600 * SECOND) };

    stage.now = outage.to;
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(alarm(&stage.job, &stage.queue), Some(outage.to.plus(30 * SECOND)));

    stage.now = outage.to.plus(30 * SECOND);
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(stage.last_reason(), Some(Reason::LeaseExpired));
}

#[test]
fn a_second_outage_is_a_second_grace() {
    let mut stage = Stage::leased(settings());
    for _ in 0..3 {
        let deadline = alarm(&stage.job, &stage.queue).unwrap();
        let from = Timestamp::from_millis(deadline.as_millis() - 1000);
        let outage = Outage { from, to: deadline.plus(5 * SECOND) };
        stage.now = outage.to;
        stage.run(Command::Wake { outage: Some(outage) });
        assert_eq!(alarm(&stage.job, &stage.queue), Some(deadline.plus(6 * SECOND)));
    }
}

#[test]
fn the_drain_time_gets_the_outage_as_grace_once() {
    let mut stage = Stage::leased(QueueSettings { drain_timeout: 20 * SECOND, ..settings() });
    stage.run(Command::Cancel { reason: CancelReason::User });
    let revoke_at = stage.now.plus(20 * SECOND);
    let outage = Outage { from: stage.now.plus(15 * SECOND), to: stage.now.plus(25 * SECOND) };

    stage.now = outage.to;
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(alarm(&stage.job, &stage.queue), Some(revoke_at.plus(10 * SECOND)));

    stage.now = revoke_at.plus(10 * SECOND);
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(stage.job.status(), Status::Cancelled);
}

#[test]
fn who_was_lost_before_the_outage_or_heard_after_it_gets_no_grace() {
    let mut lost = Stage::leased(settings());
    let outage = Outage { from: lost.now.plus(31 * SECOND), to: lost.now.plus(90 * SECOND) };
    lost.now = outage.to;
    lost.run(Command::Wake { outage: Some(outage) });
    assert_eq!(lost.job.status(), Status::Queued);

    let mut heard = Stage::leased(settings());
    let outage = Outage { from: heard.now.plus(5 * SECOND), to: heard.now.plus(10 * SECOND) };
    heard.now = heard.now.plus(11 * SECOND);
    heard.run(Command::beat(None, None));
    heard.now = alarm(&heard.job, &heard.queue).unwrap();
    heard.run(Command::Wake { outage: Some(outage) });
    assert_eq!(heard.job.status(), Status::Queued);
}

#[test]
fn work_that_could_not_be_heard_of_has_not_stalled() {
    let retrying = QueueSettings {
        stall_timeout: 8 * SECOND,
        stall_action: StallAction::Retry,
        visibility_timeout: 600 * SECOND,
        ..settings()
    };
    let mut stage = Stage::leased(retrying);
    stage.run(progress(&stage, 10.0));
    let outage = Outage { from: stage.now.plus(SECOND), to: stage.now.plus(60 * SECOND) };

    stage.now = outage.to;
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(alarm(&stage.job, &stage.queue), Some(outage.to.plus(9 * SECOND)));

    stage.now = outage.to.plus(9 * SECOND);
    stage.run(Command::Wake { outage: Some(outage) });
    assert_eq!(stage.last_reason(), Some(Reason::Stalled), "once");
}

#[test]
fn limits_of_the_work_itself_know_no_outage() {
    let mut stage = Stage::leased(QueueSettings { hard_time_limit: Some(20 * SECOND), ..settings() });
    let outage = Outage { from: stage.now.plus(SECOND), to: stage.now.plus(60 * SECOND) };
    stage.now = outage.to;
    stage.run(Command::Wake { outage: Some(outage) });

    assert_eq!(stage.last_reason(), Some(Reason::HardTimeLimit));
}

#[test]
fn directives_last_until_the_lease_ends_and_a_checkpoint_answers_one() {
    let mut stage = Stage::leased(settings());
    let all = Directives { checkpoint_now: true, hand_over: true, slow_down: true };
    stage.run(Command::Direct { directives: all });
    assert_eq!(running(&stage).work.directives, all);

    stage.run(save("1"));
    assert_eq!(running(&stage).work.directives, Directives { checkpoint_now: false, ..all });
    stage.run(report(None, Outcome::Release));
    assert!(matches!(stage.act(Command::Direct { directives: all }), Err(Refusal::NotRunning { .. })));
    stage.run(claim(Phase::Leased));
    assert_eq!(running(&stage).work.directives, Directives::default());
}

#[test]
fn a_worker_is_told_what_was_asked_and_what_follows() {
    let told = |stage: &Stage| directives(&stage.job, &stage.queue, &running(stage), stage.now);
    let mut stage = Stage::leased(QueueSettings { soft_time_limit: Some(5 * SECOND), ..settings() });
    assert_eq!(told(&stage), []);

    for (cause, slows) in [(HoldCause::Backpressure, true), (HoldCause::Deferred, true), (HoldCause::Circuit, false)] {
        stage.queue.hold = Some(Hold::new(stage.now.plus(SECOND), cause));
        assert_eq!(told(&stage).contains(&Directive::SlowDown), slows, "{cause:?}");
    }
    stage.queue.hold = None;
    stage.run(Command::Direct { directives: Directives { hand_over: true, ..Directives::default() } });
    assert_eq!(told(&stage), [Directive::HandOver]);
    stage.pass(5 * SECOND);
    assert_eq!(told(&stage), [Directive::CheckpointNow, Directive::HandOver], "the soft limit is over");

    let mut cancelled = Stage::leased(settings());
    cancelled.run(Command::Cancel { reason: CancelReason::User });
    assert_eq!(told(&cancelled), [Directive::Cancel, Directive::CheckpointNow]);
}

#[test]
fn one_word_says_how_the_work_goes() {
    let mut stage = Stage::leased(QueueSettings { stall_timeout: 100 * SECOND, ..settings() });
    let word = |stage: &Stage| liveness(&stage.job, &stage.queue, &running(stage), None, stage.now);
    assert_eq!(word(&stage), Liveness::Working);
    stage.pass(21 * SECOND);
    assert_eq!(word(&stage), Liveness::Slow);
    stage.pass(9 * SECOND);
    assert_eq!(word(&stage), Liveness::Dead);

    stage.run(Command::beat(None, Some(Duration::from_secs(3600))));
    stage.run(progress(&stage, 1.0));
    assert_eq!(word(&stage), Liveness::Working);
    stage.pass(100 * SECOND);
    stage.run(Command::beat(None, Some(Duration::from_secs(3600))));
    assert_eq!(word(&stage), Liveness::Stuck);
}
