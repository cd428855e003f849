//! A queue and its settings: every field a user can set, its default, its range, and the rules between fields.
//! `decide`, `alarm` and `gate` implement the settings; this file only describes them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::gate::Hold;
use crate::gcra::Gcra;
use crate::ids::{NamespaceId, QueueId};
use crate::retry::{Backoff, Seconds};
use crate::time::{DURATION_MAX, Timestamp, optional_seconds, seconds};

/// A queue as stored. Every field is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub id: QueueId,
    pub namespace: NamespaceId,
    pub name: String,
    pub settings: QueueSettings,
    /// A paused queue takes jobs and hands out none.
    pub paused: bool,
    /// Backpressure in force, if any.
    pub hold: Option<Hold>,
    /// How far the rate limit is used.
    pub gcra: Gcra,
    /// Signing secrets, sealed by the engine; the store cannot read them.
    pub secrets: Option<Arc<[u8]>>,
    /// +1 on each change of settings or pause; the `ETag` of the queue.
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The webhook's answer is the outcome.
    Standard,
    /// The webhook's 2xx is a receipt; the outcome comes later by call.
    Ack,
    /// Handed out by receive.
    Pull,
    /// Each job is delivered to its own callback URL. For our own queue of callbacks; users cannot choose it.
    Callback,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Standard => "standard",
            Mode::Ack => "ack",
            Mode::Pull => "pull",
            Mode::Callback => "callback",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    Anthropic,
    Openai,
    Report,
    Transcode,
    Webhook,
}

