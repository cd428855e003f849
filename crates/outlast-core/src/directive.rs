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
    pub const ALL: [Directive; 4] =
        [Directive::Cancel, Directive::CheckpointNow, Directive::HandOver, Directive::SlowDown];

    pub fn parse(text: &str) -> Option<Directive> {
        Directive::ALL.into_iter().find(|directive| directive.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Directive::Cancel => "cancel",
            Directive::CheckpointNow => "checkpoint_now",
            Directive::HandOver => "hand_over",
            Directive::SlowDown => "slow_down",
        }
    }
}

/// Some of the directives, without order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DirectiveSet(u8);

impl FromIterator<Directive> for DirectiveSet {
    fn from_iter<I: IntoIterator<Item = Directive>>(directives: I) -> DirectiveSet {
        DirectiveSet(directives.into_iter().fold(0, |bits, directive| bits | 1 << directive as u8))
    }
}

/// Was the queue asked to slow down? An answer or a worker asked for it; an endpoint that is away did not.
pub fn is_held_back(queue: &Queue, now: Timestamp) -> bool {
    queue.hold.is_some_and(|hold| hold.cause != HoldCause::Circuit && hold.until > now)
}

/// The directives for the holder of this hand-out at `now`.
pub fn directives(job: &Job, queue: &Queue, running: &Running, now: Timestamp) -> Vec<Directive> {
    let is_cancelled = running.revoke_at.is_some();
    let asked = running.work.directives;
    let saves = is_cancelled || asked.checkpoint_now || soft_limit_reached(job, queue, running, now);
    let all = [
        (Directive::Cancel, is_cancelled),
        (Directive::CheckpointNow, saves),
        (Directive::HandOver, asked.hand_over),
        (Directive::SlowDown, asked.slow_down || is_held_back(queue, now)),
    ];
    all.into_iter().filter(|(_, is_told)| *is_told).map(|(directive, _)| directive).collect()
}
