//! Drawing the next call by lot. The lots are weighed so that jobs go through whole lives: published, handed out,
//! ended, retried, purged, while settings change and queues come and go.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::checkpoint::{Checkpoint, CheckpointData, Section};
use outlast_core::gate::HoldCause;
use outlast_core::queue::{AckTimeoutAction, Dedupe, DedupeBy, DeferScope, Fencing, Mode, RateLimit, StallAction};
use outlast_core::retry::{Backoff, Seconds};
use outlast_core::state::{CancelReason, Phase};
use outlast_core::system_queue::CALLBACKS;
use outlast_core::{
    Command, Directives, Evidence, Lease, Object, Outcome, Overrides, Progress, ProgressReport, QueueSettings, Role,
    Spec, Status, Timestamp,
};
use outlast_store::operations::{OperationFilter, OperationKind};
use outlast_store::queues::{ExpectedVersion, QueueDraft};
use outlast_tests::chance::Chance;
use outlast_tests::objects;

use super::plan::{Bulk, Call, Listing, Place, Range, Told, Whom};

const QUEUES: [&str; 4] = ["a", "b", "c", CALLBACKS];
const KINDS: [OperationKind; 4] =
    [OperationKind::Replay, OperationKind::Purge, OperationKind::Discard, OperationKind::Delete];

