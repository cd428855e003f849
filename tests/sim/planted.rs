//! Bugs planted on purpose: the simulator must find each of them, or it is blind.

use std::collections::BTreeMap;

use outlast_core::gate::{Gate, gate};
use outlast_core::state::{Phase, Status};
use outlast_core::{
    Change, Command, Entropy, Job, JobId, Outcome, Queue, Refusal, State, Timestamp, alarm, decide, entropy,
};
use outlast_store::alarms::Due;
use outlast_store::jobs::{JobCommand, Published};
use outlast_store::operations::{self, Operation, OperationId, OperationStep};
use outlast_tests::model::{ModelDisk, Row, Rules};

use crate::run::check;

/// Seeds a bug may survive before the simulator counts as blind to it.
const PATIENCE: u64 = 150;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plant {
    Nothing,
    PublishForgotten,
    ReportForgotten,
    HandedOutTwice,
    LateAckTaken,
    KeyIgnored,
    AttemptNotCharged,
    CancelAfterSuccess,
    EventLost,
    ConcurrencyIgnored,
    AlarmLost,
    NextAlarmUntold,
    PurgedTooEarly,
    ReplayUncounted,
    ReplaySkips,
    SentBeforeCommit,
    SentTwice,
    BackpressureCharged,
    HoldIgnored,
    ProbeNotAlone,
    CallbackForgotten,
}

/// Those that only deliveries show.
pub const PUSH_BUGS: [Plant; 6] = [
    Plant::SentBeforeCommit,
    Plant::SentTwice,
    Plant::BackpressureCharged,
    Plant::HoldIgnored,
    Plant::ProbeNotAlone,
    Plant::CallbackForgotten,
];

const BUGS: [Plant; 14] = [
    Plant::PublishForgotten,
    Plant::ReportForgotten,
    Plant::HandedOutTwice,
    Plant::LateAckTaken,
    Plant::KeyIgnored,
    Plant::AttemptNotCharged,
    Plant::CancelAfterSuccess,
    Plant::EventLost,
    Plant::ConcurrencyIgnored,
    Plant::AlarmLost,
    Plant::NextAlarmUntold,
    Plant::PurgedTooEarly,
    Plant::ReplayUncounted,
    Plant::ReplaySkips,
];

type Decision = Result<Change, Refusal>;

impl Plant {
    pub fn rules(self) -> Rules {
        let sound = Rules::default();
        match self {
            Plant::HandedOutTwice => Rules { decide: handed_out_twice, rank: also_running, ..sound },
            Plant::LateAckTaken => Rules { decide: late_ack_taken, ..sound },
            Plant::KeyIgnored => Rules { holds_key: |_, _, _| false, ..sound },
            Plant::AttemptNotCharged => Rules { decide: attempt_not_charged, ..sound },
            Plant::CancelAfterSuccess => Rules { decide: cancel_after_success, ..sound },
            Plant::EventLost => Rules { decide: event_lost, ..sound },
            Plant::ConcurrencyIgnored => {
                Rules { gate: |queue, phase, _, now| outlast_core::gate::gate(queue, phase, 0, now), ..sound }
            }
            Plant::AlarmLost => Rules { alarm: no_alarm_for_backoff, ..sound },
            Plant::PurgedTooEarly => Rules { decide: purged_too_early, ..sound },
            Plant::ReplaySkips => Rules { operate: replay_skips, ..sound },
            Plant::BackpressureCharged => Rules { decide: backpressure_charged, ..sound },
            Plant::HoldIgnored => Rules { gate: hold_ignored, ..sound },
            Plant::ProbeNotAlone => Rules { gate: probe_not_alone, ..sound },
            Plant::CallbackForgotten => Rules { decide: callback_forgotten, ..sound },
            _ => sound,
        }
    }

    /// Acknowledged, and gone.
    pub fn after_publish(self, disk: &ModelDisk, published: &[Published]) {
        if let (Plant::PublishForgotten, [Published::Created { job, .. }]) = (self, published)
            && job.created_at.as_millis() % 5 == 0
        {
            disk.world().remove(job.id);
        }
    }

    /// The state to restore.
    pub fn copy(self, disk: &ModelDisk) -> BTreeMap<u64, Row> {
        if self == Plant::SentBeforeCommit { disk.world().rows.clone() } else { BTreeMap::new() }
    }

    /// Handed out, and not remembered.
    pub fn after_claim(self, disk: &ModelDisk, before: &BTreeMap<u64, Row>) {
        if self != Plant::SentBeforeCommit {
            return;
        }
        for (position, row) in &mut disk.world().rows {
            if let (true, Some(before)) = (row.job.epoch % 2 == 1, before.get(position)) {
                row.clone_from(before);
            }
        }
    }

    pub fn before_apply(self, disk: &ModelDisk, orders: &[JobCommand]) -> Option<(JobId, Row)> {
        match (self, orders) {
            (Plant::ReportForgotten, [JobCommand { id, command: Command::Report { .. }, .. }])
                if id.as_u128() % 3 == 0 =>
            {
                disk.world().row(*id).map(|row| (*id, row.clone()))
            }
            _ => None,
        }
    }

    /// Acknowledged, and undone.
    pub fn after_apply(self, disk: &ModelDisk, before: Option<(JobId, Row)>) {
        if let Some((id, before)) = before {
            let mut world = disk.world();
            if let Some(row) = world.rows.values_mut().find(|row| row.job.id == id) {
                *row = before;
            }
        }
    }

