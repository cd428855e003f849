//! The holder of a lease reports the outcome of its hand-out. The same report again is fine; another one is a conflict.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::breaker::cool_down;
use crate::change::{Change, Effect, Refusal};
use crate::command::{Evidence, Outcome, OutcomeKind};
use crate::entropy::Entropy;
use crate::event::Reason;
use crate::gate::{Hold, HoldCause};
use crate::ids::Lease;
use crate::job::EndedLease;
use crate::queue::{DeferScope, range};
use crate::state::{CancelReason, FailReason, PendingReason, ResultMeta, State};

use super::builder::TransitionBuilder;
use super::ending::{charge, disown, end};
use super::holder;

/// A report from the holder of a lease.
pub(super) fn report(
    mut builder: TransitionBuilder<'_>,
    lease: Option<Lease>,
    outcome: Outcome,
    evidence: Evidence,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    if let Some(answer) = repeated(&builder, lease, &outcome) {
        return answer;
    }
    let running = holder(&builder, lease)?;
    if outcome.kind() == OutcomeKind::Cancelled && running.revoke_at.is_none() {
        return Err(Refusal::NoCancelRequested);
    }
    if running.upload.is_some() && matches!(outcome, Outcome::Ack { result: Some(_) }) {
        return Err(Refusal::ResultExists);
    }
    let reason = outcome.reason();
    let error = evidence.error.clone();
    end(
        &mut builder,
        &running,
        EndedLease { lease: running.lease, how: outcome.kind().ending(), digest: outcome.digest() },
        evidence,
    );
    match outcome {
        Outcome::Ack { result } => {
            let inline = result
                .as_ref()
                .map(|text| ResultMeta { length: u64::try_from(text.len()).unwrap_or(u64::MAX), inline: true });
            if let Some(text) = result {
                builder.effect(Effect::KeepResult(text));
            }
            builder.succeeded(inline.or_else(|| running.upload.clone()), reason);
        }
        // A cancel was asked for: whatever else the holder says, the job does not come back.
        _ if running.revoke_at.is_some() => builder.cancelled(CancelReason::User),
        Outcome::Nack { retryable, delay } => {
            builder.job.last_error = Some(error.unwrap_or_else(|| "nacked".into()));
            match retryable {
                true => charge(&mut builder, delay, reason, entropy),
                false => builder.failed(FailReason::NotRetryable),
            }
        }
        Outcome::Defer { retry_after, scope, cause } => defer(&mut builder, retry_after, scope, (cause, error)),
        Outcome::Release => {
            // Handed back keeps its place: it goes out again before younger jobs of its priority.
            let ready_at = builder.job.queued_at.unwrap_or(builder.now);
            builder.go(State::Queued { ready_at }, reason);
        }
        Outcome::Cancelled => builder.cancelled(CancelReason::User),
    }
    disown(&mut builder, &running);
    Ok(builder.change())
}

/// The answer to a report whose lease has already ended: the same outcome again is fine, another one is a conflict.
fn repeated(
    builder: &TransitionBuilder<'_>,
    lease: Option<Lease>,
    outcome: &Outcome,
) -> Option<Result<Change, Refusal>> {
    if builder.running().is_some() {
        return None;
    }
    let last = builder.job.last.filter(|last| lease == Some(last.lease) && last.how.is_report())?;
    if last.how == outcome.kind().ending() && is_same(&builder.job.state, last.digest, outcome) {
        return Some(Ok(Change::None));
    }
    let recorded = OutcomeKind::ALL.into_iter().find(|known| known.ending() == last.how)?;
    Some(Err(Refusal::OutcomeConflict { status: builder.job.status(), recorded }))
}

/// Is `outcome` the recorded one of its kind? Rows of before digests were kept have none; where they leave it open, it is.
fn is_same(state: &State, recorded: Option<NonZeroU64>, outcome: &Outcome) -> bool {
    let given = outcome.digest();
    match (recorded, outcome) {
        (Some(_), _) => recorded == given,
        (None, Outcome::Ack { .. }) => {
            let had_inline = matches!(state, State::Succeeded { result: Some(result), .. } if result.inline);
            had_inline || given.is_none()
        }
        (None, _) => true,
    }
}

/// Free of charge, but bounded in number and age.
fn defer(
    builder: &mut TransitionBuilder<'_>,
    retry_after: Option<Duration>,
    scope: Option<DeferScope>,
    (cause, error): (HoldCause, Option<Box<str>>),
) {
    let settings = &builder.queue.settings;
    let round = round(builder, cause);
    let unasked = match cause {
        HoldCause::Backpressure | HoldCause::Deferred => settings.backpressure_delay,
        HoldCause::Circuit => cool_down(round),
    };
    let max_age = builder.job.max_age(builder.queue);
    let longest = match cause {
        // Well below the greatest age, so that no single header can use it up for the jobs that wait behind the hold.
        HoldCause::Backpressure => (max_age / 2).min(*range::RETRY_AFTER.end()),
        HoldCause::Circuit | HoldCause::Deferred => *range::RETRY_AFTER.end(),
    };
    let wait = retry_after.unwrap_or(unasked).min(longest);
    let until = builder.now.plus(wait);
    let unsaid = match cause {
        // A worker speaks for the job it holds; for the whole queue only if it says so.
        HoldCause::Deferred => DeferScope::Job,
        HoldCause::Backpressure | HoldCause::Circuit => settings.backpressure_scope,
    };
    if scope.unwrap_or(unsaid) == DeferScope::Queue {
        let until = builder.queue.hold.map_or(until, |hold| hold.until.max(until));
        // A probe that is out stays the probe: what comes late from before the hold must not let a second one go.
        let probe = builder.queue.hold.and_then(|hold| hold.probe).filter(|probe| *probe != builder.job.id);
        builder.effect(Effect::SetHold(Some(Hold { until, probe, cause, round })));
    }
    if let Some(error) = error {
        builder.job.last_error = Some(error);
    }
    if builder.job.deferrals >= builder.job.max_deferrals(builder.queue) {
        return builder.failed(FailReason::DeferralExhausted);
    }
    let left = max_age.saturating_sub(builder.now.since(builder.job.opened_at));
    if left.is_zero() {
        return builder.failed(FailReason::MaxAgeExceeded);
    }
    builder.job.deferrals += 1;
    // It is tried once more before it is too old.
    builder.wait(wait.min(left), PendingReason::Deferred, Reason::Deferred);
}

/// Counts the probes in a row that found the same cause again.
fn round(builder: &TransitionBuilder<'_>, cause: HoldCause) -> u32 {
    let same = builder.queue.hold.filter(|hold| hold.cause == cause);
    same.map_or(0, |hold| hold.round.saturating_add(u32::from(hold.probe == Some(builder.job.id))))
}
