//! The clock of the store: the system's, unless that is behind the time of the last commit. Then it goes on from that
//! commit, so that leases and delays end as long after it as they were meant to.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, Timestamp};

/// Less than this is how a clock is set right in passing.
const STEP_WARN: Duration = Duration::from_secs(5);

pub(super) struct StoreClock {
    system: Arc<dyn Clock>,
    ahead: Duration,
}

impl StoreClock {
    pub(super) fn start(system: Arc<dyn Clock>, last_commit: Option<Timestamp>) -> StoreClock {
        let ahead = last_commit.map_or(Duration::ZERO, |at| at.since(system.now()));
        if ahead >= STEP_WARN {
            tracing::warn!(
                behind_seconds = ahead.as_secs(),
                "the system's clock is behind the last commit; time goes on from there"
            );
        }
        StoreClock { system, ahead }
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        self.system.now().plus(self.ahead)
    }
}
