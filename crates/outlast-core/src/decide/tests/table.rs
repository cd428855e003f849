//! Every command in every state: what it does, or how it is refused. Each command names the states in which it acts; in
//! all others it must give the answer that stands last.

use std::time::Duration;

use super::stage::{SECOND, Stage, ack, claim, defer, nack, object, report, settings};
use crate::change::{Change, Refusal};
use crate::command::{Command, Outcome};
use crate::ids::Lease;
use crate::job::Spec;
use crate::queue::QueueSettings;
use crate::state::{CancelReason, Phase, State};
use crate::time::Timestamp;

const STATES: [&str; 12] = [
    "pending",
    "queued",
    "delivering",
    "awaiting_ack",
    "leased",
    "leased, cancel requested",
    "leased, result uploaded",
    "succeeded",
    "succeeded with result",
    "failed",
    "cancelled",
    "expired",
];

/// A job in the named state, brought there by commands.
fn in_state(name: &str) -> Stage {
    let short = QueueSettings { backoff: crate::retry::Backoff::Fixed { delay: SECOND, jitter: 0.0 }, ..settings() };
    let mut stage = Stage::queued(short);
    match name {
        "pending" => {
            let later = Timestamp::from_millis(super::stage::BEGINNING + 10_000);
            let spec = Spec { payload: "{}".into(), not_before: Some(later), ..Spec::default() };
            return Stage::published(spec, settings());
        }
        "queued" => return stage,
        "cancelled" => {
            stage.run(Command::Cancel { reason: CancelReason::User });
            return stage;
        }
        "delivering" | "awaiting_ack" => stage.run(claim(Phase::Delivering)),
        _ => stage.run(claim(Phase::Leased)),
    };
    let lease = stage.lease();
    stage.pass(SECOND);
    let result = Outcome::Ack { result: Some("42".into()) };
    match name {
        "delivering" | "leased" => return stage,
        "awaiting_ack" => stage.run(Command::Receipt { lease }),
        "leased, cancel requested" => stage.run(Command::Cancel { reason: CancelReason::User }),
        "leased, result uploaded" => stage.run(Command::Finalize { lease: Some(lease), object: object() }),
        "succeeded" => stage.run(report(Some(lease), ack())),
        "failed" => stage.run(report(Some(lease), nack(false))),
        "succeeded with result" | "expired" => stage.run(report(Some(lease), result)),
        unknown => panic!("{unknown}"),
    };
    if name == "expired" {
        stage.pass(stage.queue.settings.result_ttl);
        stage.run(Command::WAKE);
    }
    stage
}