impl Template {
    /// Makes a pull queue where neither a webhook nor a mode is given.
    pub fn may_pull(self) -> bool {
        matches!(self, Template::Report | Template::Transcode)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckTimeoutAction {
    /// Charge the attempt and try again.
    Retry,
    /// Fail the job at once.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallAction {
    Flag,
    Retry,
}

/// The scope of a hold by backpressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeferScope {
    Queue,
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dedupe {
    /// A key stays taken for its whole window.
    Always,
    /// A key is free again once its job failed, was cancelled or expired.
    UnlessFailed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupeBy {
    Key,
    /// A publish without a key is deduplicated by the hash of its payload.
    Payload,
}

impl DedupeBy {
    pub fn as_str(self) -> &'static str {
        match self {
            DedupeBy::Key => "key",
            DedupeBy::Payload => "payload",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fencing {
    /// A report without a lease acts on the present one.
    Optional,
    /// A report must name its lease.
    Required,
}

/// `limit` hand-outs per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    pub limit: u32,
    #[serde(with = "seconds")]
    pub per: Duration,
}

/// All settings, with the names they have on the wire. Unset optional ones mean "off" or "derived".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSettings {
    pub template: Option<Template>,
    pub mode: Mode,
    pub allow_pull: bool,
    pub webhook_url: Option<String>,
    pub headers: BTreeMap<String, String>,
    #[serde(with = "seconds")]
    pub webhook_timeout: Duration,
    pub max_attempts: u32,
    pub backoff: Backoff,
    #[serde(with = "seconds")]
    pub ack_timeout: Duration,
    pub ack_timeout_action: AckTimeoutAction,
    #[serde(with = "seconds")]
    pub visibility_timeout: Duration,
    #[serde(with = "optional_seconds")]
    pub heartbeat_timeout: Option<Duration>,
    #[serde(with = "seconds")]
    pub stall_timeout: Duration,
    pub stall_action: StallAction,
    #[serde(with = "optional_seconds")]
    pub soft_time_limit: Option<Duration>,
    #[serde(with = "optional_seconds")]
    pub hard_time_limit: Option<Duration>,
    #[serde(with = "optional_seconds")]
    pub job_timeout: Option<Duration>,
    pub extend_while_progressing: bool,
    /// Checkpoints and sections outlive the success of their job, until it is purged.
    pub keep_checkpoints: bool,
    #[serde(with = "seconds")]
    pub drain_timeout: Duration,
    pub max_deferrals: u32,
    #[serde(with = "seconds")]
    pub max_age: Duration,
    pub backpressure_scope: DeferScope,
    #[serde(with = "seconds")]
    pub backpressure_delay: Duration,
    pub rate_limit: Option<RateLimit>,
    /// Unset: 100 for push, unlimited for pull.
    pub concurrency: Option<u32>,
    #[serde(with = "seconds")]
    pub result_ttl: Duration,
    #[serde(with = "seconds")]
    pub retention: Duration,
    pub dedupe: Dedupe,
    /// Unset: as long as `retention`.
    #[serde(with = "optional_seconds")]
    pub dedupe_window: Option<Duration>,
    pub dedupe_by: DedupeBy,
    pub fencing: Fencing,
    pub signature_header: String,
}

impl QueueSettings {
    /// The settings that are not as in `other`, as they are called on the wire.
    pub fn differing(&self, other: &QueueSettings) -> Vec<String> {
        let (mine, theirs) = (self.members(), other.members());
        mine.into_iter().filter(|(name, value)| theirs.get(name) != Some(value)).map(|(name, _)| name).collect()
    }

    /// The same with these settings as in `other`. Names that are no settings change nothing.
    pub fn with(&self, names: &[String], other: &QueueSettings) -> QueueSettings {
        let (mut mine, theirs) = (self.members(), other.members());
        for name in names {
            if let Some(value) = theirs.get(name) {
                mine.insert(name.clone(), value.clone());
            }
        }
        serde_json::from_value(Value::Object(mine)).unwrap_or_else(|_| self.clone())
    }

    fn members(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings {
            template: None,
            mode: Mode::Pull,
            allow_pull: false,
            webhook_url: None,
            headers: BTreeMap::new(),
            webhook_timeout: Duration::from_secs(15),
            max_attempts: 5,
            backoff: Backoff::default(),
            ack_timeout: Duration::from_secs(300),
            ack_timeout_action: AckTimeoutAction::Retry,
            visibility_timeout: Duration::from_secs(30),
            heartbeat_timeout: None,
            stall_timeout: Duration::from_secs(300),
            stall_action: StallAction::Flag,
            soft_time_limit: None,
            hard_time_limit: None,
            job_timeout: None,
            extend_while_progressing: false,
            keep_checkpoints: false,
            drain_timeout: Duration::from_secs(30),
            max_deferrals: 1000,
            max_age: DAY,
            backpressure_scope: DeferScope::Queue,
            backpressure_delay: Duration::from_secs(60),
            rate_limit: None,
            concurrency: None,
            result_ttl: 7 * DAY,
            retention: 7 * DAY,
            dedupe: Dedupe::Always,
            dedupe_window: None,
            dedupe_by: DedupeBy::Key,
            fencing: Fencing::Optional,
            signature_header: "x-outlast-signature".to_owned(),
        }
    }
}

/// The ranges of single fields, inclusive. One place, read by the parser, the OpenAPI document and the tests.
pub mod range {
    use super::{DAY, DURATION_MAX, Duration, RangeInclusive};

    const SECOND: Duration = Duration::from_secs(1);
    const HALF_DAY: Duration = Duration::from_secs(12 * 3600);

    pub const WEBHOOK_TIMEOUT: RangeInclusive<Duration> = SECOND..=Duration::from_secs(60);
    pub const MAX_ATTEMPTS: RangeInclusive<u32> = 1..=20;
    pub const BACKOFF_DELAY: RangeInclusive<Duration> = Duration::ZERO..=DAY;
    pub const BACKOFF_FACTOR: RangeInclusive<f64> = 1.0..=10.0;
    pub const ACK_TIMEOUT: RangeInclusive<Duration> = SECOND..=Duration::from_secs(7 * 86_400);
    pub const VISIBILITY_TIMEOUT: RangeInclusive<Duration> = SECOND..=HALF_DAY;
    pub const HEARTBEAT_TIMEOUT: RangeInclusive<Duration> = SECOND..=DAY;
    pub const STALL_TIMEOUT: RangeInclusive<Duration> = SECOND..=DAY;
    pub const TIME_LIMIT: RangeInclusive<Duration> = SECOND..=Duration::from_secs(30 * 86_400);
    pub const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
    pub const MAX_DEFERRALS: RangeInclusive<u32> = 0..=100_000;
    pub const MAX_AGE: RangeInclusive<Duration> = SECOND..=Duration::from_secs(365 * 86_400);
    pub const BACKPRESSURE_DELAY: RangeInclusive<Duration> = Duration::ZERO..=DAY;
    pub const RATE_LIMIT: RangeInclusive<u32> = 1..=1_000_000;
    pub const RATE_LIMIT_PER: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
    pub const CONCURRENCY: RangeInclusive<u32> = 1..=100_000;
    pub const RETENTION: RangeInclusive<Duration> = SECOND..=Duration::from_secs(3650 * 86_400);
    pub const DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3650 * 86_400);
    /// `Retry-After` and `defer`: a hold is never longer than a day.
    pub const RETRY_AFTER: RangeInclusive<Duration> = Duration::ZERO..=DAY;
    pub const ANY: RangeInclusive<Duration> = Duration::ZERO..=DURATION_MAX;
}

/// Waits of the template `webhook`, in minutes: an endpoint may be away for most of a day.
const WEBHOOK_DELAYS: [u64; 6] = [1, 5, 15, 60, 4 * 60, 12 * 60];

/// Concurrency of a push queue that sets none.
pub const PUSH_CONCURRENCY_DEFAULT: u32 = 100;

/// Something wrong with one field, in words for the person who sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), message: message.into() }
    }
}

