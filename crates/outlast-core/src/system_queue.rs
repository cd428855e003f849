//! The service's own queues, one row each. A namespace gets such a queue when the first job is published to it; users can
//! look at it and tend it.

use std::time::Duration;

use crate::queue::{DeferScope, Mode, QueueSettings};
use crate::retry::{Backoff, Seconds};

/// Completion callbacks: each job tells one callback URL how another job ended.
pub const CALLBACKS: &str = "_callbacks";

/// The tag under which the callbacks of a job are found.
pub const JOB_TAG: &str = "job";

/// One queue of the service. Its name begins with `_`, which no user's queue does.
#[derive(Debug)]
pub struct SystemQueue {
    pub name: &'static str,
    /// Its initial settings: mode and limits.
    pub settings: fn() -> QueueSettings,
    /// Otherwise only effects of state changes create jobs in it.
    pub users_may_publish: bool,
}

/// To add a queue, add a row.
pub static SYSTEM_QUEUES: [SystemQueue; 1] =
    [SystemQueue { name: CALLBACKS, settings: callback_settings, users_may_publish: false }];

pub fn system_queue(name: &str) -> Option<&'static SystemQueue> {
    SYSTEM_QUEUES.iter().find(|queue| queue.name == name)
}

const CALLBACK_DELAYS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

fn callback_settings() -> QueueSettings {
    QueueSettings {
        mode: Mode::Callback,
        max_attempts: 4,
        backoff: Backoff::Schedule { delays: CALLBACK_DELAYS.map(Seconds).to_vec(), jitter: 0.2 },
        // One endpoint that asks for a pause says nothing about the others.
        backpressure_scope: DeferScope::Job,
        ..QueueSettings::default()
    }
}
