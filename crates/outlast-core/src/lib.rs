//! The rules of Outlast: its types, its state machine and its arithmetic.
//!
//! No async, no IO, no clock, no randomness: time and entropy are arguments. Every state change in the product is
//! computed by [`decide`]; stores only load what it reads and write what it returns.

pub mod time;
pub mod ids;
pub mod entropy;
pub mod queue;
pub mod system_queue;
pub mod retry;
pub mod progress;
pub mod object;
pub mod filename;
pub mod checkpoint;
pub mod job;
pub mod state;
pub mod event;
pub mod command;
pub mod change;
pub mod decide;
pub mod outage;
pub mod alarm;
pub mod liveness;
pub mod directive;
pub mod gate;
pub mod gcra;
pub mod breaker;
pub mod webhook_answer;
pub mod dedupe;
pub mod digest;
pub mod inbound_event;
pub mod filter;
pub mod subscription;
pub mod invariants;

pub use change::{Change, Effect, Refusal, Update};
pub use command::{Command, Evidence, Outcome, OutcomeKind};
pub use decide::{decide, held};
pub use entropy::Entropy;
pub use event::{Event, EventKind};
pub use filename::Filename;
pub use filter::{Filter, FilterError};
pub use ids::{JobId, Lease, NamespaceId, QueueId};
pub use job::{Job, Overrides, Spec, WorkSummary};
pub use object::{Object, ObjectKey, Role};
pub use outage::Outage;
pub use progress::{Progress, ProgressReport};
pub use queue::{Queue, QueueSettings};
pub use state::{Directives, OutputPart, Running, State, Status, Work};
pub use subscription::Subscription;
pub use system_queue::{SystemQueue, system_queue};
pub use time::{Clock, Timestamp};
