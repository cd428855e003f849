//! Does DIFF notice? Each mutant is the model with one rule bent a little; a few sequences must tell it from the engine.

use std::cmp::Reverse;
use std::time::Duration;

use outlast_core::gate::{Gate, Hold, HoldCause, gate};
use outlast_core::queue::Mode;
use outlast_core::state::{Phase, Status};
use outlast_core::{
    Change, Command, Effect, Entropy, Job, Outcome, OutcomeKind, Queue, Refusal, State, Timestamp, Update, alarm,
    decide, dedupe,
};
use outlast_store::operations::{self, Operation, OperationFilter, OperationStep};
use outlast_tests::model::Rules;

use super::twin::compare;
use crate::backend::Sqlite;

/// Sequences a mutant may survive before DIFF counts as blind to it.
const PATIENCE: u64 = 400;

/// A rule bent a little.
#[derive(Clone, Copy, Debug)]
enum Mutant {
    PriorityIgnored,
    YoungestFirst,
    OneAttemptMore,
    DeferralCharged,
    PlaceLostByRelease,
    LateAckTaken,
    HeartbeatForgotten,
    KeyNeverFree,
    KeyFreeAfterFailure,
    PauseIgnored,
    ConcurrencyIgnored,
    HoldIgnored,
    AlarmTooLate,
    RetentionIgnored,
    FilterIgnored,
    CallbackForgotten,
    CallbackOfCallback,
    PaceForgotten,
    RateIgnored,
    RoundNotCounted,
    CauseForgotten,
    CheckpointsNotDropped,
    SectionForgotten,
    DoomForgotten,
    DoomTooEarly,
    StallUnnoticed,
    OutputNotCounted,
    KeyIgnoredByReplay,
    ResultNotCompared,
}

impl Mutant {
    const ALL: [Mutant; 29] = [
        Mutant::PriorityIgnored,
        Mutant::YoungestFirst,
        Mutant::OneAttemptMore,
        Mutant::DeferralCharged,
        Mutant::PlaceLostByRelease,
        Mutant::LateAckTaken,
        Mutant::HeartbeatForgotten,
        Mutant::KeyNeverFree,
        Mutant::KeyFreeAfterFailure,
        Mutant::PauseIgnored,
        Mutant::ConcurrencyIgnored,
        Mutant::HoldIgnored,
        Mutant::AlarmTooLate,
        Mutant::RetentionIgnored,
        Mutant::FilterIgnored,
        Mutant::CallbackForgotten,
        Mutant::CallbackOfCallback,
        Mutant::PaceForgotten,
        Mutant::RateIgnored,
        Mutant::RoundNotCounted,
        Mutant::CauseForgotten,
        Mutant::CheckpointsNotDropped,
        Mutant::SectionForgotten,
        Mutant::DoomForgotten,
        Mutant::DoomTooEarly,
        Mutant::StallUnnoticed,
        Mutant::OutputNotCounted,
        Mutant::KeyIgnoredByReplay,
        Mutant::ResultNotCompared,
    ];

