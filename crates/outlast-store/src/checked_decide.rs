//! The middle of every transaction, shared by all engines: decide, check the invariants, work out what to index.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::alarm::alarm;
use outlast_core::decide::set_aside::set_aside;
use outlast_core::event::{EventKind, Reason};
use outlast_core::gate::{Gate, gate, loosens};
use outlast_core::invariants::Violation;
use outlast_core::object::digest_text;
use outlast_core::queue::{DedupeBy, QueueSettings};
use outlast_core::{
    Change, Command, Effect, Entropy, Event, Job, Lease, NamespaceId, Queue, Refusal, Spec, State, Status, Timestamp,
    Update, decide, invariants,
};
use sha2::{Digest, Sha256};

use crate::handout::HandoutPool;
use crate::jobs::{ClaimRequest, Claimed, NewJob};
use crate::outbox::{self, Compose};

/// The changes that an engine writes for one command.
#[derive(Debug)]
pub enum CheckedChange {
    Nothing,
    /// An alarm rang and nothing was due: the queue's settings have moved it since it was set. Without setting it again
    /// it would ring for ever.
    Rearm {
        wake_at: Option<Timestamp>,
    },
    Update {
        update: Box<Update>,
        wake_at: Option<Timestamp>,
        frees: bool,
        /// Work on the job was found not to move.
        stalled: bool,
        /// Jobs to be created with it.
        outbox: Vec<NewJob>,
        /// The command did not do what it should: it broke this rule, and the job is a dead letter instead.
        set_aside: Option<Violation>,
    },
    Delete,
    /// A command broke this rule on a finished job, which stays as it is: only its alarm is silenced.
    Silence(Violation),
}

/// The inputs of a decision besides the job and the command.
pub struct DecideContext<'e> {
    pub now: Timestamp,
    pub entropy: &'e mut dyn Entropy,
    pub compose: Compose,
}

/// Runs the state machine on a loaded job. A broken invariant is a bug and must not reach the disk, and neither must it
/// hold up other jobs: this one is set aside. The same goes for a panic of the rules.
pub fn decide_checked(
    job: &Job,
    queue: &Queue,
    command: Command,
    around: DecideContext<'_>,
) -> Result<CheckedChange, Refusal> {
    let (now, compose) = (around.now, around.compose);
    let checked = catch_unwind(AssertUnwindSafe(|| checked_step(job, queue, command, around)));
    let violation = match checked {
        Ok(Ok(decided)) => return decided,
        Ok(Err(violation)) => violation,
        Err(_) => Violation { id: "state", rule: "the rules apply without a panic", job: job.id },
    };
    let Some(update) = set_aside(job, queue, &violation, now) else {
        return Ok(CheckedChange::Silence(violation));
    };
    let written = written(job, queue, Box::new(update), compose);
    Ok(match written {
        CheckedChange::Update { update, wake_at, frees, stalled, outbox, .. } => {
            CheckedChange::Update { update, wake_at, frees, stalled, outbox, set_aside: Some(violation) }
        }
        other => other,
    })
}

fn checked_step(
    job: &Job,
    queue: &Queue,
    command: Command,
    around: DecideContext<'_>,
) -> Result<Result<CheckedChange, Refusal>, Violation> {
    let wakes = command.is_wake();
    let update = match decide(job, queue, command, around.now, around.entropy) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(Change::None) if wakes => return Ok(Ok(CheckedChange::Rearm { wake_at: alarm(job, queue) })),
        Ok(Change::None) => return Ok(Ok(CheckedChange::Nothing)),
        Ok(Change::Delete) => return Ok(Ok(CheckedChange::Delete)),
        Ok(Change::Update(update)) => update,
    };
    invariants::check_step(job, &update)?;
    invariants::check_job(&update.job)?;
    Ok(Ok(written(job, queue, update, around.compose)))
}

fn written(job: &Job, queue: &Queue, update: Box<Update>, compose: Compose) -> CheckedChange {
    let wake_at = alarm(&update.job, queue);
    let (frees, stalled) = (frees(job, queue, &update), update.events.iter().any(Event::is_stall));
    let outbox = outbox::outgoing(&update, queue, compose);
    CheckedChange::Update { update, wake_at, frees, stalled, outbox, set_aside: None }
}

