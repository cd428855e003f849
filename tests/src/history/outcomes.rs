//! Acknowledged outcomes, cancels and replays against the state at the end (I-03), counted and by version.

use super::view::JobView;
use super::{Answer, Operation, Outcome, Rule, Violation, violation};

pub(super) fn check(view: &JobView<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    violations.extend(forgotten_ending(view));
    violations.extend(refused_yet_done(view));
    violations.extend(replays(view));
    violations.extend(deferrals(view));
    violations.extend(attempts(view));
    violations.extend(versions(view));
    violations
}

/// A terminal state that was named to a client stays, unless a replay may have come after it.
fn forgotten_ending(view: &JobView<'_>) -> Option<Violation> {
    let settles = view.settles.iter().map(|settle| settle.operation);
    for operation in settles.chain(view.cancels.iter().copied()) {
        let Answer::Changed { status, version } = &operation.answer else {
            continue;
        };
        let replayed = view
            .replays
            .iter()
            .any(|replay| replay.may_have_happened() && replay.effective_until() > operation.started);
        let found = view.seen.status.as_str();
        let kept = match status.as_str() {
            "succeeded" => found == "succeeded" || found == "expired",
            "failed" | "cancelled" => found == status || replayed,
            _ => true,
        };
        if !kept || view.seen.version < *version {
            let detail = format!("answered {status} at version {version}, found {found} at {}", view.seen.version);
            return Some(violation(Rule::OutcomeLost, view.job, detail));
        }
    }
    None
}

/// An end that only a client can bring about needs a call that was not refused.
fn refused_yet_done(view: &JobView<'_>) -> Option<Violation> {
    let mut acks = view.settles.iter().filter(|settle| settle.outcome == Outcome::Ack);
    let possible = match view.seen.status.as_str() {
        "succeeded" | "expired" => acks.any(|ack| ack.operation.may_have_happened()),
        "cancelled" => view.cancels.iter().any(|cancel| cancel.may_have_happened()),
        _ => true,
    };
    if possible {
        return None;
    }
    let detail = format!("it is {}, and every call that asked for this was refused", view.seen.status);
    Some(violation(Rule::RefusedYetDone, view.job, detail))
}

fn replays(view: &JobView<'_>) -> Option<Violation> {
    let acknowledged = view.replays.iter().filter(|replay| replay.is_acknowledged()).count() as u64;
    let possible = view.replays.iter().filter(|replay| replay.may_have_happened()).count() as u64;
    let expected = acknowledged..=possible;
    if expected.contains(&view.seen.replays) {
        return None;
    }
    let detail = format!("replays {}, expected {expected:?}", view.seen.replays);
    Some(violation(Rule::ReplayMiscounted, view.job, detail))
}

/// Only before any replay: a replay opens a new budget.
fn deferrals(view: &JobView<'_>) -> Option<Violation> {
    let tally = view.tally(&[Outcome::Defer]);
    let expected = tally.acknowledged..=tally.acknowledged + tally.unknown;
    if view.seen.replays > 0 || expected.contains(&view.seen.defer_count) {
        return None;
    }
    let detail = format!("deferCount {}, expected {expected:?}", view.seen.defer_count);
    Some(violation(Rule::DeferMiscounted, view.job, detail))
}

/// Only before any replay, and only what every reading of `attempt` agrees on: the charged endings are a lower bound.
fn attempts(view: &JobView<'_>) -> Option<Violation> {
    let tally = view.tally(&[Outcome::Nack]);
    let seen = view.seen;
    let enough = seen.replays > 0 || seen.attempt >= tally.acknowledged;
    if enough && seen.attempt <= seen.max_attempts {
        return None;
    }
    let detail =
        format!("attempt {} of {}, acknowledged nacks {}", seen.attempt, seen.max_attempts, tally.acknowledged);
    Some(violation(Rule::AttemptMiscounted, view.job, detail))
}

/// A change that surely happened, inside the interval of one operation.
struct Change<'a> {
    operation: &'a Operation,
    /// The version after it, where the answer says so.
    version: Option<u64>,
}

/// Between two named versions lie at least the acknowledged changes made between them. This finds a lost change
/// even when later ones have covered its traces.
fn versions(view: &JobView<'_>) -> Option<Violation> {
    let changes = sure_changes(view);
    let between = |after: &Operation, before: Option<&Operation>| {
        let inside = changes.iter().filter(|change| {
            let early_enough = before.is_none_or(|before| change.operation.is_before(before));
            early_enough && after.is_before(change.operation)
        });
        inside.count() as u64
    };
    let named = changes.iter().filter_map(|change| Some((change.operation, change.version?)));
    for (from, at) in named {
        let end = at + between(from, None);
        if view.seen.version < end {
            let detail = format!("version {} at the end, at least {end} expected", view.seen.version);
            return Some(violation(Rule::VersionBehind, view.job, detail));
        }
        let later = changes.iter().filter_map(|change| Some((change.operation, change.version?)));
        for (to, version) in later.filter(|(to, _)| from.is_before(to)) {
            let least = at + between(from, Some(to)) + 1;
            if version < least {
                let detail = format!("version {version} answered, at least {least} expected after {at}");
                return Some(violation(Rule::VersionBehind, view.job, detail));
            }
        }
    }
    None
}

/// Leaves out what may be a repetition: a settle or cancel that another call may already have brought about.
fn sure_changes<'a>(view: &JobView<'a>) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    if let Some(operation) = view.published {
        let version = Some(view.first_version);
        changes.push(Change { operation, version });
    }
    for (operation, _) in &view.claims {
        let version = None;
        changes.push(Change { operation, version });
    }
    for settle in &view.settles {
        let repeated = view.may_have_ended(settle.lease, settle.operation.ended, Some(settle.operation));
        if !repeated {
            changes.extend(answered(settle.operation));
        }
    }
    for (index, cancel) in view.cancels.iter().enumerate() {
        if index == 0 {
            changes.extend(answered(cancel));
        }
    }
    for replay in &view.replays {
        changes.extend(answered(replay));
    }
    changes
}

fn answered(operation: &Operation) -> Option<Change<'_>> {
    let Answer::Changed { version, .. } = operation.answer else {
        return None;
    };
    let version = Some(version);
    Some(Change { operation, version })
}
