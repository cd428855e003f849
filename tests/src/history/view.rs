//! One job's part of the history: its claims and the operations that named it, in order of time.

use std::collections::BTreeMap;

use super::{Action, Answer, Claim, Operation, Outcome, Seen, Snapshot};

pub(super) struct JobView<'a> {
    pub job: &'a str,
    pub first_version: u64,
    /// The publish whose answer has its id, if any.
    pub published: Option<&'a Operation>,
    pub seen: &'a Seen,
    /// In the order in which their answers came.
    pub claims: Vec<(&'a Operation, &'a Claim)>,
    pub settles: Vec<Settle<'a>>,
    pub cancels: Vec<&'a Operation>,
    pub replays: Vec<&'a Operation>,
}

pub(super) struct Settle<'a> {
    pub operation: &'a Operation,
    pub lease: &'a str,
    pub outcome: Outcome,
}

/// Distinct leases, or operations, by how sure their effect is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub acknowledged: u64,
    pub unknown: u64,
}

impl<'a> JobView<'a> {
    /// A view for every job that exists; a missing one is a matter of the publishes.
    pub(super) fn all(operations: &'a [Operation], snapshot: &'a Snapshot) -> Vec<JobView<'a>> {
        let mut views: BTreeMap<&str, JobView<'a>> = BTreeMap::new();
        for (job, seen) in &snapshot.jobs {
            let view = JobView {
                job,
                first_version: snapshot.first_version,
                published: None,
                seen,
                claims: Vec::new(),
                settles: Vec::new(),
                cancels: Vec::new(),
                replays: Vec::new(),
            };
            views.insert(job, view);
        }
        let mut in_order: Vec<&Operation> = operations.iter().collect();
        in_order.sort_by_key(|operation| operation.ended);
        for operation in in_order {
            place(operation, &mut views);
        }
        let mut tries: BTreeMap<&str, usize> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.may_have_happened()) {
            if let Action::Publish { marker, .. } = &operation.action {
                *tries.entry(marker).or_default() += 1;
            }
        }
        let mut views: Vec<JobView<'a>> = views.into_values().collect();
        for view in &mut views {
            // Of several tries any may be the one that made the job, long before the one that was answered.
            view.published = view.published.filter(|_| tries.get(view.seen.marker.as_str()) == Some(&1));
        }
        views
    }

    /// Endings of this outcome by distinct lease: a retry with the same lease is the same ending.
    pub(super) fn tally(&self, outcomes: &[Outcome]) -> Tally {
        let mut leases: BTreeMap<&str, bool> = BTreeMap::new();
        for settle in &self.settles {
            if outcomes.contains(&settle.outcome) && settle.operation.may_have_happened() {
                *leases.entry(settle.lease).or_default() |= settle.operation.is_acknowledged();
            }
        }
        let acknowledged = leases.values().filter(|acknowledged| **acknowledged).count() as u64;
        let unknown = leases.len() as u64 - acknowledged;
        Tally { acknowledged, unknown }
    }

    /// Whether some operation other than `except` may have ended this lease before `moment`. A cancel counts if it
    /// was not over when the lease was given out.
    pub(super) fn may_have_ended(&self, lease: &str, moment: u64, except: Option<&Operation>) -> bool {
        let counts = |operation: &Operation| {
            let same = except.is_some_and(|except| std::ptr::eq(except, operation));
            !same && operation.may_have_happened() && operation.started < moment
        };
        let granted = self.claims.iter().find(|(_, claim)| claim.lease == lease);
        let granted_after = granted.map_or(0, |(receive, _)| receive.started);
        let settled = self.settles.iter().any(|settle| settle.lease == lease && counts(settle.operation));
        settled || self.cancels.iter().any(|cancel| cancel.effective_until() > granted_after && counts(cancel))
    }
}

fn place<'a>(operation: &'a Operation, views: &mut BTreeMap<&str, JobView<'a>>) {
    match (&operation.action, &operation.answer) {
        (Action::Publish { .. }, Answer::Published { job }) => {
            if let Some(view) = views.get_mut(job.as_str()) {
                view.published.get_or_insert(operation);
            }
        }
        (Action::Receive, Answer::Received(claims)) => {
            for claim in claims {
                if let Some(view) = views.get_mut(claim.job.as_str()) {
                    view.claims.push((operation, claim));
                }
            }
        }
        (Action::Settle { job, lease, outcome }, _) => {
            if let Some(view) = views.get_mut(job.as_str()) {
                let outcome = *outcome;
                view.settles.push(Settle { operation, lease, outcome });
            }
        }
        (Action::Cancel { job }, _) => {
            if let Some(view) = views.get_mut(job.as_str()) {
                view.cancels.push(operation);
            }
        }
        (Action::Replay { job }, _) => {
            if let Some(view) = views.get_mut(job.as_str()) {
                view.replays.push(operation);
            }
        }
        _ => {}
    }
}
