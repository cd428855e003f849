//! The rules of core that the model uses. A rig that must prove that it notices a bug swaps one of them.

use std::cmp::Reverse;

use outlast_core::gate::Gate;
use outlast_core::state::Phase;
use outlast_core::{Change, Command, Entropy, Job, Queue, Refusal, State, Timestamp, alarm, dedupe, gate};
use outlast_store::operations::{self, Operation, OperationStep};
use outlast_store::outbox::Compose;

/// Higher priority first, then who became eligible first.
pub type Rank = (Reverse<i8>, Timestamp);

/// The signature of core's `decide`.
pub type Decide = fn(&Job, &Queue, Command, Timestamp, &mut dyn Entropy) -> Result<Change, Refusal>;

#[derive(Clone, Copy)]
pub struct Rules {
    pub decide: Decide,
    pub alarm: fn(&Job, &Queue) -> Option<Timestamp>,
    pub gate: fn(&Queue, Phase, u64, Timestamp) -> Gate,
    pub holds_key: fn(&Job, &Queue, Timestamp) -> bool,
    pub blocks_replay: fn(&Job, &Job, &Queue, Timestamp) -> bool,
    pub operate: fn(&Operation, &Job) -> OperationStep,
    /// The place in the order of hand-outs; `None` for a job that is not eligible.
    pub rank: fn(&Job) -> Option<Rank>,
    pub compose: Compose,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            decide: outlast_core::decide,
            alarm: alarm::alarm,
            gate: gate::gate,
            holds_key: dedupe::holds_key,
            blocks_replay: dedupe::blocks_replay,
            operate: operations::next_step,
            rank,
            compose: outlast_api::callback::compose,
        }
    }
}

fn rank(job: &Job) -> Option<Rank> {
    match job.state {
        State::Queued { ready_at } => Some((Reverse(job.spec.priority), ready_at)),
        _ => None,
    }
}
