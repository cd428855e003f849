//! Claims: at most one holder at a time (I-14), none after success (I-16), and an acknowledged claim stays in force
//! until something ends it (I-03).

use std::collections::BTreeMap;

use super::view::JobView;
use super::{Answer, Operation, Outcome, Rule, Violation, violation};

/// A lease token is given out once, to one job.
pub(super) fn check_tokens(operations: &[Operation]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for operation in operations {
        let Answer::Received(claims) = &operation.answer else {
            continue;
        };
        for claim in claims {
            if let Some(owner) = owners.insert(&claim.lease, &claim.job) {
                let detail = format!("lease {} given out twice, first for {owner}", claim.lease);
                violations.push(violation(Rule::DoubleLease, &claim.job, detail));
            }
        }
    }
    violations
}

pub(super) fn check(view: &JobView<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    violations.extend(two_holders(view));
    violations.extend(ran_after_success(view));
    violations.extend(refused_holder(view));
    violations.extend(forgotten_claim(view));
    violations.extend(wrong_attempt(view));
    violations
}

/// Between two claims something must have ended one of them. When the calls overlap, either may have been first.
fn two_holders(view: &JobView<'_>) -> Option<Violation> {
    for pair in view.claims.windows(2) {
        let [(earlier, first), (later, second)] = pair else {
            continue;
        };
        let ended = view.may_have_ended(&first.lease, later.ended, None);
        let overlap = !earlier.is_before(later) && view.may_have_ended(&second.lease, earlier.ended, None);
        if !ended && !overlap {
            let detail = format!("leases {} and {} without an ending between them", first.lease, second.lease);
            return Some(violation(Rule::DoubleLease, view.job, detail));
        }
    }
    None
}

fn ran_after_success(view: &JobView<'_>) -> Option<Violation> {
    let acks = view.settles.iter().filter(|settle| settle.outcome == Outcome::Ack);
    for ack in acks.filter(|ack| ack.operation.is_acknowledged()) {
        let again = view.claims.iter().find(|(receive, _)| ack.operation.is_before(receive));
        if let Some((_, claim)) = again {
            let detail = format!("acked with lease {}, then handed out with lease {}", ack.lease, claim.lease);
            return Some(violation(Rule::RanAfterSuccess, view.job, detail));
        }
    }
    None
}

/// The holder of a lease that nothing ended was refused.
fn refused_holder(view: &JobView<'_>) -> Option<Violation> {
    for settle in &view.settles {
        let Answer::Refused { status, code } = &settle.operation.answer else {
            continue;
        };
        let overload = matches!(status, 429 | 503 | 507);
        let held = view.claims.iter().any(|(_, claim)| claim.lease == settle.lease);
        let ended = view.may_have_ended(settle.lease, settle.operation.ended, Some(settle.operation));
        if held && !ended && !overload {
            let detail = format!("the holder of lease {} was refused with {status} {code}", settle.lease);
            return Some(violation(Rule::ClaimLost, view.job, detail));
        }
    }
    None
}

/// The last claim is still valid if nothing can have ended it.
fn forgotten_claim(view: &JobView<'_>) -> Option<Violation> {
    let (receive, claim) = view.claims.last()?;
    let replayed =
        view.replays.iter().any(|replay| replay.may_have_happened() && replay.effective_until() > receive.started);
    if replayed || view.may_have_ended(&claim.lease, u64::MAX, None) {
        return None;
    }
    // Of two overlapping claims the other one may be the last; then it is judged by `two_holders`.
    let overlapped = view.claims.iter().rev().skip(1).any(|(other, _)| !other.is_before(receive));
    let seen = view.seen;
    let stands = seen.status == "running" && (seen.replays, seen.attempt) == (claim.replays, claim.attempt);
    if stands || overlapped {
        return None;
    }
    let detail = format!(
        "lease {} of replay {} attempt {} is unended, but the job is {} in replay {} attempt {}",
        claim.lease, claim.replays, claim.attempt, seen.status, seen.replays, seen.attempt
    );
    Some(violation(Rule::ClaimLost, view.job, detail))
}

/// Before any replay the attempt of a claim is one more than the charged endings before it.
fn wrong_attempt(view: &JobView<'_>) -> Option<Violation> {
    for (receive, claim) in view.claims.iter().filter(|(_, claim)| claim.replays == 0) {
        let nacks = view.settles.iter().filter(|settle| settle.outcome == Outcome::Nack);
        let (mut surely, mut at_most) = (BTreeMap::new(), BTreeMap::new());
        for nack in nacks {
            if nack.operation.is_acknowledged() && nack.operation.is_before(receive) {
                surely.insert(nack.lease, ());
            }
            if nack.operation.may_have_happened() && nack.operation.started < receive.ended {
                at_most.insert(nack.lease, ());
            }
        }
        let expected = surely.len() as u64 + 1..=at_most.len() as u64 + 1;
        if !expected.contains(&claim.attempt) {
            let detail = format!("handed out as attempt {}, expected {expected:?}", claim.attempt);
            return Some(violation(Rule::AttemptMiscounted, view.job, detail));
        }
    }
    None
}
