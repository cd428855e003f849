//! Prints the page: an introduction, the picture, the tables, and what each reason means.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use outlast_core::decide::set_aside::set_aside;
use outlast_core::event::Reason;
use outlast_core::invariants::Violation;
use outlast_core::queue::StallAction;
use outlast_core::state::{CancelReason, FailReason, PendingReason, Phase};
use outlast_core::{
    Change, Command, EventKind, Outcome, Progress, ProgressReport, QueueSettings, Refusal, Spec, State, Status,
    Timestamp,
};

use super::samples::{SECOND, Sample, circumstances, commands, nack, report, settings, states};
use crate::generated::HEADER;

const INTRODUCTION: &str = r#"
# States of a job

A job is in exactly one state. Only the function `decide` in `crates/outlast-core` changes it. This page is generated
by running every command on a job in every state; if the two differ, `make test` fails.

```
            publish
               |
               v             due
            pending --------------------------> queued <---+
   (delay, backoff, defer)                        |        |  nack, lease lost: charged
               ^                            claim |        |  defer, release: free
               |                                  v        |
               +------------------------------ running ----+
                                                  |
                     +---------------+------------+
                     v               v            v
                 succeeded        failed      cancelled
                     |         (dead letter)      |
          result TTL |               +-----+------+
                     v                     | replay
                  expired                  v
                                        queued
```

`running` has three phases: `delivering` (the webhook is being called), `awaiting_ack` (the endpoint accepted the job and
reports the outcome later) and `leased` (a puller holds it). In each of them exactly one lease is valid.

Where the job has a `callbackUrl`, the move to `succeeded`, `failed` or `cancelled` makes a job in the queue `_callbacks` of
its namespace that sends the notification, in the same transaction; the event `callback` in the log comes right before the move.

Finished jobs are deleted when the queue's `retention` ends. `succeeded` with a result becomes `expired` first, when
`resultTtl` ends.
"#;

const LEGEND: &str = "
A cell is the state the job moves to, with its phase or reason if any. `stays` means that the job changes and
keeps its state. `nothing` means that the command is accepted without effect, such as a repeated report. *Italic* cells are
refusals, which change nothing. In the columns of finished states the reports carry the lease of the last hand-out, whose
outcome is known: the same outcome again is `nothing`, another one is a conflict.
";

