//! Every body and query of the API as a table. Adding a field here makes it readable, documented and tested; what it
//! does is decided where its values are taken out.

mod work;

use std::time::Duration;

use outlast_core::dedupe::KEY_BYTES_MAX;
use outlast_core::event::{USAGE_MAX, USAGE_UNIT_BYTES_MAX, USAGE_UNITS_MAX};
use outlast_core::queue::{NAME_LENGTH_MAX, is_name, range};
use outlast_core::system_queue;

use crate::schema::{Field, Kind, Object, field, text};

pub use work::{
    CHECKPOINT, CHECKPOINT_BLOB, DIRECTIVES, FINALIZE, HEARTBEAT, HEARTBEAT_ENTRY, HEARTBEATS, LINK_PATTERN, OUTPUT,
    PROGRESS, PROGRESS_BATCH, PROGRESS_ENTRY, RESULT_NAME, SECTION_PATTERN, UPLOAD,
};

pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
/// Of a job. Keys and operations are numbered.
pub const ID_PATTERN: &str = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$";
pub const NUMBER_PATTERN: &str = "^[0-9]{1,9}$";

const fn name() -> Kind {
    Kind::Text {
        min: 1,
        max: NAME_LENGTH_MAX,
        check: is_name,
        wants: "a name (letters, digits, \".\", \"_\", \"-\", starting with a letter or digit)",
        pattern: NAME_PATTERN,
    }
}

/// System queues can be looked at, too.
const fn listed_name() -> Kind {
    Kind::Text {
        min: 1,
        max: NAME_LENGTH_MAX,
        check: |name| is_name(name) || system_queue(name).is_some(),
        wants: "the name of a queue",
        pattern: "^(_[a-z]+|[A-Za-z0-9][A-Za-z0-9._-]{0,127})$",
    }
}

const fn url() -> Kind {
    Kind::Text {
        min: 1,
        max: 2048,
        check: is_web_url,
        wants: "an http or https URL without user, password or fragment",
        pattern: "^https?://[^/?#@]+",
    }
}

const fn secret() -> Kind {
    Kind::Text {
        min: 16,
        max: 255,
        check: is_visible_ascii,
        wants: "\"whsec_\" and base64, or 16 to 255 visible ASCII characters",
        pattern: "^[!-~]+$",
    }
}

const fn lease() -> Kind {
    Kind::Text {
        min: 32,
        max: 32,
        check: is_hex,
        wants: "the lease as it was handed out (32 hexadecimal digits)",
        pattern: "^[0-9a-fA-F]{32}$",
    }
}

const fn upload_id() -> Kind {
    let wants = "the uploadId as it was given (16 hexadecimal digits)";
    Kind::Text { min: 16, max: 16, check: is_hex, wants, pattern: "^[0-9a-fA-F]{16}$" }
}

const fn media_type() -> Kind {
    let (wants, pattern) = ("a media type such as \"text/csv\"", "^[!-~][ -~]*/[ -~]*$");
    Kind::Text { min: 3, max: 255, check: is_media_type, wants, pattern }
}

const fn sha256() -> Kind {
    Kind::Text { min: 64, max: 64, check: is_hex, wants: "64 hexadecimal digits", pattern: "^[0-9a-fA-F]{64}$" }
}

const fn job_id() -> Kind {
    Kind::Text { min: 36, max: 36, check: is_job_id, wants: "a job id (UUID)", pattern: ID_PATTERN }
}

const fn idempotency_key() -> Kind {
    Kind::Text { min: 1, max: KEY_BYTES_MAX, check: is_visible_ascii, wants: "visible ASCII", pattern: "^[ -~]+$" }
}

const fn etag() -> Kind {
    let pattern = "^(\\*|(W/)?\"[0-9]{1,18}\")$";
    Kind::Text { min: 1, max: 24, check: |_| true, wants: "an ETag", pattern }
}

