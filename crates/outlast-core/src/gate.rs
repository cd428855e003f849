//! Whether a queue hands out jobs right now, and how many: pause, hold with probe, concurrency, rate.

use crate::gcra::Permit;
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
    pub cause: HoldCause,
    /// How many probes in a row have found the same cause again.
    pub round: u32,
}

/// The reason for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldCause {
    /// The endpoint asked for it: 429, 503, 529.
    Backpressure,
    /// The endpoint does not answer: its circuit is open.
    Circuit,
    /// A worker asked for it: defer.
    Deferred,
}

impl HoldCause {
    /// The order is the stored form: append only.
    pub const ALL: [HoldCause; 3] = [HoldCause::Backpressure, HoldCause::Circuit, HoldCause::Deferred];

    pub fn as_str(self) -> &'static str {
        match self {
            HoldCause::Backpressure => "backpressure",
            HoldCause::Circuit => "circuit",
            HoldCause::Deferred => "deferred",
        }
    }
}

impl Hold {
    /// A first hold for this cause, not probed yet.
    pub fn new(until: Timestamp, cause: HoldCause) -> Hold {
        Hold { until, probe: None, cause, round: 0 }
    }
}

/// The gate's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Up to so many. If that is fewer than wanted because of the rate, more at this time.
    Open { limit: u32, more_at: Option<Timestamp> },
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
        hold => match rate_permit(queue, now) {
            Permit::At(at) => Gate::HeldUntil(at),
            Permit::Now(_) if hold.is_some() => Gate::Probe,
            Permit::Now(room) => Gate::Open { limit: free.min(room), more_at: more_at(queue, room, now) },
        },
    }
}

fn rate_permit(queue: &Queue, now: Timestamp) -> Permit {
    queue.settings.rate_limit.map_or(Permit::Now(u32::MAX), |limit| queue.gcra.permit(limit, now))
}

/// When the rate lets the next one through after `room` have gone out.
fn more_at(queue: &Queue, room: u32, now: Timestamp) -> Option<Timestamp> {
    let limit = queue.settings.rate_limit?;
    match queue.gcra.after(room, limit, now).permit(limit, now) {
        Permit::At(at) => Some(at),
        Permit::Now(_) => None,
    }
}

/// Does this change of the hold let jobs out that the hold before kept back, now or sooner? Then the queue's waiters must
/// look: nothing else wakes them.
pub fn loosens(before: Option<Hold>, after: Option<Hold>) -> bool {
    match (before, after) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before), Some(after)) => (before.probe.is_some() && after.probe.is_none()) || after.until < before.until,
    }
}

/// The hold once `job` has been deleted, if that changes it: when the probe is gone, another one must try.
pub fn hold_without(queue: &Queue, job: JobId) -> Option<Hold> {
    queue.hold.filter(|hold| hold.probe == Some(job)).map(|hold| Hold { probe: None, ..hold })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gcra::Gcra;
    use crate::ids::{NamespaceId, QueueId};
    use crate::queue::{QueueSettings, RateLimit};

    fn queue() -> Queue {
        Queue {
            id: QueueId(1),
            namespace: NamespaceId(1),
            name: "mail".to_owned(),
            settings: QueueSettings::default(),
            paused: false,
            hold: None,
            gcra: Gcra::default(),
            secrets: None,
            version: 1,
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn a_hold_lets_nothing_through_then_one_probe_then_waits_for_it() {
        let at = |millis| Timestamp::from_millis(millis);
        let mut queue = queue();

        queue.hold = Some(Hold::new(at(50), HoldCause::Backpressure));
        assert_eq!(gate(&queue, Phase::Leased, 0, at(49)), Gate::HeldUntil(at(50)));
        assert_eq!(gate(&queue, Phase::Leased, 0, at(50)), Gate::Probe);

        queue.hold = Some(Hold { probe: Some(JobId::new(at(1), 7)), ..Hold::new(at(50), HoldCause::Backpressure) });
        assert_eq!(gate(&queue, Phase::Leased, 1, at(60)), Gate::Shut);
    }

    #[test]
    fn a_hold_is_loosened_by_its_end_a_returned_probe_or_an_earlier_time() {
        let until = |millis| Hold::new(Timestamp::from_millis(millis), HoldCause::Backpressure);
        let probing = |millis| Hold { probe: Some(JobId::new(Timestamp::EPOCH, 7)), ..until(millis) };

        assert!(loosens(Some(until(50)), None));
        assert!(loosens(Some(probing(50)), Some(until(90))));
        assert!(loosens(Some(until(50)), Some(until(49))));
        assert!(!loosens(None, Some(until(50))));
        assert!(!loosens(None, None));
        assert!(!loosens(Some(until(50)), Some(until(90))));
        assert!(!loosens(Some(until(50)), Some(probing(50))));
        assert!(!loosens(Some(probing(50)), Some(probing(50))));
    }

    #[test]
    fn concurrency_counts_what_is_running() {
        let mut queue = queue();
        assert_eq!(
            gate(&queue, Phase::Leased, 1_000_000, Timestamp::EPOCH),
            Gate::Open { limit: u32::MAX, more_at: None }
        );

        queue.settings.concurrency = Some(3);
        assert_eq!(gate(&queue, Phase::Leased, 1, Timestamp::EPOCH), Gate::Open { limit: 2, more_at: None });
        assert_eq!(gate(&queue, Phase::Leased, 5, Timestamp::EPOCH), Gate::Shut);

        queue.hold = Some(Hold::new(Timestamp::EPOCH, HoldCause::Backpressure));
        assert_eq!(gate(&queue, Phase::Leased, 2, Timestamp::EPOCH), Gate::Probe);
        assert_eq!(gate(&queue, Phase::Leased, 3, Timestamp::EPOCH), Gate::Shut, "a probe counts, too");

        queue.paused = true;
        assert_eq!(gate(&queue, Phase::Leased, 0, Timestamp::EPOCH), Gate::Shut);
    }

    #[test]
    fn a_rate_lets_some_through_and_says_when_the_next_may_go() {
        let at = |millis| Timestamp::from_millis(millis);
        let mut queue = queue();
        queue.settings.rate_limit = Some(RateLimit { limit: 50, per: std::time::Duration::from_secs(1) });

        let Gate::Open { limit, more_at: Some(more_at) } = gate(&queue, Phase::Leased, 0, at(1000)) else {
            panic!("the rate is not used yet");
        };
        queue.gcra = queue.gcra.after(limit, queue.settings.rate_limit.unwrap(), at(1000));
        assert!((1..=3).contains(&limit) && more_at > at(1000));
        assert_eq!(gate(&queue, Phase::Leased, 0, at(1000)), Gate::HeldUntil(more_at));
        assert!(matches!(gate(&queue, Phase::Leased, 0, more_at), Gate::Open { .. }));

        queue.hold = Some(Hold::new(at(1000), HoldCause::Backpressure));
        assert_eq!(gate(&queue, Phase::Leased, 0, at(1000)), Gate::HeldUntil(more_at), "a probe keeps to the rate");
    }
}
