//! Publishes against the jobs that exist: nothing acknowledged is missing or altered (I-01), one job per key (I-09),
//! and no job without a publish that may have happened.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Action, Answer, Operation, Rule, Snapshot, Violation, violation};

pub(super) fn check(operations: &[Operation], snapshot: &Snapshot) -> Vec<Violation> {
    let mut violations = Vec::new();
    let sent = payloads_by_marker(operations);
    let possible = possible_markers(operations);

    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (marker, job) in acknowledged(operations) {
        let first = *known.entry(marker).or_insert(job);
        if first != job {
            let detail = format!("answered with the id {first} and with the id {job}");
            violations.push(violation(Rule::KeyDoubled, marker, detail));
        }
        if !snapshot.jobs.contains_key(job) {
            let detail = format!("acknowledged as job {job}, which does not exist");
            violations.push(violation(Rule::PublishLost, marker, detail));
        }
    }

    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (job, state) in &snapshot.jobs {
        let Some(payload) = sent.get(state.marker.as_str()) else {
            let detail = format!("its key {:?} was never sent", state.marker);
            violations.push(violation(Rule::FromNowhere, job, detail));
            continue;
        };
        if **payload != state.payload {
            let detail = format!("sent {payload}, stored {}", state.payload);
            violations.push(violation(Rule::PayloadAltered, job, detail));
        }
        if !possible.contains(state.marker.as_str()) {
            let detail = format!("job {job} exists, and every publish of it was refused");
            violations.push(violation(Rule::RefusedYetDone, &state.marker, detail));
        }
        if let Some(other) = seen.insert(&state.marker, job) {
            let detail = format!("jobs {other} and {job}");
            violations.push(violation(Rule::KeyDoubled, &state.marker, detail));
        }
    }
    violations
}

fn payloads_by_marker(operations: &[Operation]) -> BTreeMap<&str, &Value> {
    let mut payloads = BTreeMap::new();
    for operation in operations {
        if let Action::Publish { marker, payload } = &operation.action {
            payloads.insert(marker.as_str(), payload);
        }
    }
    payloads
}

/// Those of which at least one publish was not refused.
fn possible_markers(operations: &[Operation]) -> BTreeSet<&str> {
    let mut markers = BTreeSet::new();
    for operation in operations.iter().filter(|operation| operation.may_have_happened()) {
        if let Action::Publish { marker, .. } = &operation.action {
            markers.insert(marker.as_str());
        }
    }
    markers
}

fn acknowledged(operations: &[Operation]) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    for operation in operations {
        if let (Action::Publish { marker, .. }, Answer::Published { job }) = (&operation.action, &operation.answer) {
            pairs.push((marker.as_str(), job.as_str()));
        }
    }
    pairs
}