const RESULTS: [&str; 4] = [r#"{"a":1,"b":[2]}"#, r#"{"b": [2], "a": 1}"#, r#"{"a":1,"b":[3]}"#, "7"];

pub struct Draw {
    pub chance: Chance,
    pub now: Timestamp,
    /// Every lease of each job, in the order they were given.
    pub leases: Vec<Vec<Lease>>,
    /// Jobs in the order they were handed out.
    pub handed_out: Vec<usize>,
    pub operations: usize,
    pub keys: usize,
}

impl Draw {
    pub fn call(&mut self) -> Call {
        match self.chance.below(112) {
            0..=12 => Call::Pass(self.millis(3000)),
            13..=28 => self.publish(),
            29..=42 => self.claim(),
            43..=66 => Call::Apply((0..self.chance.between(1, 3)).map(|_| self.order()).collect()),
            67..=73 => Call::Sweep { limit: self.chance.between(1, 20) as usize },
            74..=77 => self.read(),
            78..=79 => Call::Jobs(self.listing()),
            80..=85 => self.manage_queue(),
            86..=87 => self.keys(),
            88..=95 => self.operate(),
            96..=102 => Call::Ingest((0..self.chance.between(1, 3)).map(|_| self.incoming()).collect()),
            103..=107 => self.clean_up(),
            _ => Call::Reopen,
        }
    }

    pub fn place(&mut self) -> Place {
        // Mostly one queue, so that its jobs meet each other.
        let namespace = usize::from(self.chance.percent(10));
        Place { namespace, queue: QUEUES[[0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3][self.chance.below(12) as usize]] }
    }

    fn publish(&mut self) -> Call {
        Call::Publish((0..self.chance.between(1, 4)).map(|_| (self.place(), self.spec())).collect())
    }

    fn incoming(&mut self) -> Told {
        let place = self.place();
        let jobs = (0..self.chance.below(3)).map(|_| (self.place().queue, self.spec())).collect();
        Told {
            namespace: place.namespace,
            source: self.either("shop", "bank"),
            // Few, so that events are repeated.
            key: self.maybe(70, |draw| format!("evt_{}", draw.chance.below(6))),
            body: ["{}", r#"{"a":1,"b":2}"#, "[3]"][self.chance.below(3) as usize],
            has_headers: self.chance.percent(50),
            jobs,
        }
    }

    fn clean_up(&mut self) -> Call {
        match self.chance.below(4) {
            0 => Call::Prune { age: self.seconds(6), limit: self.chance.between(1, 5) as usize },
            1..=2 => Call::Collect { limit: self.chance.between(1, 5) as usize },
            _ => Call::Arrivals {
                namespace: self.place().namespace,
                source: self.maybe(50, |draw| draw.either("shop", "bank")),
                limit: self.chance.between(1, 4) as usize,
            },
        }
    }

    fn claim(&mut self) -> Call {
        Call::Claim {
            place: self.place(),
            limit: self.chance.between(0, 4) as usize,
            phase: if self.chance.percent(75) { Phase::Leased } else { Phase::Delivering },
            visibility: self.maybe(30, |draw| draw.seconds(4)),
            worker: self.maybe(30, |draw| draw.chance.text(3).into()),
        }
    }

    fn spec(&mut self) -> Spec {
        let now = self.now;
        Spec {
            payload: ["{}", r#"{"a":1,"b":2}"#, r#"{"b":2, "a":1}"#, "[3]"][self.chance.below(4) as usize].into(),
            priority: [0, 0, 0, 1, -1, 100, -100][self.chance.below(7) as usize],
            not_before: self.maybe(20, |draw| now.plus(draw.millis(4000))),
            start_by: self.maybe(10, |draw| now.plus(draw.millis(6000))),
            idempotency_key: self.maybe(40, |draw| format!("k{}", draw.chance.below(4)).into()),
            key: self.maybe(30, |draw| format!("t{}", draw.chance.below(2)).into()),
            tags: match self.chance.below(4) {
                0 => vec![("x".into(), "1".into())],
                1 => vec![("x".into(), "2".into()), ("y".into(), "1".into())],
                _ => Vec::new(),
            },
            callback_url: self.maybe(25, |_| "https://example.com".into()),
            notify_email: self.maybe(5, |_| "a@example.com".into()),
            traceparent: self.maybe(5, |_| "00-1-2-3".into()),
            overrides: Overrides {
                max_attempts: self.maybe(10, |draw| draw.chance.between(1, 3) as u32),
                visibility_timeout: self.maybe(10, |draw| draw.seconds(3)),
                heartbeat_timeout: self.maybe(5, |draw| draw.seconds(3)),
                max_deferrals: self.maybe(10, |draw| draw.chance.below(2) as u32),
                result_ttl: self.maybe(10, |draw| draw.millis(2000)),
                job_timeout: self.maybe(5, |draw| draw.seconds(9)),
                ..Overrides::default()
            },
            origin: None,
        }
    }

    fn whom(&mut self) -> (Whom, Option<Lease>) {
        if self.leases.is_empty() || self.chance.percent(3) {
            return (Whom::Stranger(self.chance.below(1 << 20)), None);
        }
        // Mostly those that were handed out of late, since they are the ones that live.
        let back = self.chance.below(6) as usize;
        let job = match self.handed_out.iter().rev().nth(back) {
            Some(job) if self.chance.percent(70) => *job,
            _ => self.chance.below(self.leases.len() as u64) as usize,
        };
        let present = self.leases[job].last().copied();
        let lease = match self.chance.below(20) {
            0..=12 => present,
            13..=14 => self.leases[job].first().copied(),
            15 => Some(Lease::from_u128(77)),
            _ => None,
        };
        (Whom::Job(job), lease)
    }

    fn order(&mut self) -> (Whom, Range, Command) {
        let (whom, lease) = self.whom();
        let command = match self.chance.below(52) {
            0..=21 => Command::Report { lease, outcome: self.outcome(), evidence: self.evidence() },
            22..=23 => Command::Receipt { lease: lease.unwrap_or(Lease::from_u128(5)) },
            24..=26 => Command::beat(lease, self.maybe(50, |draw| draw.seconds(9))),
            27 => Command::Finalize {
                lease,
                object: objects::result(self.chance.below(1 << 40), self.chance.below(1 << 50)),
            },
            28..=30 => {
                Command::Cancel { reason: [CancelReason::User, CancelReason::Pipeline][self.chance.below(2) as usize] }
            }
            31..=34 => Command::Replay { fresh: self.chance.percent(50), payload: self.maybe(30, |_| "[9]".into()) },
            35..=36 => Command::Abandon,
            37..=39 => Command::WAKE,
            _ => self.work(lease),
        };
        (whom, self.range(), command)
    }

    /// Reports of a worker during its work.
    fn work(&mut self, lease: Option<Lease>) -> Command {
        let number = self.chance.below(4);
        match self.chance.below(12) {
            0..=1 => Command::Progress { lease, progress: self.progress() },
            2 => Command::Heartbeat {
                lease,
                extend: None,
                progress: Some(self.progress()),
                checkpoint: self.maybe(50, |draw| draw.checkpoint()),
            },
            3..=4 => Command::Checkpoint { lease, checkpoint: self.checkpoint(), progress: None },
            5..=7 => {
                let (name, body) = (format!("s{number}").into(), format!("[{}]", self.chance.below(9)).into());
                Command::Section { lease, section: Arc::new(Section { name, body, at: Timestamp::EPOCH }) }
            }
            8 => {
                let part = self.maybe(50, |draw| 1 + draw.chance.below(3));
                Command::Output { lease, part, text: "Once upon\u{0} a time".repeat(number as usize * 40).into() }
            }
            9..=10 => Command::Upload { lease, object: objects::result(self.chance.below(1 << 40), 0) },
            _ => Command::Direct {
                directives: Directives { checkpoint_now: number > 1, hand_over: number > 2, slow_down: number == 0 },
            },
        }
    }

    fn progress(&mut self) -> Arc<Progress> {
        let pct = self.maybe(70, |draw| draw.chance.below(101) as f64);
        let items_done = self.maybe(50, |draw| draw.chance.below(9));
        let report = ProgressReport { pct, items_done, message: Some("ö".into()), ..ProgressReport::default() };
        Arc::new(Progress::after(None, report, Timestamp::from_millis(1_800_000_000_000)))
    }

    fn checkpoint(&mut self) -> Arc<Checkpoint> {
        let data = match self.chance.below(3) {
            0 => {
                let object = objects::result(self.chance.below(1 << 40), 99);
                CheckpointData::Object(Arc::new(Object { role: Role::Checkpoint, ..Object::clone(&object) }))
            }
            number => CheckpointData::Inline(format!("{{\"at\": {number}}}").into()),
        };
        Arc::new(Checkpoint { schema_version: 3, data, at: Timestamp::EPOCH, replays: 0, attempt: 0 })
    }

    fn outcome(&mut self) -> Outcome {
        match self.chance.below(16) {
            0..=3 => Outcome::Ack { result: None },
            number @ 4..=5 => {
                let text = self.chance.text(40);
                // Few different ones, so that a repeated report has the same result now and then.
                let known = RESULTS[text.bytes().map(usize::from).sum::<usize>() % RESULTS.len()];
                Outcome::Ack { result: Some(if number == 4 { text.into() } else { known.into() }) }
            }
            6..=9 => {
                Outcome::Nack { retryable: self.chance.percent(40), delay: self.maybe(40, |draw| draw.millis(2000)) }
            }
            10..=12 => {
                // Often of the whole queue, soon over and of one cause: only then do probes find the same cause in a
                // row.
                let scope =
                    self.maybe(70, |draw| if draw.chance.percent(30) { DeferScope::Job } else { DeferScope::Queue });
                let cause = if self.chance.percent(75) { HoldCause::Circuit } else { HoldCause::Backpressure };
                Outcome::Defer { retry_after: self.maybe(80, |draw| draw.millis(1000)), scope, cause }
            }
            13..=14 => Outcome::Release,
            _ => Outcome::Cancelled,
        }
    }

    fn evidence(&mut self) -> Evidence {
        Evidence {
            status_code: self.maybe(30, |draw| draw.chance.between(100, 599) as u16),
            error: self.maybe(50, |draw| draw.chance.text(20).into()),
            // Long enough that a log outgrows whatever an engine keeps beside the job.
            excerpt: self.maybe(30, |draw| draw.chance.text(400).into()),
            usage: self.maybe(20, |draw| vec![("tokens".into(), draw.chance.below(5000) as f64)]).unwrap_or_default(),
        }
    }

    fn range(&mut self) -> Range {
        match self.chance.below(12) {
            0..=4 => Range::Everything,
            5..=9 => Range::Namespace(0),
            10 => Range::Namespace(1),
            _ => Range::Queue(self.place()),
        }
    }

    fn read(&mut self) -> Call {
        let (whom, _) = self.whom();
        let range = self.range();
        match self.chance.below(3) {
            0 => Call::Job(range, whom),
            1 => Call::Events { range, whom, after: self.chance.below(9), limit: self.chance.between(1, 9) as usize },
            _ => Call::Result(range, whom),
        }
    }

    fn listing(&mut self) -> Listing {
        let tag = |draw: &mut Draw| {
            (["x", "y"][draw.chance.below(2) as usize].to_owned(), draw.chance.between(1, 2).to_string())
        };
        Listing {
            range: self.range(),
            queue: self.maybe(40, |draw| QUEUES[draw.chance.below(4) as usize]),
            status: self.maybe(40, |draw| Status::ALL[draw.chance.below(7) as usize]),
            tags: (0..self.chance.below(3)).map(|_| tag(self)).collect(),
            key: self.maybe(20, |draw| format!("t{}", draw.chance.below(2))),
            limit: self.chance.between(1, 9) as usize,
        }
    }

    fn manage_queue(&mut self) -> Call {
        let place = self.place();
        match self.chance.below(12) {
            0..=5 => Call::SaveQueue(place, Box::new(self.queue(place)), self.expect()),
            6..=8 => Call::Pause(place, self.chance.percent(30)),
            9 => Call::DeleteQueue(place),
            10 => Call::Queue(place),
            _ => Call::Queues {
                namespace: place.namespace,
                after: self.maybe(50, |draw| QUEUES[draw.chance.below(4) as usize]),
                limit: self.chance.between(1, 3) as usize,
            },
        }
    }

    fn expect(&mut self) -> ExpectedVersion {
        match self.chance.below(6) {
            0 => ExpectedVersion::Absent,
            1 => ExpectedVersion::Version(self.chance.between(1, 4)),
            _ => ExpectedVersion::Anything,
        }
    }

    pub fn queue(&mut self, place: Place) -> QueueDraft {
        let mut settings = self.settings();
        // Users cannot choose this mode nor take it away: no job tells how a job ended that tells how one ended.
        if place.queue == CALLBACKS {
            settings.mode = Mode::Callback;
        }
        QueueDraft { settings, secrets: self.maybe(30, |draw| vec![draw.chance.below(3) as u8; 4].into()) }
    }

    fn settings(&mut self) -> QueueSettings {
        let push = self.chance.percent(15);
        QueueSettings {
            mode: if push { Mode::Ack } else { Mode::Pull },
            allow_pull: self.chance.percent(50),
            webhook_url: push.then(|| "https://example.com".to_owned()),
            webhook_timeout: self.seconds(3),
            max_attempts: self.chance.between(1, 4) as u32,
            backoff: self.backoff(),
            ack_timeout: self.seconds(4),
            ack_timeout_action: self.either(AckTimeoutAction::Dead, AckTimeoutAction::Retry),
            visibility_timeout: self.seconds(5),
            heartbeat_timeout: self.maybe(20, |draw| draw.seconds(4)),
            stall_timeout: if self.chance.percent(30) { self.seconds(3) } else { self.seconds(600) },
            stall_action: self.either(StallAction::Flag, StallAction::Retry),
            hard_time_limit: self.maybe(20, |draw| draw.seconds(6)),
            job_timeout: self.maybe(20, |draw| draw.seconds(12)),
            extend_while_progressing: self.chance.percent(50),
            keep_checkpoints: self.chance.percent(30),
            drain_timeout: self.millis(2000),
            max_deferrals: self.chance.below(4) as u32,
            max_age: self.seconds(12),
            backpressure_scope: self.either(DeferScope::Job, DeferScope::Queue),
            backpressure_delay: self.millis(1500),
            rate_limit: self
                .maybe(25, |draw| RateLimit { limit: draw.chance.between(1, 60) as u32, per: draw.seconds(3) }),
            concurrency: self.maybe(30, |draw| draw.chance.between(1, 4) as u32),
            result_ttl: self.millis(3000),
            retention: if self.chance.percent(50) { self.seconds(6) } else { self.seconds(200) },
            dedupe: self.either(Dedupe::Always, Dedupe::UnlessFailed),
            dedupe_window: self.maybe(40, |draw| draw.millis(1000)),
            dedupe_by: if self.chance.percent(20) { DedupeBy::Payload } else { DedupeBy::Key },
            fencing: if self.chance.percent(20) { Fencing::Required } else { Fencing::Optional },
            ..QueueSettings::default()
        }
    }

    fn backoff(&mut self) -> Backoff {
        let jitter = self.chance.below(101) as f64 / 100.0;
        match self.chance.below(3) {
            0 => Backoff::Fixed { delay: self.millis(2000), jitter },
            1 => Backoff::Schedule { delays: vec![Seconds(self.millis(500)), Seconds(self.millis(3000))], jitter },
            _ => Backoff::Exponential {
                delay: self.millis(1000),
                factor: self.either(2.0, 3.5),
                max_delay: self.seconds(5),
                jitter,
            },
        }
    }

    fn keys(&mut self) -> Call {
        let namespace = self.chance.below(2) as usize;
        match self.chance.below(4) {
            0 => Call::AddKey { namespace, number: self.keys },
            1 => Call::RevokeKey {
                namespace: self.maybe(50, |_| namespace),
                key: self.chance.below(self.keys as u64 + 1) as usize,
            },
            2 => Call::SealingKey(self.chance.below(100) as i64),
            _ => Call::Namespace(namespace),
        }
    }

    fn operate(&mut self) -> Call {
        // Mostly the newest one.
        let back = [0, 0, 0, 1, 2][self.chance.below(5) as usize];
        let operation = self.operations.saturating_sub(1 + back);
        let namespace = usize::from(self.chance.percent(10));
        match self.chance.below(12) {
            0..=3 => Call::StartOperation(self.bulk()),
            4..=8 => Call::AdvanceOperation { operation, limit: self.chance.between(1, 4) as usize },
            9 => Call::StopOperation { namespace, operation },
            10 => Call::CountOperation(self.bulk(), self.chance.between(1, 5) as usize),
            _ => Call::Operations { namespace, limit: self.chance.between(1, 5) as usize },
        }
    }

    fn bulk(&mut self) -> Bulk {
        let kind = KINDS[[0, 0, 0, 0, 1, 2, 2, 3][self.chance.below(8) as usize]];
        let jobs = self.leases.len() as u64;
        let now = self.now;
        Bulk {
            place: self.place(),
            kind,
            jobs: self
                .maybe(20, |draw| (0..jobs).filter(|_| draw.chance.percent(50)).map(|job| job as usize).collect()),
            filter: OperationFilter {
                key: self.maybe(20, |draw| format!("t{}", draw.chance.below(2))),
                reason: self.maybe(30, |draw| draw.either("not_retryable", "attempts_exhausted").to_owned()),
                tags: self.maybe(20, |_| ("x".to_owned(), "1".to_owned())).into_iter().collect(),
                finished_after: self.maybe(10, |_| now),
                ..OperationFilter::default()
            },
            limit: self.maybe(30, |draw| draw.chance.between(1, 4)),
        }
    }

    fn maybe<T>(&mut self, percent: u64, make: impl FnOnce(&mut Draw) -> T) -> Option<T> {
        self.chance.percent(percent).then(|| make(self))
    }

    fn either<T>(&mut self, one: T, other: T) -> T {
        if self.chance.percent(50) { one } else { other }
    }

    /// Nothing now and then, else up to `most`.
    fn millis(&mut self, most: u64) -> Duration {
        if self.chance.percent(15) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.chance.between(1, most))
    }

    fn seconds(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.chance.between(1, most * 1000))
    }
}
