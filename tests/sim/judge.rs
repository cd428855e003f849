//! The judge: after each step it compares the store with the store before the step, and with the answers that clients
//! got. It keeps its own account and trusts no counter of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::gate::Hold;
use outlast_core::queue::Mode;
use outlast_core::system_queue::JOB_TAG;
use outlast_core::{Event, EventKind, Job, JobId, Lease, Queue, QueueId, State, Status, Timestamp, invariants};
use outlast_store::operations::{OperationKind, OperationStatus};
use outlast_tests::model::{Row, World};

use crate::ledger::Ledger;
use crate::log::check_log;
use crate::outside::Deliveries;

/// Shared by all parts of a run: the judge, the answers that clients got, and the verdict.
#[derive(Default)]
pub struct Witness {
    judge: Mutex<Judge>,
    pub ledger: Mutex<Ledger>,
    pub deliveries: Mutex<Deliveries>,
    verdict: Mutex<Option<String>>,
}

impl Witness {
    pub fn look(&self, world: &World) {
        let mut judge = self.judge();
        let outcome = judge.look(world).and_then(|()| judge.check_replays(world));
        let outcome = outcome.and_then(|()| self.ledger().check(world, &judge.purged));
        let outcome = outcome.and_then(|()| if judge.delivers { self.deliveries().check(world) } else { Ok(()) });
        if let Err(violation) = outcome {
            self.fail(violation);
        }
    }

    /// A replay of a single job took effect; the others are the work of operations.
    pub fn replayed_one(&self) {
        self.judge().replayed_singly += 1;
    }

    /// The first violation counts; what follows from it is of no interest.
    pub fn fail(&self, violation: String) {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(violation);
    }

    pub fn verdict(&self) -> Option<String> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Was this hand-out of the job ever committed?
    pub fn has_seen(&self, id: JobId, lease: Lease) -> bool {
        self.judge().leases.get(&lease.as_u128()).is_some_and(|(owner, _)| *owner == id)
    }

    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Judge {
    seen: BTreeMap<JobId, Seen>,
    /// Jobs that were deleted when their time had come.
    purged: BTreeSet<JobId>,
    leases: BTreeMap<u128, (JobId, u64)>,
    /// Runs that were opened by replay, of all jobs that ever were.
    replayed: u64,
    replayed_singly: u64,
    /// Of each queue, as of the look before.
    holds: BTreeMap<QueueId, Option<Hold>>,
    /// There is a queue that delivers.
    delivers: bool,
}

struct Seen {
    job: Job,
    events: Vec<Event>,
}

type Verdict = Result<(), String>;

impl Judge {
    fn look(&mut self, world: &World) -> Verdict {
        self.check_vanished(world)?;
        for row in world.rows.values() {
            let queue = world.queue_of(&row.job);
            self.check_hold(row, queue, world.now)?;
            match self.seen.get(&row.job.id) {
                None => self.check_new(row, queue, world.now)?,
                Some(seen) if seen.job.version == row.job.version && seen.events.len() == row.events.len() => continue,
                Some(seen) => {
                    self.replayed += u64::from(row.job.replays - seen.job.replays);
                    check_changed(seen, row)?;
                }
            }
            self.check_moment(row, queue)?;
            check_callbacks(row, queue, world)?;
            self.seen.insert(row.job.id, Seen { job: row.job.clone(), events: row.events.clone() });
        }
        self.holds = world.queues.values().map(|queue| (queue.id, queue.hold)).collect();
        self.delivers = world.queues.values().any(|queue| queue.settings.is_push());
        check_keys(world)?;
        check_concurrency(world)
    }

    /// F26: while a queue is held nothing of it goes out; then one probe, and nothing else until that is back.
    fn check_hold(&self, row: &Row, queue: &Queue, now: Timestamp) -> Verdict {
        let before = self.seen.get(&row.job.id).map_or(0, |seen| seen.job.epoch);
        let Some(hold) = self.holds.get(&queue.id).copied().flatten().filter(|_| row.job.epoch > before) else {
            return Ok(());
        };
        let is_probe = queue.hold.is_some_and(|present| present.probe == Some(row.job.id));
        if hold.until > now || hold.probe.is_some() || !is_probe {
            return Err(format!("F26: handed out from a queue that is held: {hold:?} {:?}", row.job));
        }
        Ok(())
    }

    /// I-24: what operations say they have replayed is what was replayed, and a finished replay has left out no job.
    fn check_replays(&self, world: &World) -> Verdict {
        let replays = world.operations.values().filter(|operation| operation.kind == OperationKind::Replay);
        let by_operations: u64 = replays.clone().map(|operation| operation.processed).sum();
        if by_operations + self.replayed_singly != self.replayed {
            return Err(format!(
                "I-24: {} runs were opened, {by_operations} by operations and {} singly",
                self.replayed, self.replayed_singly
            ));
        }
        let whole = replays.filter(|operation| operation.status == OperationStatus::Done && operation.limit.is_none());
        for operation in whole {
            let left_out = |row: &&Row| {
                let is_old = matches!(row.job.state, State::Failed { at, .. } if at < operation.created_at);
                is_old && row.job.queue == operation.queue
            };
            // Only jobs whose key another job has may be passed over, and each of them is counted.
            let has_key = |row: &Row| row.job.spec.idempotency_key.is_some();
            let passed_over: Vec<&Row> = world.rows.values().filter(left_out).collect();
            let uncounted = passed_over.len() as u64 > operation.skipped;
            if let Some(row) = passed_over.into_iter().find(|row| uncounted || !has_key(row)) {
                return Err(format!("I-24: a replay left a job out: {operation:?} {:?}", row.job));
            }
        }
        Ok(())
    }

