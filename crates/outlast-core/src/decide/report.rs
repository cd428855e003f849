//! The holder of a lease reports the outcome of its hand-out. The same report again is fine; another one is a conflict.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::breaker::cool_down;
use crate::change::{Change, Effect, Refusal};
use crate::command::{Evidence, Outcome, OutcomeKind};
use crate::entropy::Entropy;
use crate::event::Reason;
use crate::gate::{Cause, Hold};
use crate::ids::Lease;
use crate::job::Ended;
use crate::queue::{Scope, range};
use crate::state::{CancelReason, FailReason, PendingReason, ResultMeta, State};

use super::draft::Draft;
use super::ending::{charge, disown, end};
use super::holder;

/// A report from the holder of a lease.
pub(super) fn report(
    mut draft: Draft<'_>,
    lease: Option<Lease>,
    outcome: Outcome,
    evidence: Evidence,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    if let Some(answer) = repeated(&draft, lease, &outcome) {
        return answer;
    }
    let running = holder(&draft, lease)?;
    if outcome.kind() == OutcomeKind::Cancelled && running.revoke_at.is_none() {
        return Err(Refusal::NoCancelRequested);
    }
    if running.upload.is_some() && matches!(outcome, Outcome::Ack { result: Some(_) }) {
        return Err(Refusal::ResultExists);
    }
    let reason = outcome.reason();
    let error = evidence.error.clone();
    end(
        &mut draft,
        &running,
        Ended { lease: running.lease, how: outcome.kind().ending(), digest: outcome.digest() },
        evidence,
    );
    match outcome {
        Outcome::Ack { result } => {
            let inline = result
                .as_ref()
                .map(|text| ResultMeta { length: u64::try_from(text.len()).unwrap_or(u64::MAX), inline: true });
            if let Some(text) = result {
                draft.effect(Effect::KeepResult(text));
            }
            draft.succeeded(inline.or_else(|| running.upload.clone()), reason);
        }
        // A cancel was asked for: whatever else the holder says, the job does not come back.
        _ if running.revoke_at.is_some() => draft.cancelled(CancelReason::User),
        Outcome::Nack { retryable, delay } => {
            draft.job.last_error = Some(error.unwrap_or_else(|| "nacked".into()));
            match retryable {
                true => charge(&mut draft, delay, reason, entropy),
                false => draft.failed(FailReason::NotRetryable),
            }
        }
        Outcome::Defer { retry_after, scope, cause } => defer(&mut draft, retry_after, scope, (cause, error)),
        Outcome::Release => {
            // Handed back keeps its place: it goes out again before younger jobs of its priority.
            let ready_at = draft.job.queued_at.unwrap_or(draft.now);
            draft.go(State::Queued { ready_at }, reason);
        }
        Outcome::Cancelled => draft.cancelled(CancelReason::User),
    }
    disown(&mut draft, &running);
    Ok(draft.change())
}

/// The answer to a report whose lease has already ended: the same outcome again is fine, another one is a conflict.
fn repeated(draft: &Draft<'_>, lease: Option<Lease>, outcome: &Outcome) -> Option<Result<Change, Refusal>> {
    if draft.running().is_some() {
        return None;
    }
    let last = draft.job.last.filter(|last| lease == Some(last.lease) && last.how.is_report())?;
    if last.how == outcome.kind().ending() && is_same(&draft.job.state, last.digest, outcome) {
        return Some(Ok(Change::None));
    }
    let recorded = OutcomeKind::ALL.into_iter().find(|known| known.ending() == last.how)?;
    Some(Err(Refusal::OutcomeConflict { status: draft.job.status(), recorded }))
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
    draft: &mut Draft<'_>,
    retry_after: Option<Duration>,
    scope: Option<Scope>,
    (cause, error): (Cause, Option<Box<str>>),
) {
    let settings = &draft.queue.settings;
    let round = round(draft, cause);
    let unasked = match cause {
        Cause::Backpressure | Cause::Deferred => settings.backpressure_delay,
        Cause::Circuit => cool_down(round),
    };
    let max_age = draft.job.max_age(draft.queue);
    let longest = match cause {
        // Well below the greatest age, so that no single header can use it up for the jobs that wait behind the hold.
        Cause::Backpressure => (max_age / 2).min(*range::RETRY_AFTER.end()),
        Cause::Circuit | Cause::Deferred => *range::RETRY_AFTER.end(),
    };
    let wait = retry_after.unwrap_or(unasked).min(longest);
    let until = draft.now.plus(wait);
    let unsaid = match cause {
        // A worker speaks for the job it holds; for the whole queue only if it says so.
        Cause::Deferred => Scope::Job,
        Cause::Backpressure | Cause::Circuit => settings.backpressure_scope,
    };
    if scope.unwrap_or(unsaid) == Scope::Queue {
        let until = draft.queue.hold.map_or(until, |hold| hold.until.max(until));
        // A probe that is out stays the probe: what comes late from before the hold must not let a second one go.
        let probe = draft.queue.hold.and_then(|hold| hold.probe).filter(|probe| *probe != draft.job.id);
        draft.effect(Effect::SetHold(Some(Hold { until, probe, cause, round })));
    }
    if let Some(error) = error {
        draft.job.last_error = Some(error);
    }
    if draft.job.deferrals >= draft.job.max_deferrals(draft.queue) {
        return draft.failed(FailReason::DeferralExhausted);
    }
    let left = max_age.saturating_sub(draft.now.since(draft.job.opened_at));
    if left.is_zero() {
        return draft.failed(FailReason::MaxAgeExceeded);
    }
    draft.job.deferrals += 1;
    // It is tried once more before it is too old.
    draft.wait(wait.min(left), PendingReason::Deferred, Reason::Deferred);
}

/// Counts the probes in a row that found the same cause again.
fn round(draft: &Draft<'_>, cause: Cause) -> u32 {
    let same = draft.queue.hold.filter(|hold| hold.cause == cause);
    same.map_or(0, |hold| hold.round.saturating_add(u32::from(hold.probe == Some(draft.job.id))))
}
