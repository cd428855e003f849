//! The state machine: the only place where a job's state changes. Stores call it inside a transaction, with the job and
//! queue as loaded under a lock, and write what it returns. It reads neither clock nor randomness.

mod draft;
mod ending;
pub mod set_aside;
mod wake;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::alarm::waiting_deadline;
use crate::change::{Change, Doom, Effect, Refusal};
use crate::command::{Command, Outcome};
use crate::entropy::{self, Entropy};
use crate::event::Reason;
use crate::gate::{Cause, Hold};
use crate::ids::Lease;
use crate::job::{Job, Spec};
use crate::object::Role;
use crate::queue::{Fencing, Mode, Queue};
use crate::state::{CancelReason, Ending, Phase, Running, State, Work};
use crate::time::Timestamp;

use draft::Draft;

/// A delivery's lease outlives the webhook's own deadline by this much, so that a slow commit of the answer is not taken
/// for a lost server.
pub const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// What `command` does to `job` at `now`. `Ok(Change::None)` means "nothing to do, and that is fine".
pub fn decide(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    let draft = Draft::new(job, queue, now);
    match command {
        Command::Claim { phase, visibility, worker } => claim(draft, phase, visibility, worker, entropy),
        Command::Receipt { lease } => receipt(draft, lease),
        Command::Report { lease, outcome, evidence } => ending::report(draft, lease, outcome, evidence, entropy),
        Command::Heartbeat { lease, extend, progress, checkpoint } => {
            work::heartbeat(draft, lease, extend, (progress, checkpoint))
        }
        Command::Progress { lease, progress } => work::progress(draft, lease, &progress),
        Command::Checkpoint { lease, checkpoint, progress } => work::checkpoint(draft, lease, checkpoint, progress),
        Command::Section { lease, section } => work::section(draft, lease, section),
        Command::Output { lease, text } => work::output(draft, lease, text),
        Command::Upload { lease, object } => work::upload(draft, lease, object),
        Command::Finalize { lease, object } => work::finalize(draft, lease, object),
        Command::Direct { directives } => work::direct(draft, directives),
        Command::Cancel { reason } => Ok(cancel(draft, reason)),
        Command::Replay { fresh, payload } => replay(draft, fresh, payload),
        Command::Wake { outage } => Ok(wake::wake(draft, outage, entropy)),
        Command::Abandon => Ok(ending::abandon(draft, entropy)),
    }
}

fn claim(
    mut draft: Draft<'_>,
    phase: Phase,
    visibility: Option<Duration>,
    worker: Option<Box<str>>,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    let State::Queued { .. } = draft.job.state else {
        return Err(Refusal::NotQueued { status: draft.job.status() });
    };
    if waiting_deadline(&draft.job, draft.queue).is_some_and(|deadline| deadline <= draft.now) {
        return Ok(wake::give_up_waiting(draft));
    }
    let extension = match phase {
        Phase::Leased => visibility.unwrap_or_else(|| draft.job.visibility_timeout(draft.queue)),
        Phase::Delivering => draft.queue.settings.webhook_timeout + DELIVERY_GRACE,
        Phase::AwaitingAck => draft.job.ack_timeout(draft.queue),
    };
    draft.job.epoch += 1;
    draft.job.last = None;
    draft.job.started_at.get_or_insert(draft.now);
    let running = Running {
        phase,
        lease: entropy::lease(entropy),
        began_at: draft.now,
        expires_at: draft.now.plus(extension),
        extension,
        heartbeat_at: None,
        revoke_at: None,
        worker,
        upload: None,
        work: Work::default(),
    };
    if let Some(hold) = draft.queue.hold {
        draft.effect(Effect::SetHold(Some(Hold { probe: Some(draft.job.id), ..hold })));
    }
    if let Some(limit) = draft.queue.settings.rate_limit {
        draft.effect(Effect::SetPace(draft.queue.pace.after(1, limit, draft.now)));
    }
    draft.go(State::Running(running), Reason::Claimed);
    Ok(draft.change())
}

