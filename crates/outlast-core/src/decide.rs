//! The state machine: the only place where a job's state changes. Stores call it inside a transaction, with the job and
//! queue as loaded under a lock, and write what it returns. It reads neither clock nor randomness. Each command has a file of its
//! name; `builder` and `ending` are what they share.

mod builder;
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

use builder::TransitionBuilder;

/// A delivery's lease outlives the webhook's own deadline by this much, so that a slow commit of the answer is not taken
/// for a lost server.
pub const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// The effect of `command` on `job` at `now`. `Ok(Change::None)` means "nothing to do, and that is fine".
pub fn decide(
    job: &Job,
    queue: &Queue,
    command: Command,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Result<Change, Refusal> {
    let builder = TransitionBuilder::new(job, queue, now);
    match command {
        Command::Claim { phase, visibility, worker } => claim::claim(builder, phase, visibility, worker, entropy),
        Command::Receipt { lease } => receipt::receipt(builder, lease),
        Command::Report { lease, outcome, evidence } => report::report(builder, lease, outcome, evidence, entropy),
        Command::Heartbeat { lease, extend, progress, checkpoint } => {
            heartbeat::heartbeat(builder, lease, extend, (progress, checkpoint))
        }
        Command::Progress { lease, progress } => progress::progress(builder, lease, &progress),
        Command::Checkpoint { lease, checkpoint, progress } => {
            checkpoint::checkpoint(builder, lease, checkpoint, progress)
        }
        Command::Section { lease, section } => section::section(builder, lease, section),
        Command::Output { lease, part, text } => output::output(builder, lease, part, text),
        Command::Upload { lease, object } => upload::upload(builder, lease, object),
        Command::Finalize { lease, object } => finalize::finalize(builder, lease, object),
        Command::Direct { directives } => direct::direct(builder, directives),
        Command::Cancel { reason } => Ok(cancel::cancel(builder, reason)),
        Command::Replay { fresh, payload } => replay::replay(builder, fresh, payload),
        Command::Wake { outage } => Ok(wake::wake(builder, outage, entropy)),
        Command::Abandon => Ok(abandon::abandon(builder, entropy)),
    }
}

/// The holder of the lease goes on; nothing moves the job.
fn go_on(mut builder: TransitionBuilder<'_>, running: Running) -> Change {
    builder.job.state = State::Running(running);
    builder.change()
}

fn holder(builder: &TransitionBuilder<'_>, lease: Option<Lease>) -> Result<Running, Refusal> {
    held(&builder.job, builder.queue, lease).cloned()
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
    /// Did the holder report it? Otherwise the lease was taken away.
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
