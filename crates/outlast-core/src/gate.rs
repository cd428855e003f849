//! Whether a queue hands out jobs right now, and how many: pause, hold with probe, concurrency.

use crate::ids::JobId;
use crate::queue::Queue;
use crate::time::Timestamp;

/// Backpressure on a whole queue. Nothing is handed out until `until`; then one probe; its ending lifts the hold or
/// starts the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    pub until: Timestamp,
    pub probe: Option<JobId>,
}

/// What the gate lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Up to so many; none is a limit of zero.
    Open { limit: u32 },
    /// One job, which becomes the probe.
    Probe,
    /// Nothing before this time.
    HeldUntil(Timestamp),
    /// Nothing until something happens: resumed, a job ended, the probe came back.
    Shut,
}

/// Decides from the queue and the number of its running jobs.
pub fn gate(queue: &Queue, running: u64, now: Timestamp) -> Gate {
    if queue.paused {
        return Gate::Shut;
    }
    if let Some(hold) = queue.hold {
        return match hold.probe {
            Some(_) => Gate::Shut,
            None if hold.until > now => Gate::HeldUntil(hold.until),
            None => Gate::Probe,
        };
    }
    let Some(limit) = queue.settings.concurrency_limit() else {
        return Gate::Open { limit: u32::MAX };
    };
    match u64::from(limit).saturating_sub(running) {
        0 => Gate::Shut,
        free => Gate::Open { limit: u32::try_from(free).unwrap_or(u32::MAX) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{NamespaceId, QueueId};
    use crate::queue::QueueSettings;

    fn queue() -> Queue {
        Queue {
            id: QueueId(1),
            namespace: NamespaceId(1),
            name: "mail".to_owned(),
            settings: QueueSettings::default(),
            paused: false,
            hold: None,
            version: 1,
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn a_hold_lets_nothing_through_then_one_probe_then_waits_for_it() {
        let at = |millis| Timestamp::from_millis(millis);
        let mut queue = queue();

        queue.hold = Some(Hold { until: at(50), probe: None });
        assert_eq!(gate(&queue, 0, at(49)), Gate::HeldUntil(at(50)));
        assert_eq!(gate(&queue, 0, at(50)), Gate::Probe);

        queue.hold = Some(Hold { until: at(50), probe: Some(JobId::new(at(1), 7)) });
        assert_eq!(gate(&queue, 1, at(60)), Gate::Shut);
    }

    #[test]
    fn concurrency_counts_what_is_running() {
        let mut queue = queue();
        assert_eq!(gate(&queue, 1_000_000, Timestamp::EPOCH), Gate::Open { limit: u32::MAX });

        queue.settings.concurrency = Some(3);
        assert_eq!(gate(&queue, 1, Timestamp::EPOCH), Gate::Open { limit: 2 });
        assert_eq!(gate(&queue, 5, Timestamp::EPOCH), Gate::Shut);

        queue.paused = true;
        assert_eq!(gate(&queue, 0, Timestamp::EPOCH), Gate::Shut);
    }
}
