//! A job, its queue and the time: what the tests act on. A stage changes only through `decide`, and every change is
//! checked against the invariants, so that no test can start from a job that cannot exist.

use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, Effect, Refusal, Update};
use crate::command::{Command, Evidence, Outcome};
use crate::decide::decide;
use crate::entropy::Entropy;
use crate::event::{Event, EventKind, Reason};
use crate::gate::HoldCause;
use crate::gcra::Gcra;
use crate::ids::{JobId, Lease, NamespaceId, QueueId};
use crate::invariants;
use crate::job::{Job, Spec};
use crate::object::{Object, ObjectKey, Role};
use crate::queue::{Queue, QueueSettings};
use crate::state::{Phase, ResultMeta, State};
use crate::time::Timestamp;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const BEGINNING: i64 = 1_800_000_000_000;

/// splitmix64: small, and good enough to tell leases apart.
pub(super) struct Seeded(pub(super) u64);

impl Entropy for Seeded {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

pub(super) struct Stage {
    pub(super) job: Job,
    pub(super) queue: Queue,
    pub(super) now: Timestamp,
    pub(super) deleted: bool,
    /// The whole log of the job.
    pub(super) log: Vec<Event>,
    entropy: Seeded,
}

impl Stage {
    /// A job just published to a queue with these settings.
    pub(super) fn published(spec: Spec, settings: QueueSettings) -> Stage {
        let now = Timestamp::from_millis(BEGINNING);
        let queue = Queue {
            id: QueueId(1),
            namespace: NamespaceId(1),
            name: "mail".to_owned(),
            settings,
            paused: false,
            hold: None,
            gcra: Gcra::default(),
            secrets: None,
            version: 1,
            created_at: now,
            updated_at: now,
        };
        let job = Job::admit(JobId::new(now, 7), queue.id, Arc::new(spec), now);
        invariants::check(&job, &queue).unwrap();
        Stage { job, queue, now, deleted: false, log: Vec::new(), entropy: Seeded(1) }
    }

    pub(super) fn queued(settings: QueueSettings) -> Stage {
        Stage::published(Spec { payload: "{}".into(), ..Spec::default() }, settings)
    }

    /// Handed out to a puller.
    pub(super) fn leased(settings: QueueSettings) -> Stage {
        let mut stage = Stage::queued(settings);
        stage.run(claim(Phase::Leased));
        stage
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.entropy = Seeded(seed);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    /// What the command would do; nothing happens.
    pub(super) fn ask(&self, command: Command) -> Result<Change, Refusal> {
        decide(&self.job, &self.queue, command, self.now, &mut Seeded(self.entropy.0))
    }

    /// Carries the command out as a store would.
    pub(super) fn act(&mut self, command: Command) -> Result<Change, Refusal> {
        let change = decide(&self.job, &self.queue, command, self.now, &mut self.entropy)?;
        match &change {
            Change::None => {}
            Change::Delete => self.deleted = true,
            Change::Update(update) => self.write(update),
        }
        Ok(change)
    }

    /// Carries the command out; it must change the job.
    pub(super) fn run(&mut self, command: Command) -> Update {
        match self.act(command.clone()) {
            Ok(Change::Update(update)) => *update,
            other => panic!("{command:?} on {:?} gave {other:?}", self.job),
        }
    }

    fn write(&mut self, update: &Update) {
        invariants::check_step(&self.job, update).unwrap();
        invariants::check(&update.job, &self.queue).unwrap();
        self.job = update.job.clone();
        self.log.extend(update.events.iter().cloned());
        for effect in &update.effects {
            if let Effect::SetHold(hold) = effect {
                self.queue.hold = *hold;
            }
        }
    }

    /// The present lease, or one that was never given.
    pub(super) fn lease(&self) -> Lease {
        match &self.job.state {
            State::Running(running) => running.lease,
            _ => self.job.last.map_or(Lease::from_u128(0xbad), |last| last.lease),
        }
    }

    /// The reason of the last move in the log.
    pub(super) fn last_reason(&self) -> Option<Reason> {
        self.log.iter().rev().find_map(|event| match event.kind {
            EventKind::State { reason, .. } => Some(reason),
            _ => None,
        })
    }
}

pub(super) fn settings() -> QueueSettings {
    QueueSettings::default()
}

pub(super) fn claim(phase: Phase) -> Command {
    Command::Claim { phase, visibility: None, worker: Some("w1".into()) }
}

pub(super) fn report(lease: Option<Lease>, outcome: Outcome) -> Command {
    Command::Report { lease, outcome, evidence: Evidence::default() }
}

pub(super) fn ack() -> Outcome {
    Outcome::Ack { result: None }
}

pub(super) fn nack(retryable: bool) -> Outcome {
    Outcome::Nack { retryable, delay: None }
}

pub(super) fn defer(seconds: u64) -> Outcome {
    Outcome::Defer { retry_after: Some(Duration::from_secs(seconds)), scope: None, cause: HoldCause::Backpressure }
}

pub(super) fn uploaded() -> ResultMeta {
    ResultMeta { length: 9, inline: false }
}

/// The object behind it.
pub(super) fn object() -> Arc<Object> {
    let key = ObjectKey {
        namespace: NamespaceId(1),
        job: JobId::new(Timestamp::from_millis(BEGINNING), 1),
        epoch: 1,
        random: 1,
    };
    let (length, sha256) = (uploaded().length, [0; 32]);
    Arc::new(Object {
        key,
        role: Role::Result,
        length,
        sha256,
        content_type: None,
        filename: None,
        upload: None,
        parts: 0,
        copied_from: None,
        checksums: None,
    })
}
