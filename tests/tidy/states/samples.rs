//! Jobs in every state, each brought there by commands, and every command that can be given to them.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::gate::HoldCause;
use outlast_core::gcra::Gcra;
use outlast_core::retry::Backoff;
use outlast_core::state::{CancelReason, Phase};
use outlast_core::{
    Change, Command, Effect, Entropy, Event, Evidence, Job, JobId, Lease, NamespaceId, Outcome, Queue, QueueId,
    QueueSettings, Refusal, Spec, State, Timestamp, alarm, decide,
};
use outlast_tests::objects;

pub const SECOND: Duration = Duration::from_secs(1);

struct Counter(u64);

impl Entropy for Counter {
    fn next_u64(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// A job with its queue at some moment.
pub struct Sample {
    pub job: Job,
    pub queue: Queue,
    pub now: Timestamp,
    pub events: Vec<Event>,
    entropy: Counter,
}

impl Sample {
    pub fn published(spec: Spec, settings: QueueSettings) -> Sample {
        let now = Timestamp::from_millis(1_800_000_000_000);
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
        let mut job = Job::admit(JobId::new(now, 1), queue.id, Arc::new(spec), now);
        let events = vec![outlast_store::checked_decide::creation_event(&mut job)];
        Sample { job, queue, now, events, entropy: Counter(0) }
    }

    pub fn queued(settings: QueueSettings) -> Sample {
        Sample::published(Spec { payload: "{}".into(), ..Spec::default() }, settings)
    }

    pub fn running(phase: Phase, settings: QueueSettings) -> Sample {
        let mut sample = Sample::queued(settings);
        sample.must(Command::Claim { phase, visibility: None, worker: None });
        sample.now = sample.now.plus(SECOND);
        sample
    }

    /// Carries a command out as a store would.
    pub fn give(&mut self, command: Command) -> Result<Change, Refusal> {
        let change = decide(&self.job, &self.queue, command, self.now, &mut self.entropy)?;
        if let Change::Update(update) = &change {
            self.job = update.job.clone();
            self.events.extend(update.events.iter().cloned());
            for effect in &update.effects {
                match effect {
                    Effect::SetHold(hold) => self.queue.hold = *hold,
                    Effect::SetGcra(gcra) => self.queue.gcra = *gcra,
                    _ => {}
                }
            }
        }
        Ok(change)
    }

    pub fn must(&mut self, command: Command) -> &mut Sample {
        match self.give(command.clone()) {
            Ok(Change::Update(_)) => self,
            other => panic!("{command:?} gave {other:?}"),
        }
    }

    /// Lets time pass until its alarm rings; false when it has none.
    pub fn wait_for_alarm(&mut self) -> bool {
        let at = alarm::alarm(&self.job, &self.queue);
        self.now = at.unwrap_or(self.now);
        at.is_some()
    }

    /// The present lease, or the last one.
    pub fn lease(&self) -> Lease {
        match &self.job.state {
            State::Running(running) => running.lease,
            _ => self.job.last.map_or(Lease::from_u128(0), |last| last.lease),
        }
    }
}

/// Retries wait for a second, so that the page can tell them from those that go back at once.
pub fn settings() -> QueueSettings {
    QueueSettings { backoff: Backoff::Fixed { delay: SECOND, jitter: 0.0 }, ..QueueSettings::default() }
}

pub fn report(lease: Lease, outcome: Outcome) -> Command {
    Command::Report { lease: Some(lease), outcome, evidence: Evidence::default() }
}

pub fn nack(retryable: bool) -> Outcome {
    Outcome::Nack { retryable, delay: None }
}

type Named<T> = (&'static str, T);

/// One job per state.
pub fn states() -> Vec<Named<Sample>> {
    let leased = || Sample::running(Phase::Leased, settings());
    let ended = |outcome: Outcome| {
        let mut sample = leased();
        sample.must(report(sample.lease(), outcome));
        sample
    };
    let later = Timestamp::from_millis(1_800_000_010_000);
    let delayed = Spec { payload: "{}".into(), not_before: Some(later), ..Spec::default() };
    let mut awaiting = Sample::running(Phase::Delivering, settings());
    awaiting.must(Command::Receipt { lease: awaiting.lease() });
    let mut cancelled = leased();
    cancelled.must(Command::Cancel { reason: CancelReason::User });
    cancelled.must(report(cancelled.lease(), Outcome::Cancelled));
    let mut expired = ended(Outcome::Ack { result: Some("1".into()) });
    expired.wait_for_alarm();
    expired.must(Command::WAKE);
    vec![
        ("pending", Sample::published(delayed, settings())),
        ("queued", Sample::queued(settings())),
        ("delivering", Sample::running(Phase::Delivering, settings())),
        ("awaiting_ack", awaiting),
        ("leased", leased()),
        ("succeeded", ended(Outcome::Ack { result: Some("1".into()) })),
        ("failed", ended(nack(false))),
        ("cancelled", cancelled),
        ("expired", expired),
    ]
}

/// A running job, and others to which something has happened that changes what comes next.
pub fn circumstances() -> Vec<Named<Sample>> {
    let leased = |settings| Sample::running(Phase::Leased, settings);
    let mut asked = leased(settings());
    asked.must(Command::Cancel { reason: CancelReason::User });
    let mut uploaded = leased(settings());
    uploaded.must(Command::Finalize { lease: None, object: objects::result(1, 10) });
    vec![
        ("leased", leased(settings())),
        ("last attempt", leased(QueueSettings { max_attempts: 1, ..settings() })),
        ("cancel requested", asked),
        ("result uploaded", uploaded),
        ("no deferrals left", leased(QueueSettings { max_deferrals: 0, ..settings() })),
        ("too old to defer", leased(QueueSettings { max_age: SECOND, ..settings() })),
    ]
}

/// Makes a command for a job.
type Maker = fn(&Sample) -> Command;

/// All commands on a job, with their names on the page.
pub fn commands() -> Vec<Named<Maker>> {
    vec![
        ("claim by a puller", |_| Command::Claim { phase: Phase::Leased, visibility: None, worker: None }),
        ("claim for the webhook", |_| Command::Claim { phase: Phase::Delivering, visibility: None, worker: None }),
        ("receipt of the webhook", |sample| Command::Receipt { lease: sample.lease() }),
        ("ack", |sample| report(sample.lease(), Outcome::Ack { result: Some("1".into()) })),
        ("ack with another result", |sample| report(sample.lease(), Outcome::Ack { result: Some("2".into()) })),
        ("nack", |sample| report(sample.lease(), nack(true))),
        ("nack, not retryable", |sample| report(sample.lease(), nack(false))),
        ("defer", |sample| {
            report(
                sample.lease(),
                Outcome::Defer { retry_after: Some(SECOND), scope: None, cause: HoldCause::Backpressure },
            )
        }),
        ("release", |sample| report(sample.lease(), Outcome::Release)),
        ("cancelled", |sample| report(sample.lease(), Outcome::Cancelled)),
        ("heartbeat", |sample| Command::beat(Some(sample.lease()), None)),
        ("result uploaded", |sample| Command::Finalize { lease: Some(sample.lease()), object: objects::result(1, 10) }),
        ("report with an old lease", |_| report(Lease::from_u128(7), Outcome::Ack { result: None })),
        ("report without a lease", |_| Command::Report {
            lease: None,
            outcome: Outcome::Ack { result: None },
            evidence: Evidence::default(),
        }),
        ("cancel", |_| Command::Cancel { reason: CancelReason::User }),
        ("replay", |_| Command::Replay { fresh: false, payload: None }),
        ("server died", |_| Command::Abandon),
    ]
}