    /// A step whose changes are kept and whose count is lost.
    pub fn after_advance(self, disk: &ModelDisk, id: OperationId) {
        if self == Plant::ReplayUncounted
            && let Some(operation) = disk.world().operations.get_mut(&id)
        {
            operation.processed = 0;
        }
    }

    pub fn on_due(self, due: Due) -> Due {
        match self {
            Plant::NextAlarmUntold => Due { next: None, ..due },
            _ => due,
        }
    }
}

fn also_running(job: &Job) -> Option<(std::cmp::Reverse<i8>, Timestamp)> {
    let at = match &job.state {
        State::Queued { ready_at } => *ready_at,
        State::Running(running) => running.expires_at,
        _ => return None,
    };
    Some((std::cmp::Reverse(job.spec.priority), at))
}

fn handed_out_twice(job: &Job, queue: &Queue, command: Command, now: Timestamp, chance: &mut dyn Entropy) -> Decision {
    if let (Command::Claim { .. }, State::Running(running)) = (&command, &job.state) {
        let mut job = job.clone();
        job.version += 1;
        job.state = State::Running(outlast_core::Running { lease: entropy::lease(chance), ..running.clone() });
        let update = outlast_core::Update { job, events: Vec::new(), effects: Vec::new() };
        return Ok(Change::Update(Box::new(update)));
    }
    decide(job, queue, command, now, chance)
}

fn late_ack_taken(job: &Job, queue: &Queue, command: Command, now: Timestamp, chance: &mut dyn Entropy) -> Decision {
    let command = match command {
        Command::Report { outcome: outcome @ Outcome::Ack { .. }, evidence, .. } if job.status() == Status::Running => {
            Command::Report { lease: None, outcome, evidence }
        }
        other => other,
    };
    decide(job, queue, command, now, chance)
}

fn attempt_not_charged(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    chance: &mut dyn Entropy,
) -> Decision {
    let mut young = job.clone();
    young.attempt = 1;
    let mut endless = queue.clone();
    endless.settings.max_attempts = 20;
    decide(&young, &endless, command, now, chance).map(|change| match change {
        Change::Update(mut update) => {
            update.job.attempt = 1;
            Change::Update(update)
        }
        other => other,
    })
}

fn cancel_after_success(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    chance: &mut dyn Entropy,
) -> Decision {
    if let (Command::Cancel { .. }, State::Succeeded { .. }) = (&command, &job.state) {
        let mut waiting = job.clone();
        waiting.state = State::Queued { ready_at: now };
        return decide(&waiting, queue, command, now, chance);
    }
    decide(job, queue, command, now, chance)
}

fn event_lost(job: &Job, queue: &Queue, command: Command, now: Timestamp, chance: &mut dyn Entropy) -> Decision {
    let releases = matches!(&command, Command::Report { outcome: Outcome::Release, .. });
    decide(job, queue, command, now, chance).map(|change| match change {
        Change::Update(mut update) if releases => {
            update.events.pop();
            Change::Update(update)
        }
        other => other,
    })
}

fn purged_too_early(job: &Job, queue: &Queue, command: Command, now: Timestamp, chance: &mut dyn Entropy) -> Decision {
    if let (Command::Wake { .. }, State::Succeeded { result: Some(_), .. }) = (&command, &job.state) {
        return Ok(Change::Delete);
    }
    decide(job, queue, command, now, chance)
}

fn no_alarm_for_backoff(job: &Job, queue: &Queue) -> Option<Timestamp> {
    match job.state {
        State::Pending { reason: outlast_core::state::PendingReason::Backoff, .. } => None,
        _ => alarm::alarm(job, queue),
    }
}

fn backpressure_charged(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    chance: &mut dyn Entropy,
) -> Decision {
    let command = match command {
        Command::Report { lease, outcome: Outcome::Defer { .. }, evidence } => {
            Command::Report { lease, outcome: Outcome::Nack { retryable: true, delay: None }, evidence }
        }
        other => other,
    };
    decide(job, queue, command, now, chance)
}

fn callback_forgotten(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    chance: &mut dyn Entropy,
) -> Decision {
    decide(job, queue, command, now, chance).map(|change| match change {
        Change::Update(mut update) if update.job.status() == Status::Failed => {
            update.effects.retain(|effect| !effect.is_publish());
            Change::Update(update)
        }
        other => other,
    })
}

fn hold_ignored(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    gate(&Queue { hold: None, ..queue.clone() }, phase, running, now)
}

fn probe_not_alone(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    match gate(queue, phase, running, now) {
        Gate::Probe => Gate::Open { limit: 2, more_at: None },
        other => other,
    }
}

fn replay_skips(operation: &Operation, job: &Job) -> OperationStep {
    match operations::next_step(operation, job) {
        OperationStep::Command(Command::Replay { .. }) if job.id.as_u128().is_multiple_of(2) => OperationStep::Skip,
        step => step,
    }
}

/// M-2.
#[test]
fn the_simulator_finds_every_planted_bug() {
    for bug in BUGS {
        let found = (1..=PATIENCE).find_map(|seed| check(bug, seed).err().map(|violation| (seed, violation)));
        let Some((seed, violation)) = found else {
            panic!("{bug:?} was not found in {PATIENCE} runs");
        };
        println!("{bug:?}: found in run {seed}: {:.100}", violation);
    }
}