const fn span(range: &std::ops::RangeInclusive<Duration>) -> Kind {
    Kind::Duration { min: *range.start(), max: *range.end() }
}

const fn count(range: &std::ops::RangeInclusive<u32>) -> Kind {
    Kind::Int { min: *range.start() as i64, max: *range.end() as i64 }
}

pub(crate) fn is_media_type(text: &str) -> bool {
    let kind = text.split_once('/').map_or("", |(kind, _)| kind);
    !kind.trim().is_empty() && is_visible_ascii(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_job_id(text: &str) -> bool {
    text.parse::<outlast_core::JobId>().is_ok()
}

fn is_scope(text: &str) -> bool {
    outlast_engine::keys::scope::Scope::parse(text).is_some()
}

pub(crate) fn is_visible_ascii(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

fn is_email(text: &str) -> bool {
    let parts = text.split_once('@');
    parts.is_some_and(|(user, host)| {
        !user.is_empty()
            && host.contains('.')
            && !text.contains(char::is_whitespace)
            && !text.contains(char::is_control)
            && !host.contains('@')
    })
}

fn is_header_name(text: &str) -> bool {
    http::HeaderName::try_from(text).is_ok()
}

/// The shape only; where it leads is checked when it is called.
fn is_web_url(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else {
        return false;
    };
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let plain =
        uri.authority().is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
    scheme && plain && !text.contains('#')
}

pub const LIST_LIMIT_MAX: i64 = 200;

const WEBHOOK: &[&str] = &["standard", "ack", "pull"];
pub const BACKOFF: Object = Object {
    name: "Backoff",
    about: "How long to wait before the next attempt.",
    fields: &[
        field(
            "type",
            Kind::Word(&["exponential", "fixed", "schedule"]),
            "exponential multiplies the delay by factor each time; schedule takes the delays in order",
        ),
        field("delay", span(&range::BACKOFF_DELAY), "the first (exponential) or every (fixed) wait"),
        field(
            "factor",
            Kind::Number { min: *range::BACKOFF_FACTOR.start(), max: *range::BACKOFF_FACTOR.end() },
            "exponential: each wait is so many times the one before",
        ),
        field("maxDelay", span(&range::BACKOFF_DELAY), "exponential: no wait is longer"),
        field("jitter", Kind::Number { min: 0.0, max: 1.0 }, "share of a wait that chance may take away"),
        field(
            "delays",
            Kind::List { of: &span(&range::BACKOFF_DELAY), max: outlast_core::retry::SCHEDULE_LENGTH_MAX },
            "schedule: the waits; the last one repeats",
        ),
    ],
};
const RATE_LIMIT: Object = Object {
    name: "RateLimit",
    about: "So many hand-outs per period.",
    fields: &[
        field("limit", count(&range::RATE_LIMIT), "hand-outs per period").required(),
        field("per", span(&range::RATE_LIMIT_PER), "the period").required(),
    ],
};

const SETTINGS: [Field; 35] = [
    field(
        "template",
        Kind::Word(&["anthropic", "openai", "report", "transcode", "webhook"]),
        "presets; any field beside it wins",
    )
    .nullable(),
    field(
        "mode",
        Kind::Word(WEBHOOK),
        "standard: the webhook's answer is the outcome; ack: the outcome comes later; pull: handed out by receive",
    ),
    field("allowPull", Kind::Bool, "a push queue may be drained by pullers too"),
    field("webhookUrl", url(), "where jobs are delivered").nullable(),
    field("headers", Kind::Map { entries: 20, name_bytes: 128, value_bytes: 1024 }, "sent with each delivery"),
    field("webhookTimeout", span(&range::WEBHOOK_TIMEOUT), "how long a delivery may take"),
    field("maxAttempts", count(&range::MAX_ATTEMPTS), "charged attempts before a job is a dead letter"),
    field("backoff", Kind::Object(&BACKOFF), "waits between attempts"),
    field("ackTimeout", span(&range::ACK_TIMEOUT), "how long to wait for the outcome in ack mode"),
    field("ackTimeoutAction", Kind::Word(&["retry", "dead"]), "what a missing outcome leads to"),
    field("visibilityTimeout", span(&range::VISIBILITY_TIMEOUT), "the lease of a pull hand-out"),
    field("heartbeatTimeout", span(&range::HEARTBEAT_TIMEOUT), "a running job must heartbeat this often").nullable(),
    field("stallTimeout", span(&range::STALL_TIMEOUT), "heartbeats without progress for this long count as a stall"),
    field("stallAction", Kind::Word(&["flag", "retry"]), "what a stall leads to"),
    field("softTimeLimit", span(&range::TIME_LIMIT), "per attempt; tells the worker").nullable(),
    field("hardTimeLimit", span(&range::TIME_LIMIT), "per attempt; ends it").nullable(),
    field("jobTimeout", span(&range::TIME_LIMIT), "over all attempts, from the first hand-out").nullable(),
    field("extendWhileProgressing", Kind::Bool, "jobTimeout moves on while progress moves"),
    field("keepCheckpoints", Kind::Bool, "checkpoints and sections stay after success, until the job is purged"),
    field("drainTimeout", span(&range::DRAIN_TIMEOUT), "time to stop after a cancel request"),
    field("maxDeferrals", count(&range::MAX_DEFERRALS), "free deferrals before a job fails"),
    field("maxAge", span(&range::MAX_AGE), "age beyond which a deferred job fails"),
    field("backpressureScope", Kind::Word(&["queue", "job"]), "what an answer of 429, 503 or 529 holds"),
    field("backpressureDelay", span(&range::BACKPRESSURE_DELAY), "the hold when no time was given"),
    field("rateLimit", Kind::Object(&RATE_LIMIT), "hand-outs over time").nullable(),
    field("concurrency", count(&range::CONCURRENCY), "jobs running at once").nullable(),
    field("resultTtl", span(&range::RETENTION), "how long results are kept"),
    field("retention", span(&range::RETENTION), "how long finished jobs are kept"),
    field("dedupe", Kind::Word(&["always", "unless_failed"]), "when an idempotency key is free again"),
    field("dedupeWindow", span(&range::RETENTION), "how long a key is remembered; as retention if unset").nullable(),
    field("dedupeBy", Kind::Word(&["key", "payload"]), "payload: publishes without a key are compared by payload"),
    field("fencing", Kind::Word(&["optional", "required"]), "whether a report must name its lease"),
    field(
        "signatureHeader",
        Kind::Text {
            min: 1,
            max: 64,
            check: is_header_name,
            wants: "a header name",
            pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
        },
        "name of the plain HMAC header",
    ),
    field("signingSecret", secret(), "signs deliveries; made by the server if left out, and shown once"),
    field("name", name(), "the queue's name"),
];

/// The same where no URL has the name.
const SETTINGS_AND_NAME: [Field; 35] = {
    let mut fields = SETTINGS;
    // The name is the last field.
    let [.., name] = &mut fields;
    name.required = true;
    fields
};

/// All settings; `name` is optional since the URL has it.
pub const QUEUE: Object = Object {
    name: "QueueSettings",
    about: "Settings of a queue; what is left out has its default.",
    fields: &SETTINGS,
};
pub const QUEUE_NEW: Object =
    Object { name: "NewQueue", about: "A queue to be created: a name, and settings.", fields: &SETTINGS_AND_NAME };
pub const QUEUE_PATCH: Object =
    Object { name: "QueuePatch", about: "Settings to change; what is left out stays.", fields: &SETTINGS };

pub const ROTATE: Object = Object {
    name: "RotateSecret",
    about: "A new signing secret beside the present one.",
    fields: &[
        field("signingSecret", secret(), "the new one; made by the server if left out"),
        field("overlap", span(&OVERLAP), "how long the present one still signs; one day if left out"),
    ],
};
const OVERLAP: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);

const JOB: [Field; 20] = [
    field("payload", Kind::Any, "any JSON, delivered byte for byte"),
    field("idempotencyKey", idempotency_key(), "one job per key inside the queue's window"),
    field("delay", span(&range::DELAY), "not before this much time has passed"),
    field("runAt", Kind::Time, "not before this time"),
    field("priority", Kind::Int { min: -100, max: 100 }, "higher goes first"),
    field("key", text(128), "fair-share key, a tenant say"),
    field("tags", Kind::Map { entries: 16, name_bytes: 64, value_bytes: 256 }, "for lists"),
    field("callbackUrl", url(), "gets a POST when the job ends"),
    field(
        "notifyEmail",
        Kind::Text { min: 3, max: 254, check: is_email, wants: "an e-mail address", pattern: "^[^@\\s]+@[^@\\s]+$" },
        "reserved: refused until mail can be configured",
    ),
    field("maxAttempts", count(&range::MAX_ATTEMPTS), "instead of the queue's"),
    field("visibilityTimeout", span(&range::VISIBILITY_TIMEOUT), "instead of the queue's"),
    field("ackTimeout", span(&range::ACK_TIMEOUT), "instead of the queue's"),
    field("heartbeatTimeout", span(&range::HEARTBEAT_TIMEOUT), "instead of the queue's"),
    field("softTimeLimit", span(&range::TIME_LIMIT), "instead of the queue's"),
    field("hardTimeLimit", span(&range::TIME_LIMIT), "instead of the queue's"),
    field("jobTimeout", span(&range::TIME_LIMIT), "instead of the queue's"),
    field("maxDeferrals", count(&range::MAX_DEFERRALS), "instead of the queue's"),
    field("maxAge", span(&range::MAX_AGE), "instead of the queue's"),
    field("resultTtl", span(&range::RETENTION), "instead of the queue's"),
    field("startBy", Kind::Time, "not started by then: cancelled"),
];

pub const PUBLISH: Object = Object { name: "NewJob", about: "A job to be published.", fields: &JOB };
pub const PUBLISH_BATCH: Object = Object {
    name: "NewJobBatch",
    about: "Jobs to be published in one durable commit.",
    fields: &[field(
        "jobs",
        Kind::List { of: &Kind::Entry(&PUBLISH), max: usize::MAX },
        "the jobs, each as in a single publish",
    )
    .required()],
};

/// Of a call that may wait for something to happen.
const WAIT: Kind = Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(30) };

const RECEIVE_BATCH: Field = field("batch", Kind::Int { min: 1, max: 100 }, "how many at most; 1 if unset");
const RECEIVE_WAIT: Field = field("wait", WAIT, "how long to wait for the first one");
const RECEIVE_LEASE: Field =
    field("visibilityTimeout", span(&range::VISIBILITY_TIMEOUT), "the lease, instead of the queue's");
const WORKER: Field = field("worker", text(128), "who asks; shown with the job");
const AGENT: Object = Object {
    name: "Agent",
    about: "The program that asks.",
    fields: &[
        field("host", text(255), "where it runs"),
        field("pid", Kind::Int { min: 0, max: u32::MAX as i64 }, "its process"),
        field("sdk", text(128), "what it is made with, like outlast-python/0.1.0"),
    ],
};
const WORKER_AGENT: Field = field("agent", Kind::Object(&AGENT), "the program of the worker; shown with the worker");
const ACCEPTS_SCHEMA: Field = field(
    "acceptsSchema",
    Kind::List { of: &Kind::Int { min: 0, max: u32::MAX as i64 }, max: 32 },
    "schemaVersions of checkpoints that the worker can go on from; any if unset",
);

pub const RECEIVE_QUEUE: Object = Object {
    name: "ReceiveQueue",
    about: "One of the queues to hand out from.",
    fields: &[
        field("name", name(), "the queue").required(),
        field("weight", Kind::Int { min: 1, max: 1000 }, "how often it is asked first, beside the others; 1 if unset"),
    ],
};
pub const RECEIVE_SEVERAL: Object = Object {
    name: "ReceiveSeveralRequest",
    about: "Which jobs of several queues to hand out.",
    fields: &[
        field("queues", Kind::List { of: &Kind::Entry(&RECEIVE_QUEUE), max: RECEIVE_QUEUES_MAX }, "1 to 100 queues")
            .required(),
        RECEIVE_BATCH,
        RECEIVE_WAIT,
        RECEIVE_LEASE,
        WORKER,
        WORKER_AGENT,
        ACCEPTS_SCHEMA,
    ],
};
const RECEIVE_QUEUES_MAX: usize = 100;

pub const WAITED_JOB: Object = Object {
    name: "WaitedJob",
    about: "A job, and the version of it that is known.",
    fields: &[
        field("id", job_id(), "the job").required(),
        field("version", Kind::Int { min: 0, max: i64::MAX }, "the version already seen; 0 if unset"),
    ],
};
pub const JOBS_WAIT: Object = Object {
    name: "JobsWait",
    about: "Jobs to wait for.",
    fields: &[
        field("jobs", Kind::List { of: &Kind::Entry(&WAITED_JOB), max: 1000 }, "1 to 1,000 jobs").required(),
        field("wait", WAIT, "how long to wait for a newer version of any of them"),
    ],
};

pub const RECEIVE: Object = Object {
    name: "ReceiveRequest",
    about: "Which jobs to hand out.",
    fields: &[RECEIVE_BATCH, RECEIVE_WAIT, RECEIVE_LEASE, WORKER, WORKER_AGENT, ACCEPTS_SCHEMA],
};

const RESULT: Field = field("result", Kind::Any, "any JSON, kept as the job's result");
const USAGE_AMOUNTS: Kind =
    Kind::Amounts { entries: USAGE_UNITS_MAX, name_bytes: USAGE_UNIT_BYTES_MAX, max: USAGE_MAX };
const USAGE: Field =
    field("usage", USAGE_AMOUNTS, "what the attempt used, by unit, as {\"tokens\": 1234}; kept with the attempt");
const LEASE: Field = field("lease", lease(), "as handed out; also as header x-outlast-lease");
const RETRYABLE: Field = field("retryable", Kind::Bool, "false makes it a dead letter at once");
const REASON: Field = field("reason", text(1024), "what went wrong, for people");
const NACK_DELAY: Field = field("delay", span(&range::BACKOFF_DELAY), "instead of the backoff");
const RETRY_AFTER: Field =
    field("retryAfter", span(&range::RETRY_AFTER), "when to come back; the queue's backpressureDelay if unset");
const SCOPE: Field = field("scope", Kind::Word(&["queue", "job"]), "what to hold; only the job if unset");

pub const ACK: Object = Object { name: "Ack", about: "The work is done.", fields: &[RESULT, USAGE, LEASE] };
pub const NACK: Object =
    Object { name: "Nack", about: "The work failed.", fields: &[RETRYABLE, REASON, NACK_DELAY, USAGE, LEASE] };
pub const DEFER: Object =
    Object { name: "Defer", about: "Not now; no attempt is charged.", fields: &[RETRY_AFTER, SCOPE, REASON, LEASE] };
pub const RELEASE: Object = Object { name: "Release", about: "Handed back at once, free.", fields: &[LEASE] };
pub const CONFIRM: Object =
    Object { name: "CancelConfirmed", about: "A requested cancel was carried out.", fields: &[LEASE] };
pub const OUTCOME: Object = Object {
    name: "OutcomeEntry",
    about: "One outcome of a batch: the job, its lease, and the fields of that outcome.",
    fields: &[
        field("id", job_id(), "the job").required(),
        field("outcome", Kind::Word(&["ack", "nack", "defer", "release", "cancelled"]), "what happened").required(),
        LEASE,
        RESULT,
        USAGE,
        RETRYABLE,
        REASON,
        NACK_DELAY,
        RETRY_AFTER,
        SCOPE,
    ],
};
pub const OUTCOMES: Object = Object {
    name: "OutcomeBatch",
    about: "Outcomes of several jobs, each on its own, one durable commit.",
    fields: &[field("outcomes", Kind::List { of: &Kind::Entry(&OUTCOME), max: 1000 }, "the outcomes").required()],
};

pub const REPLAY: Object = Object {
    name: "Replay",
    about: "Starts a failed or cancelled job again.",
    fields: &[field("fresh", Kind::Bool, "forget what was saved before"), field("payload", Kind::Any, "a new payload")],
};
const DEAD_FILTER: Object = Object {
    name: "DeadFilter",
    about: "Which dead letters to take; all conditions must hold.",
    fields: &[
        field("tags", Kind::Map { entries: 16, name_bytes: 64, value_bytes: 256 }, "all of these tags"),
        field("key", text(128), "this fair-share key"),
        field(
            "reason",
            Kind::Word(&[
                "attempts_exhausted",
                "not_retryable",
                "ack_timeout",
                "deferral_exhausted",
                "max_age_exceeded",
                "set_aside",
            ]),
            "why it failed",
        ),
        field("finishedAfter", Kind::Time, "failed at or after"),
        field("finishedBefore", Kind::Time, "failed before"),
    ],
};
pub const DEAD_REPLAY: Object = Object {
    name: "DeadReplay",
    about: "Replays dead letters in bulk; everything if nothing is given.",
    fields: &[
        field("ids", Kind::List { of: &job_id(), max: 1000 }, "only these jobs"),
        field("filter", Kind::Object(&DEAD_FILTER), "only jobs like this"),
        field("limit", Kind::Int { min: 1, max: 1_000_000_000 }, "stop after so many"),
        field("ratePerSecond", Kind::Int { min: 1, max: 100_000 }, "not faster than this"),
        field("dryRun", Kind::Bool, "only count"),
    ],
};

pub const KEY: Object = Object {
    name: "NewKey",
    about: "A key to be made.",
    fields: &[
        field("name", text(128), "what it is for").required(),
        field("scopes", Kind::List { of: &Kind::Text { min: 1, max: 160, check: is_scope, wants: "a scope (publish, consume, read, manage or admin; all but admin optionally with \":queue\")", pattern: "^(admin|(publish|consume|read|manage)(:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?)$" }, max: 32 }, "what it may do").required(),
        field("namespace", name(), "another namespace than the caller's; operators only"),
        field("expiresIn", Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(3650 * 86_400) }, "when it stops working; never if unset"),
    ],
};