fn receipt(mut draft: Draft<'_>, lease: Lease) -> Result<Change, Refusal> {
    let Some(mut running) = draft.running() else {
        // The worker may report before the webhook's own answer arrives: then the receipt says nothing new.
        let reported = draft.job.last.is_some_and(|last| last.lease == lease && last.how.is_report());
        return if reported { Ok(Change::None) } else { Err(Refusal::LeaseLost) };
    };
    if running.lease != lease {
        return Err(Refusal::LeaseLost);
    }
    if running.phase != Phase::Delivering {
        return Ok(Change::None);
    }
    running.phase = Phase::AwaitingAck;
    running.extension = draft.job.ack_timeout(draft.queue);
    let expires_at = draft.now.plus(running.extension);
    // A heartbeat may have come before the answer; what it gave is not taken back.
    running.expires_at = running.heartbeat_at.map_or(expires_at, |_| expires_at.max(running.expires_at));
    running.heartbeat_at.get_or_insert(draft.now);
    // The endpoint takes jobs again. A worker's own wish is another matter: that ends with the outcome.
    let probes = |hold: &Hold| hold.probe == Some(draft.job.id) && hold.cause != Cause::Deferred;
    if draft.queue.hold.as_ref().is_some_and(probes) {
        draft.effect(Effect::SetHold(None));
    }
    draft.go(State::Running(running), Reason::Received);
    Ok(draft.change())
}

fn cancel(mut draft: Draft<'_>, reason: CancelReason) -> Change {
    match draft.job.state.clone() {
        State::Pending { .. } | State::Queued { .. } => {
            draft.cancelled(reason);
            draft.change()
        }
        State::Running(mut running) if running.revoke_at.is_none() => {
            running.revoke_at = Some(draft.now.plus(draft.queue.settings.drain_timeout));
            draft.go(State::Running(running), Reason::CancelRequested);
            draft.change()
        }
        State::Running(_)
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Expired { .. } => Change::None,
    }
}

fn replay(mut draft: Draft<'_>, fresh: bool, payload: Option<Arc<str>>) -> Result<Change, Refusal> {
    let (State::Failed { .. } | State::Cancelled { .. }) = draft.job.state else {
        return Err(Refusal::NotReplayable { status: draft.job.status() });
    };
    if payload.is_some() && draft.queue.settings.mode == Mode::Callback {
        return Err(Refusal::PayloadFixed);
    }
    if let Some(payload) = payload {
        draft.job.spec = Arc::new(Spec { payload, ..Spec::clone(&draft.job.spec) });
    }
    if fresh {
        draft.drop_checkpoints();
    }
    // What a cancelled run had uploaded is not the result of this one.
    if std::mem::take(&mut draft.job.headway.has_upload) {
        draft.effect(Effect::Doom(Doom { role: Some(Role::Result), kept: true, at: draft.now }));
    }
    let job = &mut draft.job;
    job.headway.moved_at = None;
    job.run += 1;
    job.attempt = 1;
    job.deferrals = 0;
    job.opened_at = draft.now;
    job.started_at = None;
    job.last = None;
    job.last_error = None;
    let ready_at = draft.now;
    draft.go(State::Queued { ready_at }, Reason::Replayed);
    Ok(draft.change())
}

fn holder(draft: &Draft<'_>, lease: Option<Lease>) -> Result<Running, Refusal> {
    held(&draft.job, draft.queue, lease).cloned()
}

/// The hand-out that `lease` speaks for; without a lease, the present one where the queue allows that.
pub fn held<'a>(job: &'a Job, queue: &Queue, lease: Option<Lease>) -> Result<&'a Running, Refusal> {
    let running = match &job.state {
        State::Running(running) => Some(running),
        _ => None,
    };
    let Some(lease) = lease else {
        if queue.settings.fencing == Fencing::Required {
            return Err(Refusal::LeaseRequired);
        }
        return running.ok_or(Refusal::NotRunning { status: job.status() });
    };
    running.filter(|running| running.lease == lease).ok_or(Refusal::LeaseLost)
}

impl Ending {
    /// Was it told by the holder, rather than taken away?
    pub fn is_report(self) -> bool {
        matches!(self, Ending::Acked | Ending::Nacked | Ending::Deferred | Ending::Released | Ending::CancelConfirmed)
    }
}

impl Outcome {
    /// The move's reason in the log when the outcome needs no other words.
    fn reason(&self) -> Reason {
        match self {
            Outcome::Ack { .. } => Reason::Acked,
            Outcome::Nack { .. } => Reason::Nacked,
            Outcome::Defer { .. } => Reason::Deferred,
            Outcome::Release => Reason::Released,
            Outcome::Cancelled => Reason::CancelledByUser,
        }
    }
}

#[cfg(test)]
mod tests;
