//! Whether a queue hands out jobs right now, and how many: pause, hold with probe, concurrency.

use crate::ids::JobId;
use crate::queue::Queue;
use crate::state::Phase;
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
    /// The queue delivers to its webhook; pullers get nothing.
    PushOnly,
}

/// Decides from the queue, the way the job would go out, and the number of running jobs.
pub fn gate(queue: &Queue, phase: Phase, running: u64, now: Timestamp) -> Gate {
    if phase == Phase::Leased && !queue.settings.allows_pull() {
        return Gate::PushOnly;
    }
    if queue.paused {
        return Gate::Shut;
    }
    let free = match queue.settings.concurrency_limit() {
        Some(limit) => u32::try_from(u64::from(limit).saturating_sub(running)).unwrap_or(u32::MAX),
        None => u32::MAX,
    };
    match queue.hold {
        Some(Hold { probe: Some(_), .. }) => Gate::Shut,
        Some(hold) if hold.until > now => Gate::HeldUntil(hold.until),
        _ if free == 0 => Gate::Shut,
        Some(_) => Gate::Probe,
        None => Gate::Open { limit: free },
    }
}

/// The hold once `job` has been deleted, if that changes it: when the probe is gone, another one must try.
pub fn hold_without(queue: &Queue, job: JobId) -> Option<Hold> {
    queue.hold.filter(|hold| hold.probe == Some(job)).map(|hold| Hold { probe: None, ..hold })
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
        assert_eq!(gate(&queue, Phase::Leased, 0, at(49)), Gate::HeldUntil(at(50)));
        assert_eq!(gate(&queue, Phase::Leased, 0, at(50)), Gate::Probe);

        queue.hold = Some(Hold { until: at(50), probe: Some(JobId::new(at(1), 7)) });
        assert_eq!(gate(&queue, Phase::Leased, 1, at(60)), Gate::Shut);
    }

    #[test]
    fn concurrency_counts_what_is_running() {
        let mut queue = queue();
        assert_eq!(gate(&queue, Phase::Leased, 1_000_000, Timestamp::EPOCH), Gate::Open { limit: u32::MAX });

        queue.settings.concurrency = Some(3);
        assert_eq!(gate(&queue, Phase::Leased, 1, Timestamp::EPOCH), Gate::Open { limit: 2 });
        assert_eq!(gate(&queue, Phase::Leased, 5, Timestamp::EPOCH), Gate::Shut);

        queue.hold = Some(Hold { until: Timestamp::EPOCH, probe: None });
        assert_eq!(gate(&queue, Phase::Leased, 2, Timestamp::EPOCH), Gate::Probe);
        assert_eq!(gate(&queue, Phase::Leased, 3, Timestamp::EPOCH), Gate::Shut, "a probe counts, too");

        queue.paused = true;
        assert_eq!(gate(&queue, Phase::Leased, 0, Timestamp::EPOCH), Gate::Shut);
    }
}