/// Everything that was seen to happen, by reason.
#[derive(Default)]
struct Moves(BTreeMap<&'static str, BTreeSet<String>>);

pub fn page() -> String {
    let mut moves = Moves::default();
    let mut page = format!("{HEADER}\n{INTRODUCTION}\n## Commands\n{LEGEND}\n");
    let everywhere = |_: &[String]| true;
    table(&mut page, states, &mut moves, everywhere);
    page.push_str(
        "\nThe result for a job that a puller holds in special situations (the first column is the normal case):\n\n",
    );
    let differs = |cells: &[String]| cells.iter().any(|cell| *cell != cells[0]);
    table(&mut page, circumstances, &mut moves, differs);
    page.push_str("\n## Timers\n\nWhen the alarm of a job fires:\n\n");
    alarms(&mut page, &mut moves);
    rare_moves(&mut moves);
    page.push_str(
        "\n## Reasons\n\nEvery move is an event of type `state` in the job's log, with one of these reasons:\n\n",
    );
    reasons(&mut page, &moves);
    page
}

/// A row per command, a column per sample; rows that `shows` refuses are left out.
fn table(
    page: &mut String,
    columns: fn() -> Vec<(&'static str, Sample)>,
    moves: &mut Moves,
    shows: impl Fn(&[String]) -> bool,
) {
    let names: Vec<_> = columns().iter().map(|(name, _)| format!("`{name}`")).collect();
    line(page, &format!("| command | {} |", names.join(" | ")));
    line(page, &format!("|---|{}", "---|".repeat(names.len())));
    for (name, command) in commands() {
        let cell = |(_, mut sample): (&'static str, Sample)| {
            let command = command(&sample);
            moves.act(&mut sample, command)
        };
        let cells: Vec<_> = columns().into_iter().map(cell).collect();
        if shows(&cells) {
            line(page, &format!("| {name} | {} |", cells.join(" | ")));
        }
    }
}

fn alarms(page: &mut String, moves: &mut Moves) {
    line(page, "| state | timer | result |");
    line(page, "|---|---|---|");
    let limited = |change: fn(&mut QueueSettings)| {
        let mut limits = QueueSettings { visibility_timeout: 60 * SECOND, ..settings() };
        change(&mut limits);
        Sample::running(Phase::Leased, limits)
    };
    let of_state = |wanted: &str| states().into_iter().find(|(name, _)| *name == wanted).expect("a state").1;
    let circumstance = |wanted: &str| circumstances().into_iter().find(|(name, _)| *name == wanted).expect("one").1;
    let mut plain = of_state("leased");
    plain.must(report(plain.lease(), Outcome::Ack { result: None }));
    let start_by = Timestamp::from_millis(1_800_000_005_000);
    let unstarted = Spec { payload: "{}".into(), start_by: Some(start_by), ..Spec::default() };
    for (state, due, mut sample) in [
        ("pending", "the delay, the backoff, the deferral ends", of_state("pending")),
        ("queued", "`startBy` has passed", Sample::published(unstarted, settings())),
        ("running", "the lease of a puller expires", of_state("leased")),
        ("running", "`webhookTimeout` ends", of_state("delivering")),
        ("running", "`ackTimeout` ends", of_state("awaiting_ack")),
        ("running", "a heartbeat is missing", limited(|limits| limits.heartbeat_timeout = Some(3 * SECOND))),
        ("running", "`hardTimeLimit` ends", limited(|limits| limits.hard_time_limit = Some(3 * SECOND))),
        ("running", "`jobTimeout` ends", limited(|limits| limits.job_timeout = Some(3 * SECOND))),
        ("running", "a requested cancel is not confirmed in time", circumstance("cancel requested")),
        ("running", "the lease expires, a result is uploaded", circumstance("result uploaded")),
        ("running", "the lease expires on the last attempt", circumstance("last attempt")),
        ("running", "no progress for `stallTimeout`", stalled(StallAction::Flag)),
        ("running", "the same, with `stallAction` `retry`", stalled(StallAction::Retry)),
        ("succeeded", "`resultTtl` ends", of_state("succeeded")),
        ("succeeded", "`retention` ends, and there is no result", plain),
        ("failed", "`retention` ends", of_state("failed")),
        ("cancelled", "`retention` ends", of_state("cancelled")),
        ("expired", "`retention` ends", of_state("expired")),
    ] {
        assert!(sample.wait_for_alarm(), "{due}: there is no alarm");
        let cell = moves.act(&mut sample, Command::WAKE);
        line(page, &format!("| `{state}` | {due} | {cell} |"));
    }
}

/// A job whose worker has said how far it is, and then nothing new.
fn stalled(stall_action: StallAction) -> Sample {
    let patient = QueueSettings { visibility_timeout: 600 * SECOND, stall_action, ..settings() };
    let mut sample = Sample::running(Phase::Leased, patient);
    let report = ProgressReport { pct: Some(10.0), ..ProgressReport::default() };
    let progress = Arc::new(Progress::after(None, report, Timestamp::from_millis(1_800_000_000_000)));
    sample.must(Command::Progress { lease: None, progress });
    sample
}

/// Moves that no table shows, so that every reason has one.
fn rare_moves(moves: &mut Moves) {
    let mut dead = Sample::running(
        Phase::Delivering,
        QueueSettings { ack_timeout_action: outlast_core::queue::AckTimeoutAction::Dead, ..settings() },
    );
    dead.must(Command::Receipt { lease: dead.lease() });
    dead.wait_for_alarm();
    moves.act(&mut dead, Command::WAKE);
    let mut pipeline = Sample::queued(settings());
    moves.act(&mut pipeline, Command::Cancel { reason: CancelReason::Pipeline });
    let mut at_once = Sample::running(Phase::Leased, settings());
    let delay = Some(std::time::Duration::ZERO);
    let lease = at_once.lease();
    moves.act(&mut at_once, report(lease, Outcome::Nack { retryable: true, delay }));
    let mut retried = Sample::running(Phase::Leased, settings());
    retried.must(report(retried.lease(), nack(true)));
    moves.note(&retried, 0);
    let waits = states().into_iter().filter(|(name, _)| *name == "pending").map(|(_, sample)| sample);
    let others = [Sample::queued(settings()), Sample::running(Phase::Leased, settings())];
    for mut sample in waits.chain(others) {
        let broken = Violation { id: "state", rule: "a rule", job: sample.job.id };
        let update = set_aside(&sample.job, &sample.queue, &broken, sample.now).expect("it has not finished");
        sample.events.extend(update.events);
        moves.note(&sample, 0);
    }
}

fn reasons(page: &mut String, moves: &Moves) {
    line(page, "| reason | moves | meaning |");
    line(page, "|---|---|---|");
    for reason in Reason::ALL {
        let Some(seen) = moves.0.get(reason.as_str()) else {
            panic!("no move with reason {} was shown; add one to the page", reason.as_str());
        };
        let seen: Vec<_> = seen.iter().cloned().collect();
        line(page, &format!("| `{}` | {} | {} |", reason.as_str(), seen.join(", "), meaning(reason)));
    }
    page.push_str("\nA failed job has one of the reasons ");
    page.push_str(&FailReason::ALL.map(|reason| format!("`{}`", reason.as_str())).join(", "));
    page.push_str("; a pending one waits for ");
    let pending =
        [PendingReason::Delayed, PendingReason::Backoff, PendingReason::Deferred, PendingReason::Dependencies];
    page.push_str(&pending.map(|reason| format!("`{}`", reason.as_str())).join(", "));
    page.push_str(".\n");
}

impl Moves {
    /// Gives the command and says in a cell of the table what it did.
    fn act(&mut self, sample: &mut Sample, command: Command) -> String {
        let events = sample.events.len();
        let before = sample.job.status();
        let outcome = sample.give(command);
        // The birth of each sample is a move, too.
        self.note(sample, 0);
        match outcome {
            Err(refusal) => format!("*{}*", refusal_name(refusal)),
            Ok(Change::None) => "nothing".to_owned(),
            Ok(Change::Delete) => "deleted".to_owned(),
            Ok(Change::Update(_)) => {
                let stays = sample.job.status() == before && sample.events.len() == events;
                if stays { "stays".to_owned() } else { state_name(&sample.job.state) }
            }
        }
    }

    fn note(&mut self, sample: &Sample, from: usize) {
        for event in &sample.events[from..] {
            if let EventKind::State { from, to, reason, .. } = &event.kind {
                let from = from.map_or("new", Status::as_str);
                self.0.entry(reason.as_str()).or_default().insert(format!("{from} → {to}"));
            }
        }
    }
}

fn state_name(state: &State) -> String {
    match state {
        State::Pending { reason, .. } => format!("pending ({})", reason.as_str()),
        State::Running(running) if running.revoke_at.is_some() => {
            format!("{}, cancel requested", running.phase.as_str())
        }
        State::Running(running) => running.phase.as_str().to_owned(),
        State::Failed { reason, .. } => format!("failed ({})", reason.as_str()),
        State::Cancelled { reason, .. } => format!("cancelled ({})", reason.as_str()),
        other => other.status().to_string(),
    }
}

fn refusal_name(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::LeaseLost => "lease lost",
        Refusal::LeaseRequired => "lease required",
        Refusal::NotRunning { .. } => "not running",
        Refusal::OutcomeConflict { .. } => "outcome conflict",
        Refusal::KeyTaken { .. } => "key taken",
        Refusal::NotReplayable { .. } => "not replayable",
        Refusal::PayloadFixed => "payload fixed",
        Refusal::NotQueued { .. } => "not queued",
        Refusal::NoCancelRequested => "no cancel requested",
        Refusal::ResultExists => "result exists",
        Refusal::OutputFull => "output full",
        Refusal::SectionsFull => "sections full",
        Refusal::OutputGap { .. } => "output gap",
        Refusal::SetAside => "set aside",
    }
}

fn meaning(reason: Reason) -> &'static str {
    match reason {
        Reason::Published => "accepted, eligible at once",
        Reason::Delayed => "accepted, eligible later",
        Reason::Due => "the delay, backoff or deferral has ended",
        Reason::Claimed => "handed out; a new lease exists",
        Reason::Received => "the endpoint accepted the job and reports its outcome later",
        Reason::Acked => "done",
        Reason::Nacked => "the attempt failed; it is charged",
        Reason::Deferred => "deferred; no attempt is charged",
        Reason::Released => "returned to the queue; no attempt is charged, the job keeps its place",
        Reason::LeaseExpired => "the holder did not report before the lease expired; an attempt is charged",
        Reason::HeartbeatLost => "no heartbeat within `heartbeatTimeout`; an attempt is charged",
        Reason::HardTimeLimit => "the attempt took too long; it is charged",
        Reason::AckTimeout => {
            "no outcome within `ackTimeout`; charged, or failed at once with `ackTimeoutAction` `dead`"
        }
        Reason::Unknown => "the server crashed during the delivery; charged, since the job may have been the cause",
        Reason::AttemptsExhausted => "the last attempt is used up",
        Reason::NotRetryable => "the worker or endpoint reported a permanent failure",
        Reason::DeferralExhausted => "deferred too often",
        Reason::MaxAgeExceeded => "deferred beyond `maxAge`",
        Reason::ResultAdopted => "the lease was lost, but the result had been uploaded",
        Reason::CancelRequested => "the holder is asked to stop; the lease is revoked after `drainTimeout`",
        Reason::CancelledByUser => "cancelled on request",
        Reason::CancelledByTimeout => "out of time: `startBy` or `jobTimeout`",
        Reason::CancelledByPipeline => "cancelled with its pipeline",
        Reason::Replayed => "the job starts again with a new budget of attempts",
        Reason::ResultExpired => "the result was deleted when `resultTtl` ended",
        Reason::Stalled => "heartbeats without progress for `stallTimeout`; an attempt is charged",
        Reason::SetAside => "an invariant was broken, which is a bug of the server; no attempt is charged",
    }
}

fn line(page: &mut String, text: &str) {
    writeln!(page, "{text}").expect("a string takes text");
}
