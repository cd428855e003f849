//! The world outside in the simulator: endpoints that answer late, wrongly or not at all, drawn from the seed. Every
//! request that arrives is held against what was committed when it arrived, and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use outlast_core::breaker::FAILURES_MAX;
use outlast_core::gate::HoldCause;
use outlast_core::state::Ending;
use outlast_core::webhook_answer::is_broken;
use outlast_core::{EventKind, JobId, Lease, State};
use outlast_engine::egress::{Egress, Incoming, Outgoing, RefusedUrl, SendError, SendPhase};
use outlast_tests::chance::Chance;
use outlast_tests::model::{ModelDisk, World};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

use crate::faults::Faults;
use crate::judge::Witness;
use crate::planted::Plant;

pub struct Outside {
    chance: Mutex<Chance>,
    faults: Arc<Faults>,
    disk: ModelDisk,
    witness: Arc<Witness>,
    plant: Plant,
    /// Jobs whose outcome comes by call.
    taken: UnboundedSender<(JobId, Lease)>,
}

/// Requests and answers of the endpoints. The witness compares them with the log of each job.
#[derive(Default)]
pub struct Deliveries {
    requests: BTreeMap<JobId, u64>,
    leases: BTreeSet<u128>,
    /// Failures that a job was given: answers, broken connections, nacks. Nothing else may be charged as one.
    failures: BTreeMap<JobId, usize>,
    /// Of each URL.
    failures_in_a_row: BTreeMap<Arc<str>, u32>,
    /// There was a moment at which an endpoint's circuit might open.
    may_open: bool,
    /// Coverage of the run, so that a suite can check that every case occurred.
    pub seen: BTreeSet<&'static str>,
}

enum Say {
    Status(u16),
    RetryAfter(u16, u64),
    Unreachable,
    /// The request arrives, and no answer comes.
    Lost,
}

impl Deliveries {
    pub fn failed(&mut self, id: JobId) {
        *self.failures.entry(id).or_default() += 1;
    }

    /// The endpoint's health, as a breaker sees it.
    fn answered(&mut self, url: &Arc<str>, is_failure: bool) {
        let in_a_row = self.failures_in_a_row.entry(Arc::clone(url)).or_default();
        *in_a_row = if is_failure { *in_a_row + 1 } else { 0 };
        self.may_open |= *in_a_row >= FAILURES_MAX;
    }

    /// I-17, I-18: charged as failure is only what failed; a circuit opens only after failures in a row.
    pub fn check(&mut self, world: &World) -> Result<(), String> {
        self.note(world);
        for row in world.rows.values() {
            let is_nack = |kind: &EventKind| matches!(kind, EventKind::Attempt(it) if it.outcome == Ending::Nacked);
            let charged = row.events.iter().filter(|event| is_nack(&event.kind)).count();
            let given = self.failures.get(&row.job.id).copied().unwrap_or(0);
            if charged > given {
                return Err(format!("I-18: {charged} failures charged, {given} happened: {:?}", row.events));
            }
        }
        let rests = world.queues.values().find(|queue| queue.hold.is_some_and(|hold| hold.cause == HoldCause::Circuit));
        match rests {
            Some(queue) if !self.may_open => Err(format!("a circuit opened without cause: {:?}", queue.hold)),
            _ => Ok(()),
        }
    }

    fn note(&mut self, world: &World) {
        for hold in world.queues.values().filter_map(|queue| queue.hold) {
            self.seen.insert(hold.cause.as_str());
            if hold.probe.is_some() {
                self.seen.insert("probe");
            }
        }
        for row in world.rows.values() {
            if let State::Running(running) = &row.job.state {
                self.seen.insert(running.phase.as_str());
            }
            if let Some(EventKind::Attempt(last)) = row.events.iter().rev().nth(1).map(|event| &event.kind) {
                self.seen.insert(last.outcome.as_str());
            }
        }
    }

    /// F15, I-17: it belongs to a hand-out that is committed, and is the only one of it.
    fn arrive(&mut self, id: JobId, lease: Option<Lease>, epoch: u64) -> Result<(), String> {
        let requests = self.requests.entry(id).or_default();
        *requests += 1;
        if *requests > epoch {
            return Err(format!("I-17: {requests} requests for {epoch} hand-outs of {id}"));
        }
        match lease {
            Some(lease) if !self.leases.insert(lease.as_u128()) => {
                Err(format!("I-17: a hand-out of {id} was sent twice"))
            }
            _ => Ok(()),
        }
    }
}

impl Outside {
    pub fn new(
        chance: Chance,
        faults: &Arc<Faults>,
        (disk, witness): (&ModelDisk, &Arc<Witness>),
        plant: Plant,
        taken: UnboundedSender<(JobId, Lease)>,
    ) -> Outside {
        let (faults, disk, witness) = (Arc::clone(faults), disk.clone(), Arc::clone(witness));
        Outside { chance: Mutex::new(chance), faults, disk, witness, plant, taken }
    }

