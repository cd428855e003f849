//! What all endings of a hand-out share: the attempt's record, charging, what the queue's hold learns; and how a lease is lost.

use std::time::Duration;

use crate::change::{Change, Doom, Effect};
use crate::command::Evidence;
use crate::entropy::Entropy;
use crate::event::{Attempt, EXCERPT_BYTES_MAX, EventKind, Reason};
use crate::gate::Hold;
use crate::job::Ended;
use crate::object::{DOOMED_FOR, Role};
use crate::queue::{AckTimeoutAction, Queue};
use crate::state::{CancelReason, Ending, FailReason, PendingReason, Phase, Running};

use super::draft::Draft;

/// One attempt is used up: the next one follows after its backoff, or the job is a dead letter.
pub(super) fn charge(draft: &mut Draft<'_>, delay: Option<Duration>, reason: Reason, entropy: &mut dyn Entropy) {
    if draft.job.attempt >= draft.job.max_attempts(draft.queue) {
        return draft.failed(FailReason::AttemptsExhausted);
    }
    let wait = delay.unwrap_or_else(|| draft.queue.settings.backoff.wait(draft.job.attempt, entropy));
    draft.job.attempt += 1;
    draft.wait(wait, PendingReason::Backoff, reason);
}

/// The lease is taken away: out of time, out of heartbeats, or the server lost sight of it.
pub(super) fn lose(mut draft: Draft<'_>, running: &Running, how: Ending, entropy: &mut dyn Entropy) -> Change {
    let error = how.as_str();
    let evidence = Evidence { error: Some(error.into()), ..Evidence::default() };
    end(&mut draft, running, Ended { lease: running.lease, how, digest: None }, evidence);
    draft.job.last_error = Some(error.into());
    match how {
        Ending::Revoked => draft.cancelled(CancelReason::User),
        // The worker died between upload and ack: the work is done, doing it again helps nobody.
        _ if running.upload.is_some() => draft.succeeded(running.upload.clone(), Reason::ResultAdopted),
        _ if running.revoke_at.is_some() => draft.cancelled(CancelReason::User),
        Ending::JobTimeout => draft.cancelled(CancelReason::Timeout),
        Ending::AckTimeout if dies_unacked(draft.queue) => draft.failed(FailReason::AckTimeout),
        _ => {
            let reason = lost_reason(how);
            // A puller that vanished is no sign of trouble downstream, so its job goes back at once.
            let delay = (running.phase == Phase::Leased).then_some(Duration::ZERO);
            charge(&mut draft, delay, reason, entropy);
        }
    }
    disown(&mut draft, running);
    draft.change()
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

/// What every ending has in common: the attempt's record, the memory of the lease, the probe's verdict.
pub(super) fn end(draft: &mut Draft<'_>, running: &Running, ended: Ended, evidence: Evidence) {
    let how = ended.how;
    let attempt = Attempt {
        number: draft.job.attempt,
        phase: running.phase,
        outcome: how,
        duration: draft.now.since(running.began_at),
        status_code: evidence.status_code,
        error: evidence.error,
        excerpt: evidence.excerpt.map(|text| truncate(&text, EXCERPT_BYTES_MAX).into()),
        usage: evidence.usage,
    };
    draft.event(EventKind::Attempt(attempt));
    draft.job.last = Some(ended);
    if let Some(hold) = draft.queue.hold.filter(|hold| hold.probe == Some(draft.job.id)) {
        // A probe that was given back, or whose server died, said nothing about the endpoint: another one must try.
        let learnt_nothing = matches!(how, Ending::Released | Ending::Unknown);
        let verdict = learnt_nothing.then_some(Hold { probe: None, ..hold });
        draft.effect(Effect::SetHold(verdict));
    }
}

/// Bytes of a hand-out that is over: unfinished uploads never become anything, and a finished one is the result of this
/// hand-out or of none.
pub(super) fn disown(draft: &mut Draft<'_>, running: &Running) {
    let at = draft.now.plus(DOOMED_FOR);
    if running.work.has_uploads {
        draft.effect(Effect::Doom(Doom { role: None, kept: false, at }));
    }
    if draft.job.headway.has_upload && !draft.job.status().is_terminal() {
        draft.job.headway.has_upload = false;
        draft.effect(Effect::Doom(Doom { role: Some(Role::Result), kept: true, at }));
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