    fn rules(self) -> Rules {
        let sound = Rules::default();
        match self {
            Mutant::PriorityIgnored => Rules { rank: |job| ready_at(job).map(|at| (Reverse(0), at)), ..sound },
            Mutant::YoungestFirst => Rules { rank: youngest_first, ..sound },
            Mutant::OneAttemptMore => Rules { decide: one_attempt_more, ..sound },
            Mutant::DeferralCharged => Rules { decide: deferral_charged, ..sound },
            Mutant::PlaceLostByRelease => Rules { decide: place_lost, ..sound },
            Mutant::LateAckTaken => Rules { decide: late_ack_taken, ..sound },
            Mutant::HeartbeatForgotten => Rules { decide: heartbeat_forgotten, ..sound },
            Mutant::KeyNeverFree => Rules { holds_key: |_, _, _| true, ..sound },
            Mutant::KeyFreeAfterFailure => Rules { holds_key: free_after_failure, ..sound },
            Mutant::PauseIgnored => Rules { gate: pause_ignored, ..sound },
            Mutant::ConcurrencyIgnored => Rules { gate: |queue, phase, _, now| gate(queue, phase, 0, now), ..sound },
            Mutant::HoldIgnored => Rules { gate: hold_ignored, ..sound },
            Mutant::AlarmTooLate => Rules { alarm: alarm_too_late, ..sound },
            Mutant::RetentionIgnored => Rules { decide: retention_ignored, ..sound },
            Mutant::FilterIgnored => Rules { operate: filter_ignored, ..sound },
            Mutant::CallbackForgotten => Rules { decide: callback_forgotten, ..sound },
            Mutant::CallbackOfCallback => Rules { decide: callback_of_callback, ..sound },
            Mutant::PaceForgotten => Rules { decide: pace_forgotten, ..sound },
            Mutant::RateIgnored => Rules { gate: rate_ignored, ..sound },
            Mutant::RoundNotCounted => Rules { decide: round_not_counted, ..sound },
            Mutant::CauseForgotten => Rules { decide: cause_forgotten, ..sound },
            Mutant::CheckpointsNotDropped => Rules { decide: checkpoints_not_dropped, ..sound },
            Mutant::SectionForgotten => Rules { decide: section_forgotten, ..sound },
            Mutant::DoomForgotten => Rules { decide: doom_forgotten, ..sound },
            Mutant::DoomTooEarly => Rules { decide: doom_too_early, ..sound },
            Mutant::StallUnnoticed => Rules { decide: stall_unnoticed, ..sound },
            Mutant::OutputNotCounted => Rules { decide: output_not_counted, ..sound },
            Mutant::KeyIgnoredByReplay => Rules { blocks_replay: |_, _, _, _| false, ..sound },
            Mutant::ResultNotCompared => Rules { decide: result_not_compared, ..sound },
        }
    }
}

type Decision = Result<Change, Refusal>;

fn ready_at(job: &Job) -> Option<Timestamp> {
    match job.state {
        State::Queued { ready_at } => Some(ready_at),
        _ => None,
    }
}

fn youngest_first(job: &Job) -> Option<(Reverse<i8>, Timestamp)> {
    let at = ready_at(job)?;
    Some((Reverse(job.spec.priority), Timestamp::from_millis(Timestamp::MAX.as_millis() - at.as_millis())))
}

fn one_attempt_more(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    let mut generous = queue.clone();
    generous.settings.max_attempts += 1;
    decide(job, &generous, command, now, entropy)
}

/// Decides soundly, then bends the update.
fn bent(decision: Decision, bend: impl FnOnce(&mut Update)) -> Decision {
    decision.map(|change| match change {
        Change::Update(mut update) => {
            bend(&mut update);
            Change::Update(update)
        }
        other => other,
    })
}

fn deferral_charged(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    let defers = matches!(&command, Command::Report { outcome: Outcome::Defer { .. }, .. });
    bent(decide(job, queue, command, now, entropy), |update| update.job.attempt += u32::from(defers))
}

fn place_lost(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    bent(decide(job, queue, command, now, entropy), |update| {
        if let State::Queued { ready_at } = &mut update.job.state {
            *ready_at = now;
        }
    })
}

fn late_ack_taken(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    let command = match command {
        Command::Report { outcome: outcome @ Outcome::Ack { .. }, evidence, .. } if job.status() == Status::Running => {
            let lease = match &job.state {
                State::Running(running) => Some(running.lease),
                _ => None,
            };
            Command::Report { lease, outcome, evidence }
        }
        other => other,
    };
    decide(job, queue, command, now, entropy)
}

fn heartbeat_forgotten(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    bent(decide(job, queue, command, now, entropy), |update| {
        if let State::Running(running) = &mut update.job.state {
            running.heartbeat_at = None;
        }
    })
}

fn retention_ignored(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    match decide(job, queue, command, now, entropy)? {
        Change::Delete => Ok(Change::None),
        change => Ok(change),
    }
}

fn free_after_failure(job: &Job, queue: &Queue, now: Timestamp) -> bool {
    job.status() != Status::Failed && dedupe::holds_key(job, queue, now)
}