    /// The way out of one life of the process.
    pub fn egress(self: &Arc<Outside>, alive: Arc<AtomicBool>) -> Arc<dyn Egress> {
        Arc::new(WayOut { outside: Arc::clone(self), alive })
    }

    fn draw(&self) -> (Duration, Say, Duration) {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (Duration::from_millis(chance.below(15)), Duration::from_millis(chance.below(400)));
        // Endpoints are sick for seconds at a time, or circuits would never open.
        let is_sick = self.disk.world().now.as_millis() / 8000 % 2 == 0 && chance.percent(95);
        let (drawn, seconds) = (chance.below(100), chance.below(4));
        let say = match drawn {
            _ if self.faults.is_calm() => Say::Status(200),
            0..=80 if is_sick => Say::Status(500),
            _ if is_sick => Say::Unreachable,
            0..=44 => Say::Status([200, 201, 204][drawn as usize % 3]),
            45..=54 => Say::Status(202),
            55..=61 => Say::RetryAfter(429, seconds),
            62..=66 => Say::Status([503, 529][drawn as usize % 2]),
            67..=78 => Say::Status([500, 502, 404][drawn as usize % 3]),
            79..=80 => Say::Status(410),
            81..=90 => Say::Unreachable,
            _ => Say::Lost,
        };
        (before, say, after)
    }

    fn arrive(&self, request: &Outgoing) -> Option<JobId> {
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let id: JobId = header("webhook-id")?.split('_').next()?.parse().ok()?;
        let lease: Option<Lease> = header("x-outlast-lease").and_then(|text| text.parse().ok());
        let world = self.disk.world();
        let epoch = world.row(id).map(|row| row.job.epoch);
        let verdict = match (epoch, lease) {
            (_, Some(lease)) if !self.witness.has_seen(id, lease) => {
                Err(format!("F15: sent without a committed attempt: {id}"))
            }
            (Some(epoch), lease) => self.deliveries().arrive(id, lease, epoch),
            // It timed out while the request was on its way.
            (None, _) => Ok(()),
        };
        if let Err(violation) = verdict {
            self.witness.fail(violation);
        }
        Some(id)
    }

    fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.witness.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer that the process gets, and the recorded answer.
    fn close(&self, id: Option<JobId>, request: &Outgoing, say: &Say) -> Result<Incoming, SendError> {
        let (status, retry_after) = match say {
            Say::Status(status) => (*status, None),
            Say::RetryAfter(status, seconds) => (*status, Some(*seconds)),
            Say::Unreachable | Say::Lost => (0, None),
        };
        let mut deliveries = self.deliveries();
        deliveries.answered(&request.url, status == 0 || is_broken(status));
        if let (Some(id), false) = (id, matches!(status, 200..=299 | 429 | 503 | 529)) {
            deliveries.failed(id);
        }
        drop(deliveries);
        let lease: Option<Lease> =
            request.headers.get("x-outlast-lease").and_then(|value| value.to_str().ok()?.parse().ok());
        if let (200..=299, Some(id), Some(lease)) = (status, id, lease) {
            // In standard mode only a 202 makes it a receipt; an outcome that is not asked for is refused.
            let _ = self.taken.send((id, lease));
        }
        if status == 0 {
            return Err(SendError::new(SendPhase::FirstByte, "no answer"));
        }
        let mut headers = HeaderMap::new();
        if let Some(seconds) = retry_after {
            headers.insert("retry-after", HeaderValue::from(seconds));
        }
        Ok(Incoming { status, headers, body: Bytes::new(), is_cut: false })
    }
}

struct WayOut {
    outside: Arc<Outside>,
    /// Nothing leaves a dead process.
    alive: Arc<AtomicBool>,
}

impl WayOut {
    fn check_alive(&self) -> Result<(), SendError> {
        match self.alive.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(SendError::new(SendPhase::Connect, "the process is dead")),
        }
    }
}

#[async_trait]
impl Egress for WayOut {
    fn check(&self, _: &str) -> Result<(), RefusedUrl> {
        Ok(())
    }

    async fn send(&self, request: Outgoing) -> Result<Incoming, SendError> {
        self.check_alive()?;
        let (before, say, after) = self.outside.draw();
        sleep(before).await;
        self.check_alive()?;
        let id = match say {
            Say::Unreachable => None,
            _ => self.outside.arrive(&request),
        };
        if self.outside.plant == Plant::SentTwice && matches!(say, Say::Lost) {
            self.outside.arrive(&request);
        }
        sleep(if matches!(say, Say::Lost) { request.timeout.saturating_sub(before) } else { after }).await;
        self.check_alive()?;
        let header = request.headers.get("webhook-id").and_then(|value| value.to_str().ok());
        let about = id.or_else(|| header?.split('_').next()?.parse().ok());
        self.outside.close(about, &request, &say)
    }
}
