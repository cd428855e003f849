//! Directives in the response to a heartbeat: the ones an operator asked for, and the ones that follow from the state
//! of the job and its queue.

use crate::gate::HoldCause;
use crate::job::Job;
use crate::liveness::soft_limit_reached;
use crate::queue::Queue;
use crate::state::Running;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Directive {
    /// Stop, and confirm it.
    Cancel,
    CheckpointNow,
    /// Save and release, so that another worker goes on.
    HandOver,
    SlowDown,
}

impl Directive {
    pub fn as_str(self) -> &'static str {
        match self {
            Directive::Cancel => "cancel",
            Directive::CheckpointNow => "checkpoint_now",
            Directive::HandOver => "hand_over",
            Directive::SlowDown => "slow_down",
        }
    }
}

/// The directives for the holder of this hand-out at `now`.
pub fn directives(job: &Job, queue: &Queue, running: &Running, now: Timestamp) -> Vec<Directive> {
    let is_cancelled = running.revoke_at.is_some();
    let asked = running.work.directives;
    // Somebody further on asked for it, be it through an answer or through a worker; an endpoint that is away did not.
    let is_held = queue.hold.is_some_and(|hold| hold.cause != HoldCause::Circuit && hold.until > now);
    let saves = is_cancelled || asked.checkpoint_now || soft_limit_reached(job, queue, running, now);
    let all = [
        (Directive::Cancel, is_cancelled),
        (Directive::CheckpointNow, saves),
        (Directive::HandOver, asked.hand_over),
        (Directive::SlowDown, asked.slow_down || is_held),
    ];
    all.into_iter().filter(|(_, is_told)| *is_told).map(|(directive, _)| directive).collect()
}