/// In words: the state it leads to and the reason of the move, or that nothing happens, or the refusal.
fn answer(stage: &mut Stage, command: Command) -> String {
    let moves = stage.log.len();
    match stage.act(command) {
        Err(refusal) => format!("refused: {}", refusal_name(refusal)),
        Ok(Change::None) => "nothing".to_owned(),
        Ok(Change::Delete) => "deleted".to_owned(),
        Ok(Change::Update(_)) => {
            let state = match &stage.job.state {
                State::Pending { reason, .. } => format!("pending {}", reason.as_str()),
                State::Running(running) => format!("running {}", running.phase.as_str()),
                other => other.status().to_string(),
            };
            let reason = stage.last_reason().filter(|_| stage.log.len() > moves);
            reason.map_or(state.clone(), |reason| format!("{state}: {}", reason.as_str()))
        }
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

/// Gives the command, made for the job's last lease, to a job in each state.
fn check(command: impl Fn(Lease) -> Command, acts: &[(&str, &str)], otherwise: &str) {
    for (name, _) in acts {
        assert!(STATES.contains(name), "no state {name}");
    }
    for name in STATES {
        let mut stage = in_state(name);
        let command = command(stage.lease());
        let expected = acts.iter().find(|(state, _)| *state == name).map_or(otherwise, |(_, expected)| *expected);

        assert_eq!(answer(&mut stage, command.clone()), expected, "{command:?} on {name}");
    }
}

/// The rows that all states with a live lease share.
fn while_running<'a>(expected: &'a str, others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let live = ["delivering", "awaiting_ack", "leased", "leased, cancel requested", "leased, result uploaded"];
    let unnamed = live.into_iter().filter(|name| others.iter().all(|(other, _)| other != name));
    unnamed.map(|name| (name, expected)).chain(others.iter().copied()).collect()
}

#[test]
fn only_a_queued_job_is_handed_out() {
    check(|_| claim(Phase::Leased), &[("queued", "running leased: claimed")], "refused: not queued");
    check(|_| claim(Phase::Delivering), &[("queued", "running delivering: claimed")], "refused: not queued");
}

#[test]
fn a_receipt_counts_once_and_only_with_the_present_lease() {
    let acts = [
        ("delivering", "running awaiting_ack: received"),
        ("awaiting_ack", "nothing"),
        ("leased", "nothing"),
        ("leased, cancel requested", "nothing"),
        ("leased, result uploaded", "nothing"),
        ("succeeded", "nothing"),
        ("succeeded with result", "nothing"),
        ("failed", "nothing"),
        ("expired", "nothing"),
    ];
    check(|lease| Command::Receipt { lease }, &acts, "refused: lease lost");
    check(|_| Command::Receipt { lease: Lease::from_u128(3) }, &[], "refused: lease lost");
}

#[test]
fn an_ack_ends_a_running_job_in_success() {
    let repeated = [
        ("succeeded", "nothing"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
        ("failed", "refused: outcome conflict"),
    ];
    check(|lease| report(Some(lease), ack()), &while_running("succeeded: acked", &repeated), "refused: lease lost");
}

#[test]
fn a_nack_is_retried_or_fails_the_job() {
    let ended = [
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("succeeded", "refused: outcome conflict"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
    ];
    let retried = while_running("pending backoff: nacked", &ended);
    let retried = [retried, vec![("failed", "refused: outcome conflict")]].concat();
    let given_up = [while_running("failed: not_retryable", &ended), vec![("failed", "nothing")]].concat();
    check(|lease| report(Some(lease), nack(true)), &retried, "refused: lease lost");
    check(|lease| report(Some(lease), nack(false)), &given_up, "refused: lease lost");
}

#[test]
fn a_nack_with_a_delay_of_zero_goes_back_at_once() {
    let at_once = |lease| report(Some(lease), Outcome::Nack { retryable: true, delay: Some(Duration::ZERO) });
    let ended = [
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("succeeded", "refused: outcome conflict"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
        ("failed", "refused: outcome conflict"),
    ];
    check(at_once, &while_running("queued: nacked", &ended), "refused: lease lost");
}

#[test]
fn a_defer_sends_a_running_job_back_to_waiting() {
    let ended = [
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("succeeded", "refused: outcome conflict"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
        ("failed", "refused: outcome conflict"),
    ];
    check(
        |lease| report(Some(lease), defer(5)),
        &while_running("pending deferred: deferred", &ended),
        "refused: lease lost",
    );
}

#[test]
fn a_release_hands_a_running_job_back() {
    let ended = [
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("succeeded", "refused: outcome conflict"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
        ("failed", "refused: outcome conflict"),
    ];
    check(
        |lease| report(Some(lease), Outcome::Release),
        &while_running("queued: released", &ended),
        "refused: lease lost",
    );
}

#[test]
fn a_cancel_is_confirmed_only_where_it_was_requested() {
    let ended = [
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("succeeded", "refused: outcome conflict"),
        ("succeeded with result", "refused: outcome conflict"),
        ("expired", "refused: outcome conflict"),
        ("failed", "refused: outcome conflict"),
    ];
    let confirmed = while_running("refused: no cancel requested", &ended);
    check(|lease| report(Some(lease), Outcome::Cancelled), &confirmed, "refused: lease lost");
}

#[test]
fn a_report_without_a_lease_acts_on_the_present_one() {
    check(|_| report(None, ack()), &while_running("succeeded: acked", &[]), "refused: not running");
}

#[test]
fn a_report_without_a_lease_is_refused_where_fencing_is_required() {
    for name in STATES {
        let mut stage = in_state(name);
        stage.queue.settings.fencing = crate::queue::Fencing::Required;

        assert_eq!(answer(&mut stage, report(None, ack())), "refused: lease required", "{name}");
        assert_eq!(answer(&mut stage, Command::beat(None, None)), "refused: lease required", "{name}");
    }
}

#[test]
fn heartbeat_and_upload_keep_a_running_job_running() {
    let acts = [
        ("delivering", "running delivering"),
        ("awaiting_ack", "running awaiting_ack"),
        ("leased", "running leased"),
        ("leased, cancel requested", "running leased"),
        ("leased, result uploaded", "running leased"),
    ];
    check(|lease| Command::beat(Some(lease), None), &acts, "refused: lease lost");
    check(|lease| Command::Finalize { lease: Some(lease), object: object() }, &acts, "refused: lease lost");
}

#[test]
fn a_cancel_ends_a_waiting_job_and_asks_a_running_one() {
    let acts = [
        ("pending", "cancelled: cancelled_by_user"),
        ("queued", "cancelled: cancelled_by_user"),
        ("delivering", "running delivering: cancel_requested"),
        ("awaiting_ack", "running awaiting_ack: cancel_requested"),
        ("leased", "running leased: cancel_requested"),
        ("leased, result uploaded", "running leased: cancel_requested"),
    ];
    check(|_| Command::Cancel { reason: CancelReason::User }, &acts, "nothing");
}

#[test]
fn a_replay_opens_a_run_of_a_failed_or_cancelled_job() {
    let acts = [("failed", "queued: replayed"), ("cancelled", "queued: replayed")];
    check(|_| Command::Replay { fresh: false, payload: None }, &acts, "refused: not replayable");
}

#[test]
fn the_death_of_the_server_ends_a_delivery_and_nothing_else() {
    check(|_| Command::Abandon, &[("delivering", "pending backoff: unknown")], "nothing");
}

#[test]
fn an_alarm_that_is_not_due_does_nothing() {
    check(|_| Command::WAKE, &[], "nothing");
}

#[test]
fn an_alarm_that_is_due_does_what_the_state_waits_for() {
    let expected = [
        ("pending", "queued: due"),
        ("queued", "no alarm"),
        ("delivering", "pending backoff: unknown"),
        ("awaiting_ack", "pending backoff: ack_timeout"),
        ("leased", "queued: lease_expired"),
        ("leased, cancel requested", "cancelled: cancelled_by_user"),
        ("leased, result uploaded", "succeeded: result_adopted"),
        ("succeeded", "deleted"),
        ("succeeded with result", "expired: result_expired"),
        ("failed", "deleted"),
        ("cancelled", "deleted"),
        ("expired", "deleted"),
    ];
    for (name, expected) in expected {
        let mut stage = in_state(name);
        let found = match crate::alarm::alarm(&stage.job, &stage.queue) {
            None => "no alarm".to_owned(),
            Some(at) => {
                stage.now = at;
                answer(&mut stage, Command::WAKE)
            }
        };

        assert_eq!(found, expected, "{name}");
    }
}