pub const TOKEN: Object = Object {
    name: "NewToken",
    about: "A token to one job: it can be given to a browser, which must not have a key.",
    fields: &[
        field(
            "can",
            Kind::List { of: &Kind::Word(&["read", "watch", "output", "cancel", "download"]), max: 5 },
            "what its holder may do",
        )
        .required(),
        field(
            "expiresIn",
            Kind::Duration { min: Duration::from_secs(1), max: Duration::from_secs(7 * 86_400) },
            "when it stops working, at the latest with the key; one hour if unset",
        ),
    ],
};

pub const ADVANCE_CLOCK: Object = Object {
    name: "AdvanceClock",
    about: "How far to move the clock.",
    fields: &[field("advance", span(&CLOCK_JUMP), "so much time passes").required()],
};
const CLOCK_JUMP: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(36_500 * 86_400);

pub const SIMPLE_IDS: Object = Object {
    name: "SimpleIds",
    about: "Messages by id or receipt.",
    fields: &[field(
        "ids",
        // Any text: what is neither a job nor a receipt simply does not count.
        Kind::List { of: &text(80), max: 1000 },
        "job ids or receipts",
    )
    .required()],
};

const LIMIT: Field = field("limit", Kind::Int { min: 1, max: LIST_LIMIT_MAX }, "entries per page; 50 if unset");
const CURSOR: Field = field("cursor", text(256), "nextCursor of the page before");

