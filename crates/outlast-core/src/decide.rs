//! The state machine: the only place where a job's state changes. Stores call it inside a transaction, with the job and
//! queue as loaded under a lock, and write what it returns. It reads neither clock nor randomness. Each command has a file of its
//! name; `draft` and `ending` are what they share.

mod draft;
mod ending;

mod abandon;
mod cancel;
mod checkpoint;
mod claim;
mod direct;
mod finalize;
mod heartbeat;
mod output;
mod progress;
mod receipt;
mod replay;
mod report;
mod section;
pub mod set_aside;
mod upload;
mod wake;

use std::time::Duration;

use crate::change::{Change, Refusal};
use crate::command::{Command, Outcome};
use crate::entropy::Entropy;
use crate::event::Reason;
use crate::ids::Lease;
use crate::job::Job;
use crate::queue::{Fencing, Queue};
use crate::state::{Ending, Running, State};
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
        Command::Claim { phase, visibility, worker } => claim::claim(draft, phase, visibility, worker, entropy),
        Command::Receipt { lease } => receipt::receipt(draft, lease),
        Command::Report { lease, outcome, evidence } => report::report(draft, lease, outcome, evidence, entropy),
        Command::Heartbeat { lease, extend, progress, checkpoint } => {
            heartbeat::heartbeat(draft, lease, extend, (progress, checkpoint))
        }
        Command::Progress { lease, progress } => progress::progress(draft, lease, &progress),
        Command::Checkpoint { lease, checkpoint, progress } => {
            checkpoint::checkpoint(draft, lease, checkpoint, progress)
        }
        Command::Section { lease, section } => section::section(draft, lease, section),
        Command::Output { lease, text } => output::output(draft, lease, text),
        Command::Upload { lease, object } => upload::upload(draft, lease, object),
        Command::Finalize { lease, object } => finalize::finalize(draft, lease, object),
        Command::Direct { directives } => direct::direct(draft, directives),
        Command::Cancel { reason } => Ok(cancel::cancel(draft, reason)),
        Command::Replay { fresh, payload } => replay::replay(draft, fresh, payload),
        Command::Wake { outage } => Ok(wake::wake(draft, outage, entropy)),
        Command::Abandon => Ok(abandon::abandon(draft, entropy)),
    }
}

/// The holder of the lease goes on; nothing moves the job.
fn go_on(mut draft: Draft<'_>, running: Running) -> Change {
    draft.job.state = State::Running(running);
    draft.change()
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