    /// A job is deleted only when it is finished and its retention has ended.
    fn check_vanished(&mut self, world: &World) -> Verdict {
        let gone: Vec<JobId> = self.seen.keys().filter(|id| world.row(**id).is_none()).copied().collect();
        for id in gone {
            let seen = self.seen.remove(&id).expect("it was just listed");
            let retention = world.queue_of(&seen.job).settings.retention;
            let is_due = seen.job.finished_at().is_some_and(|at| at.plus(retention) <= world.now);
            if !is_due {
                return Err(format!("I-01: a job is lost: {:?}", seen.job));
            }
            self.purged.insert(id);
        }
        Ok(())
    }

    /// I-09: no other job holds the key of a new job.
    fn check_new(&self, row: &Row, queue: &Queue, now: Timestamp) -> Verdict {
        if self.purged.contains(&row.job.id) {
            return Err(format!("an id was given twice: {}", row.job.id));
        }
        let Some(key) = &row.job.spec.idempotency_key else {
            return Ok(());
        };
        // The newest job that was published with a key owns it; an older one that is replayed does not take it back.
        let same_key = |seen: &&Seen| seen.job.spec.idempotency_key.as_ref() == Some(key);
        let Some(newest) = self.seen.values().filter(same_key).max_by_key(|seen| seen.job.created_at) else {
            return Ok(());
        };
        let window = queue.settings.dedupe_window();
        if !newest.job.status().is_terminal() || newest.job.created_at.plus(window) > now {
            return Err(format!("I-09: two jobs hold the key {key}: {} and {}", newest.job.id, row.job.id));
        }
        Ok(())
    }

    fn check_moment(&mut self, row: &Row, queue: &Queue) -> Verdict {
        invariants::check(&row.job, queue).map_err(|violation| violation.to_string())?;
        check_log(row, queue)?;
        let State::Running(running) = &row.job.state else {
            return Ok(());
        };
        self.check_lease(row, running.lease)
    }

    /// I-14: a lease belongs to one hand-out of one job.
    fn check_lease(&mut self, row: &Row, lease: Lease) -> Verdict {
        let hand_out = (row.job.id, row.job.epoch);
        let owner = *self.leases.entry(lease.as_u128()).or_insert(hand_out);
        let of_epoch = self.leases.values().filter(|other| **other == hand_out).count();
        if owner != hand_out || of_epoch != 1 {
            return Err(format!("I-14: hand-out {hand_out:?} and hand-out {owner:?} share a lease, or one has two"));
        }
        Ok(())
    }
}

/// From one look to the next: versions and epochs grow, the log only gets longer, the end of a job is its end.
fn check_changed(seen: &Seen, row: &Row) -> Verdict {
    let (before, after) = (&seen.job, &row.job);
    let rules = [
        ("a version grows with every change", after.version > before.version),
        ("I-14: epochs never fall", after.epoch >= before.epoch),
        ("the log only gets longer", row.events.starts_with(&seen.events)),
        ("I-16: a finished job does not change", !before.status().is_terminal() || may_leave(before, after)),
        (
            "what was asked for does not change",
            after.created_at == before.created_at && after.replays >= before.replays,
        ),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((rule, _)) => Err(format!("{rule}: {before:?} became {after:?}")),
        None => Ok(()),
    }
}

fn may_leave(before: &Job, after: &Job) -> bool {
    let replayed = after.replays > before.replays && matches!(before.status(), Status::Failed | Status::Cancelled);
    replayed || (before.status() == Status::Succeeded && after.status() == Status::Expired)
}

/// I-28: every end of a job with a callback URL has one callback job, made in the same step.
fn check_callbacks(row: &Row, queue: &Queue, world: &World) -> Verdict {
    if row.job.spec.callback_url.is_none() || queue.settings.mode == Mode::Callback {
        return Ok(());
    }
    let is_end = |kind: &EventKind| match kind {
        EventKind::State { to, .. } => to.is_terminal() && *to != Status::Expired,
        _ => false,
    };
    let ends = row.events.iter().filter(|event| is_end(&event.kind)).count();
    let id = row.job.id.to_string();
    let is_callback = |other: &&Row| other.job.spec.tags.iter().any(|(name, of)| **name == *JOB_TAG && **of == *id);
    let callbacks = world.rows.values().filter(is_callback).count();
    if callbacks != ends {
        return Err(format!("I-28: {ends} ends, {callbacks} callbacks: {:?}", row.events));
    }
    Ok(())
}

/// I-09: one key has one live job, published or replayed.
fn check_keys(world: &World) -> Verdict {
    let mut live = BTreeMap::new();
    for row in world.rows.values().filter(|row| !row.job.status().is_terminal()) {
        let Some(key) = &row.job.spec.idempotency_key else {
            continue;
        };
        if let Some(other) = live.insert((row.job.queue, key), row.job.id) {
            return Err(format!("I-09: two live jobs have the key {key}: {other} and {}", row.job.id));
        }
    }
    Ok(())
}

/// I-25.
fn check_concurrency(world: &World) -> Verdict {
    for queue in world.queues.values() {
        let runs = |row: &&Row| row.job.queue == queue.id && row.job.status() == Status::Running;
        let running = world.rows.values().filter(runs).count();
        let limit = queue.settings.concurrency_limit();
        if limit.is_some_and(|limit| running > limit as usize) {
            return Err(format!("I-25: {running} jobs of queue {} run, {limit:?} may", queue.name));
        }
    }
    Ok(())
}