fn pause_ignored(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    gate(&Queue { paused: false, ..queue.clone() }, phase, running, now)
}

fn hold_ignored(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    gate(&Queue { hold: None, ..queue.clone() }, phase, running, now)
}

fn alarm_too_late(job: &Job, queue: &Queue) -> Option<Timestamp> {
    alarm::alarm(job, queue).map(|at| at.plus(Duration::from_millis(1)))
}

fn filter_ignored(operation: &Operation, job: &Job) -> OperationStep {
    operations::next_step(&Operation { filter: OperationFilter::default(), ..operation.clone() }, job)
}

fn rate_ignored(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    let mut fast = queue.clone();
    fast.settings.rate_limit = None;
    gate(&fast, phase, running, now)
}

/// Decides soundly, then forgets the effects that `forgets` names.
fn forgetful(decision: Decision, forgets: impl Fn(&Effect) -> bool) -> Decision {
    bent(decision, |update| update.effects.retain(|effect| !forgets(effect)))
}

fn callback_forgotten(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    forgetful(decide(job, queue, command, now, entropy), Effect::is_publish)
}

fn callback_of_callback(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    let mut talkative = queue.clone();
    if talkative.settings.mode == Mode::Callback {
        talkative.settings.mode = Mode::Standard;
    }
    decide(job, &talkative, command, now, entropy)
}

fn pace_forgotten(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    forgetful(decide(job, queue, command, now, entropy), |effect| matches!(effect, Effect::SetGcra(_)))
}

/// Decides soundly, then bends the hold.
fn holding(decision: Decision, bend: impl Fn(&mut Hold)) -> Decision {
    bent(decision, |update| {
        for effect in &mut update.effects {
            if let Effect::SetHold(Some(hold)) = effect {
                bend(hold);
            }
        }
    })
}

fn round_not_counted(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    holding(decide(job, queue, command, now, entropy), |hold| hold.round = 0)
}

fn cause_forgotten(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    holding(decide(job, queue, command, now, entropy), |hold| hold.cause = HoldCause::Backpressure)
}

fn checkpoints_not_dropped(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    forgetful(decide(job, queue, command, now, entropy), |effect| *effect == Effect::DropCheckpoints)
}

fn section_forgotten(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    forgetful(decide(job, queue, command, now, entropy), |effect| matches!(effect, Effect::KeepSection(_)))
}

fn doom_forgotten(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    forgetful(decide(job, queue, command, now, entropy), |effect| matches!(effect, Effect::ScheduleDelete(_)))
}

fn doom_too_early(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    bent(decide(job, queue, command, now, entropy), |update| {
        for effect in &mut update.effects {
            if let Effect::ScheduleDelete(doom) = effect {
                doom.at = now;
            }
        }
    })
}

fn stall_unnoticed(job: &Job, queue: &Queue, command: Command, now: Timestamp, entropy: &mut dyn Entropy) -> Decision {
    bent(decide(job, queue, command, now, entropy), |update| {
        if let State::Running(running) = &mut update.job.state {
            running.work.is_stalled = false;
        }
    })
}

fn output_not_counted(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    bent(decide(job, queue, command, now, entropy), |update| {
        update.job.work_summary.output_bytes = job.work_summary.output_bytes;
    })
}

/// A repeated ack is fine, whatever its result.
fn result_not_compared(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Decision {
    let acks = matches!(&command, Command::Report { outcome: Outcome::Ack { .. }, .. });
    match decide(job, queue, command, now, entropy) {
        Err(Refusal::OutcomeConflict { recorded: OutcomeKind::Ack, .. }) if acks => Ok(Change::None),
        decision => decision,
    }
}

/// M-2.
#[test]
fn diff_notices_every_mutant() {
    for mutant in Mutant::ALL {
        let noticed = (1..=PATIENCE).find(|seed| compare::<Sqlite>(mutant.rules(), *seed).is_err());
        let Some(seed) = noticed else {
            panic!("{mutant:?} went unnoticed over {PATIENCE} sequences");
        };
        println!("{mutant:?}: noticed in sequence {seed}");
    }
}