pub const PAGE: &[Field] = &[LIMIT, CURSOR];
/// A list that shows its newest entries only.
pub const NEWEST: &[Field] = &[LIMIT];
pub const LIST_JOBS: &[Field] = &[
    LIMIT,
    CURSOR,
    field("queue", listed_name(), "only this queue"),
    field(
        "status",
        Kind::Word(&["pending", "queued", "running", "succeeded", "failed", "cancelled", "expired"]),
        "only this status",
    ),
    field("key", text(128), "only this fair-share key"),
    field("tag.*", text(256), "only jobs with this tag"),
];
pub const LIST_EVENTS: &[Field] =
    &[LIMIT, CURSOR, field("source", text(64), "only of this source"), field("type", text(255), "only of this type")];
pub const REPLAY_EVENT: Object = Object {
    name: "ReplayEvent",
    about: "New jobs of a stored event.",
    fields: &[field("queue", name(), "only in this queue; in all that take it if left out")],
};
pub const EVENT_HEADERS: &[Field] =
    &[field("Idempotency-Key", idempotency_key(), "your own id of the event; a second one with it changes nothing")];
pub const JOB_WAIT: &[Field] = &[
    field("wait", WAIT, "long poll: how long to wait for a newer version"),
    field("version", Kind::Int { min: 0, max: i64::MAX }, "long poll: the version already seen"),
];
pub const EVENTS: &[Field] = &[
    field("after", Kind::Int { min: 0, max: i64::MAX }, "only events after this one"),
    field("limit", Kind::Int { min: 1, max: 1000 }, "entries per page; 50 if unset"),
];
pub const STREAM: &[Field] =
    &[field("after", Kind::Int { min: 0, max: i64::MAX }, "only events after this one; as the header Last-Event-ID")];