impl QueueSettings {
    /// The presets of a template; any field set afterwards wins.
    pub fn of_template(template: Template) -> QueueSettings {
        let mut settings = QueueSettings { template: Some(template), ..QueueSettings::default() };
        match template {
            Template::Anthropic => {
                settings.mode = Mode::Ack;
                settings.ack_timeout = Duration::from_secs(600);
                settings.of_model_api(50);
            }
            Template::Openai => {
                settings.mode = Mode::Ack;
                settings.ack_timeout = Duration::from_secs(300);
                settings.of_model_api(500);
            }
            Template::Report => {
                settings.mode = Mode::Ack;
                settings.ack_timeout = Duration::from_secs(3600);
                settings.visibility_timeout = Duration::from_secs(300);
                settings.max_attempts = 3;
                settings.heartbeat_timeout = Some(Duration::from_secs(120));
            }
            Template::Transcode => {
                settings.mode = Mode::Ack;
                settings.ack_timeout = Duration::from_secs(4 * 3600);
                settings.visibility_timeout = Duration::from_secs(300);
                settings.max_attempts = 3;
                settings.heartbeat_timeout = Some(Duration::from_secs(60));
                settings.concurrency = Some(4);
            }
            Template::Webhook => {
                settings.mode = Mode::Standard;
                let delays = WEBHOOK_DELAYS.map(|minutes| Seconds(Duration::from_secs(minutes * 60)));
                settings.backoff = Backoff::Schedule { delays: delays.to_vec(), jitter: 0.2 };
                // The first one, and one after each wait.
                settings.max_attempts = 7;
            }
        }
        settings
    }

    /// Presets for the API of a language model: its requests per minute in the lowest paid tier, and waits in between that
    /// suit its minute-long windows.
    fn of_model_api(&mut self, per_minute: u32) {
        self.rate_limit = Some(RateLimit { limit: per_minute, per: Duration::from_secs(60) });
        self.backoff = Backoff::Exponential {
            delay: Duration::from_secs(10),
            factor: 2.0,
            max_delay: Duration::from_secs(300),
            jitter: 0.5,
        };
    }

    pub fn is_push(&self) -> bool {
        self.mode != Mode::Pull
    }

    /// May pullers receive from this queue?
    pub fn allows_pull(&self) -> bool {
        self.mode == Mode::Pull || self.allow_pull
    }

    pub fn concurrency_limit(&self) -> Option<u32> {
        match self.concurrency {
            None if self.is_push() => Some(PUSH_CONCURRENCY_DEFAULT),
            limit => limit,
        }
    }

    pub fn dedupe_window(&self) -> Duration {
        self.dedupe_window.unwrap_or(self.retention)
    }

    /// The rules between fields; single fields were checked against [`range`] when they were read.
    pub fn problems(&self) -> Vec<FieldError> {
        let mut problems = Vec::new();
        if matches!(self.mode, Mode::Standard | Mode::Ack) && self.webhook_url.is_none() {
            problems.push(FieldError::new("webhookUrl", "is required when mode is \"standard\" or \"ack\""));
        }
        if self.mode == Mode::Pull && self.webhook_url.is_some() {
            problems.push(FieldError::new(
                "mode",
                "must be \"standard\" or \"ack\" when webhookUrl is set; add allowPull for pullers",
            ));
        }
        if self.mode == Mode::Callback && (self.webhook_url.is_some() || self.allow_pull) {
            let field = if self.allow_pull { "allowPull" } else { "webhookUrl" };
            problems.push(FieldError::new(field, "cannot be set here: each callback goes to the URL of its job"));
        }
        if let (Some(soft), Some(hard)) = (self.soft_time_limit, self.hard_time_limit)
            && soft >= hard
        {
            problems.push(FieldError::new("softTimeLimit", "must be shorter than hardTimeLimit"));
        }
        if self.dedupe_window.is_some_and(|window| window > self.retention) {
            problems.push(FieldError::new(
                "dedupeWindow",
                "must not be longer than retention, since a purged job forgets its key",
            ));
        }
        if let Backoff::Exponential { delay, max_delay, .. } = &self.backoff
            && max_delay < delay
        {
            problems.push(FieldError::new("backoff.maxDelay", "must not be shorter than backoff.delay"));
        }
        problems
    }
}

/// Longest name of a queue, in bytes.
pub const NAME_LENGTH_MAX: usize = 128;

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`. Names starting with `_` are ours and cannot be made by users.
pub fn is_name(name: &str) -> bool {
    let starts_well = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    starts_well
        && name.len() <= NAME_LENGTH_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(settings: &QueueSettings) -> Vec<String> {
        settings.problems().into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn names_follow_the_rule() {
        let long = "a".repeat(129);
        for (name, good) in [
            ("mail", true),
            ("A.b-c_9", true),
            ("9", true),
            ("", false),
            ("_own", false),
            (".x", false),
            ("a b", false),
            ("ä", false),
            (long.as_str(), false),
        ] {
            assert_eq!(is_name(name), good, "{name}");
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_named() {
        let push = QueueSettings { mode: Mode::Ack, ..QueueSettings::default() };
        let window = QueueSettings { dedupe_window: Some(DAY * 8), ..QueueSettings::default() };
        let limits =
            QueueSettings { soft_time_limit: Some(DAY), hard_time_limit: Some(DAY), ..QueueSettings::default() };

        assert_eq!(fields(&QueueSettings::default()), Vec::<String>::new());
        assert_eq!(fields(&push), ["webhookUrl"]);
        assert_eq!(fields(&window), ["dedupeWindow"]);
        assert_eq!(fields(&limits), ["softTimeLimit"]);
    }
}