/// A job that becomes eligible, one that ends and so makes room under a limit, and one that loosens the queue's hold.
fn frees(before: &Job, queue: &Queue, update: &Update) -> bool {
    let (from, to) = (before.status(), update.job.status());
    to == Status::Queued || (from == Status::Running && to != Status::Running) || loosens_hold(queue, update)
}

/// The last effect on the hold is the one that stays.
fn loosens_hold(queue: &Queue, update: &Update) -> bool {
    let hold_after = update.effects.iter().rev().find_map(|effect| match effect {
        Effect::SetHold(hold) => Some(*hold),
        _ => None,
    });
    hold_after.is_some_and(|after| loosens(queue.hold, after))
}

/// The log's first entry.
pub fn creation_event(job: &mut Job) -> Event {
    let reason = match job.status() {
        Status::Pending => Reason::Delayed,
        _ => Reason::Published,
    };
    job.events = 1;
    Event {
        seq: 1,
        at: job.created_at,
        kind: EventKind::State { from: None, to: job.status(), reason, replays: job.replays },
    }
}

/// The key a publish is deduplicated by, if any: its own, or the hash of its payload where the queue says so. The marker
/// cannot stand in a key that a user sends, so the two kinds never meet.
pub fn dedupe_key<'a>(spec: &'a Spec, settings: &QueueSettings) -> Option<std::borrow::Cow<'a, str>> {
    if let Some(key) = &spec.idempotency_key {
        return Some(key.as_ref().into());
    }
    if settings.dedupe_by != DedupeBy::Payload {
        return None;
    }
    let digest = Sha256::digest(spec.payload.as_bytes());
    let mut key = String::with_capacity(PAYLOAD_KEY_MARK.len_utf8() + 64);
    key.push(PAYLOAD_KEY_MARK);
    key.push_str(&digest_text(&digest));
    Some(key.into())
}

pub const PAYLOAD_KEY_MARK: char = '\u{1}';

/// Equal as JSON: white space and the order of keys do not matter.
pub(crate) fn same_json(one: &str, other: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || parse(one).is_some_and(|value| Some(value) == parse(other))
}

/// The labels a job is listed by: each tag, and its fair-share key.
pub(crate) fn labels(job: &Job, namespace: NamespaceId) -> Vec<String> {
    let tags = job.spec.tags.iter().map(|(name, value)| label(namespace, name, value));
    tags.chain(job.spec.key.iter().map(|key| label(namespace, "", key))).collect()
}

/// A tag's name is never empty, so the empty name means the fair-share key.
pub(crate) fn label(namespace: NamespaceId, name: &str, value: &str) -> String {
    format!("{}\u{1f}{name}\u{1f}{value}", namespace.0)
}

/// A claim that has got nothing yet, and how many jobs the gate and the memory for hand-outs let it have.
pub(crate) fn admit(
    queue: Arc<Queue>,
    want: &ClaimRequest,
    running: u64,
    now: Timestamp,
    pool: &HandoutPool,
) -> (Claimed, usize) {
    let mut claimed = Claimed::none(queue);
    let limit = match gate(&claimed.queue, want.phase, running, now) {
        Gate::Open { limit, more_at } => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            claimed.held_until = more_at.filter(|_| limit <= want.limit);
            limit.min(want.limit)
        }
        Gate::Probe => want.limit.min(1),
        Gate::Shut => 0,
        Gate::PushOnly => {
            claimed.push_only = true;
            0
        }
        Gate::HeldUntil(until) => {
            claimed.held_until = Some(until);
            0
        }
    };
    let has_room = limit > 0 && claimed.fit_into(pool);
    (claimed, if has_room { limit } else { 0 })
}

/// Present lease of a running job.
pub(crate) fn lease_of(job: &Job) -> Option<Lease> {
    match &job.state {
        State::Running(running) => Some(running.lease),
        _ => None,
    }
}
