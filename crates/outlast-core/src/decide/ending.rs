//! Code that all endings of a hand-out share: the attempt's record, charging, the effect on the queue's hold, and the
//! loss of a lease.

use std::time::Duration;

use crate::change::{Change, Effect, ScheduledDelete};
use crate::command::Evidence;
use crate::entropy::Entropy;
use crate::event::{Attempt, EXCERPT_BYTES_MAX, EventKind, Reason};
use crate::gate::Hold;
use crate::job::EndedLease;
use crate::object::{DELETE_DELAY, Role};
use crate::queue::{AckTimeoutAction, Queue};
use crate::state::{CancelReason, Ending, FailReason, PendingReason, Phase, Running};

use super::builder::TransitionBuilder;

/// One attempt is used up: the next one follows after its backoff, or the job is a dead letter.
pub(super) fn charge(
    builder: &mut TransitionBuilder<'_>,
    delay: Option<Duration>,
    reason: Reason,
    entropy: &mut dyn Entropy,
) {
    if builder.job.attempt >= builder.job.max_attempts(builder.queue) {
        return builder.failed(FailReason::AttemptsExhausted);
    }
    let wait = delay.unwrap_or_else(|| builder.queue.settings.backoff.wait(builder.job.attempt, entropy));
    builder.job.attempt += 1;
    builder.wait(wait, PendingReason::Backoff, reason);
}

/// The lease is taken away: out of time, out of heartbeats, or the server lost sight of it.
pub(super) fn lose(
    mut builder: TransitionBuilder<'_>,
    running: &Running,
    how: Ending,
    entropy: &mut dyn Entropy,
) -> Change {
    let error = how.as_str();
    let evidence = Evidence { error: Some(error.into()), ..Evidence::default() };
    end(&mut builder, running, EndedLease { lease: running.lease, how, digest: None }, evidence);
    builder.job.last_error = Some(error.into());
    match how {
        Ending::Revoked => builder.cancelled(CancelReason::User),
        // The worker died between upload and ack: the work is done, and repeating it would be waste.
        _ if running.upload.is_some() => builder.succeeded(running.upload.clone(), Reason::ResultAdopted),
        _ if running.revoke_at.is_some() => builder.cancelled(CancelReason::User),
        Ending::JobTimeout => builder.cancelled(CancelReason::Timeout),
        Ending::AckTimeout if dies_unacked(builder.queue) => builder.failed(FailReason::AckTimeout),
        _ => {
            let reason = lost_reason(how);
            // A puller that vanished is no sign of trouble downstream, so its job goes back at once.
            let delay = (running.phase == Phase::Leased).then_some(Duration::ZERO);
            charge(&mut builder, delay, reason, entropy);
        }
    }
    disown(&mut builder, running);
    builder.change()
}

fn dies_unacked(queue: &Queue) -> bool {
    queue.settings.ack_timeout_action == AckTimeoutAction::Dead
}

fn lost_reason(how: Ending) -> Reason {
    match how {
        Ending::AckTimeout => Reason::AckTimeout,
        Ending::HeartbeatLost => Reason::HeartbeatLost,
        Ending::HardTimeLimit => Reason::HardTimeLimit,
        Ending::Stalled => Reason::Stalled,
        Ending::Unknown => Reason::Unknown,
        _ => Reason::LeaseExpired,
    }
}

/// Common to every ending: the attempt's record, the remembered lease, the probe's verdict.
pub(super) fn end(builder: &mut TransitionBuilder<'_>, running: &Running, ended: EndedLease, evidence: Evidence) {
    let how = ended.how;
    let attempt = Attempt {
        number: builder.job.attempt,
        phase: running.phase,
        outcome: how,
        duration: builder.now.since(running.began_at),
        status_code: evidence.status_code,
        error: evidence.error,
        excerpt: evidence.excerpt.map(|text| truncate(&text, EXCERPT_BYTES_MAX).into()),
        usage: evidence.usage,
    };
    builder.event(EventKind::Attempt(attempt));
    builder.job.last = Some(ended);
    if let Some(hold) = builder.queue.hold.filter(|hold| hold.probe == Some(builder.job.id)) {
        // A probe that was given back, or whose server died, said nothing about the endpoint: another one must try.
        let learnt_nothing = matches!(how, Ending::Released | Ending::Unknown);
        let verdict = learnt_nothing.then_some(Hold { probe: None, ..hold });
        builder.effect(Effect::SetHold(verdict));
    }
}

/// Objects of a hand-out that has ended: unfinished uploads are never used, and a finished one is the result of this
/// hand-out or of none.
pub(super) fn disown(builder: &mut TransitionBuilder<'_>, running: &Running) {
    let at = builder.now.plus(DELETE_DELAY);
    if running.work.has_uploads {
        builder.effect(Effect::ScheduleDelete(ScheduledDelete { role: None, attached: false, at }));
    }
    if builder.job.work_summary.has_upload && !builder.job.status().is_terminal() {
        builder.job.work_summary.has_upload = false;
        builder.effect(Effect::ScheduleDelete(ScheduledDelete { role: Some(Role::Result), attached: true, at }));
    }
}

/// The longest prefix of at most `bytes_max` bytes that is whole characters.
fn truncate(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