pub const SOCKET: &[Field] = &[field("after", Kind::Int { min: 0, max: i64::MAX }, "only events after this one")];
pub const REVOKE_KEY: &[Field] = &[field("force", Kind::Bool, "also the last admin key of its namespace")];
pub const DELETE_QUEUE: &[Field] = &[field("force", Kind::Bool, "delete its jobs too")];
pub const MESSAGES: &[Field] = &[
    field("wait", WAIT, "how long to wait for the first one"),
    field("batch", Kind::Int { min: 1, max: 100 }, "how many at most; 1 if unset"),
];
pub const NOTHING: &[Field] = &[];

/// Headers with a meaning of ours. They are read where they are used; here they are only described.
pub const PUBLISH_HEADERS: &[Field] = &[
    field("Idempotency-Key", idempotency_key(), "as the field idempotencyKey"),
    field(
        "Prefer",
        text(256),
        "wait=10 holds the answer until the job is finished, at most so many seconds, at most 30",
    ),
    field("traceparent", text(256), "W3C trace context, stored with the job and sent on with each hand-out"),
];
pub const STREAM_HEADERS: &[Field] = &[field(
    "Last-Event-ID",
    Kind::Int { min: 0, max: i64::MAX },
    "the id of the last event that was seen: the stream goes on after it; wins over after",
)];
pub const LEASE_HEADERS: &[Field] = &[field("x-outlast-lease", lease(), "as the field lease")];
pub const SEEN_HEADERS: &[Field] =
    &[field("If-None-Match", etag(), "the ETag of the job as it was read; 304 when it is the same")];
pub const MATCH_HEADERS: &[Field] = &[
    field("If-Match", etag(), "the ETag of the queue as it was read; 412 when it has changed since"),
    field("If-None-Match", Kind::Word(&["*"]), "* makes it an error if the queue exists"),
];

/// The body of routes that need none: an empty object is accepted too.
pub const EMPTY: Object = Object { name: "Empty", about: "Nothing.", fields: NOTHING };
