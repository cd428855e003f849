//! The bodies that a worker sends: heartbeats, progress, checkpoints, output, uploads.

use outlast_core::queue::range;

use super::{LEASE, WAIT, job_id, media_type, sha256, span, upload_id};
use crate::schema::{Field, Kind, Object, field, text};

const EXTEND: Field =
    field("extend", span(&range::VISIBILITY_TIMEOUT), "the lease from now on; as it was given if left out");
const BEAT_PROGRESS: Field = field("progress", Kind::Object(&REPORT), "how far the work is");
const BEAT_CHECKPOINT: Field =
    field("checkpoint", Kind::Object(&SAVED), "where to go on from; kept in the same transaction");
const ID: Field = field("id", job_id(), "the job").required();
/// Of a worker with many jobs.
const BATCH_MAX: usize = 1000;

pub const HEARTBEAT: Object = Object {
    name: "Heartbeat",
    about: "Still at work: the lease is extended.",
    fields: &[EXTEND, BEAT_PROGRESS, BEAT_CHECKPOINT, LEASE],
};
pub const HEARTBEAT_ENTRY: Object = Object {
    name: "HeartbeatEntry",
    about: "One heartbeat of many: the job, its lease, and what a heartbeat carries.",
    fields: &[
        ID,
        EXTEND,
        BEAT_PROGRESS,
        BEAT_CHECKPOINT,
        LEASE,
        field(
            "seen",
            Kind::List { of: &Kind::Word(&["cancel", "checkpoint_now", "hand_over", "slow_down"]), max: 4 },
            "the directives that the worker knows of; others end the wait",
        ),
    ],
};
pub const HEARTBEATS: Object = Object {
    name: "HeartbeatBatch",
    about: "Heartbeats of a worker with many jobs, each on its own, one durable commit.",
    fields: &[
        field("heartbeats", Kind::List { of: &Kind::Entry(&HEARTBEAT_ENTRY), max: BATCH_MAX }, "the heartbeats")
            .required(),
        field("wait", WAIT, "how long to wait for directives that were not seen; the leases are renewed first"),
    ],
};

const PERCENT: Kind = Kind::Number { min: 0.0, max: 100.0 };
const ITEMS: Kind = Kind::Int { min: 0, max: 1 << 53 };
const PCT: Field = field("pct", PERCENT, "how much is done; worked out from items or stages if left out");
const STAGE: Field = field("stage", text(128), "what is being done");
const STAGE_PCT: Field = field("stagePct", PERCENT, "how much of the stage is done");
const STAGES_DONE: Field = field("stagesDone", ITEMS, "stages that are done");
const STAGES_TOTAL: Field = field("stagesTotal", ITEMS, "stages there are");
const ITEMS_DONE: Field = field("itemsDone", ITEMS, "items that are done");
const ITEMS_TOTAL: Field = field("itemsTotal", ITEMS, "items there are");
const MESSAGE: Field = field("message", text(1024), "a line for people");

const REPORT: Object = Object {
    name: "ProgressReport",
    about: "How far the work is. Numbers never go back within an attempt.",
    fields: &[PCT, STAGE, STAGE_PCT, STAGES_DONE, STAGES_TOTAL, ITEMS_DONE, ITEMS_TOTAL, MESSAGE],
};
pub const PROGRESS: Object = Object {
    name: "NewProgress",
    about: "How far the work is, from its worker.",
    fields: &[PCT, STAGE, STAGE_PCT, STAGES_DONE, STAGES_TOTAL, ITEMS_DONE, ITEMS_TOTAL, MESSAGE, LEASE],
};
pub const PROGRESS_ENTRY: Object = Object {
    name: "ProgressEntry",
    about: "One report of many: the job, its lease, and how far it is.",
    fields: &[ID, PCT, STAGE, STAGE_PCT, STAGES_DONE, STAGES_TOTAL, ITEMS_DONE, ITEMS_TOTAL, MESSAGE, LEASE],
};
pub const PROGRESS_BATCH: Object = Object {
    name: "ProgressBatch",
    about: "Progress of many jobs from one worker, each on its own.",
    fields: &[
        field("reports", Kind::List { of: &Kind::Entry(&PROGRESS_ENTRY), max: BATCH_MAX }, "the reports").required()
    ],
};
const SCHEMA_VERSION: Field = field(
    "schemaVersion",
    Kind::Int { min: 0, max: u32::MAX as i64 },
    "the worker's own number for the form of the data",
);
const DATA: Field = field("data", Kind::Any, "any JSON; the next attempt gets it byte for byte");
const SAVED: Object = Object {
    name: "SavedCheckpoint",
    about: "Where the next attempt goes on from.",
    fields: &[SCHEMA_VERSION.required(), DATA.required()],
};
pub const CHECKPOINT: Object = Object {
    name: "NewCheckpoint",
    about: "Where the next attempt goes on from, kept together with its progress.",
    fields: &[
        SCHEMA_VERSION.required(),
        DATA.required(),
        field("progress", Kind::Object(&REPORT), "how far the work is with this checkpoint"),
        LEASE,
    ],
};
pub const OUTPUT: Object = Object {
    name: "NewOutput",
    about: "Text for those who watch: an LLM's tokens, a line of a log.",
    fields: &[
        field("text", text(OUTPUT_TEXT_MAX), "appended to the job's log as it is").required(),
        field(
            "part",
            Kind::Int { min: 1, max: 1 << 53 },
            "1, 2, 3 and so on in each hand-out: a part that is sent again is appended once",
        ),
        LEASE,
    ],
};
const OUTPUT_TEXT_MAX: usize = 16 << 10;
pub const DIRECTIVES: Object = Object {
    name: "Directives",
    about: "Directives for the worker's next heartbeats; they replace earlier ones.",
    fields: &[field(
        "directives",
        Kind::List { of: &Kind::Word(&["checkpoint_now", "hand_over", "slow_down"]), max: 3 },
        "what to ask for; none ends it",
    )
    .required()],
};
const FILENAME: Field = field("filename", text(1024), "suggested file name of the download; sanitised first");
pub const UPLOAD: Object = Object {
    name: "NewUpload",
    about: "A result that its worker uploads by links.",
    fields: &[
        FILENAME,
        field("contentType", media_type(), "sent with every download"),
        field("parts", Kind::Int { min: 1, max: 1000 }, "in how many parts at most it will come; 1 if unset"),
        LEASE,
    ],
};
const PART: Object = Object {
    name: "Part",
    about: "A part that was uploaded.",
    fields: &[
        field("number", Kind::Int { min: 1, max: 1000 }, "from 1 on").required(),
        field("etag", text(256), "as the object store answered").required(),
    ],
};
pub const FINALIZE: Object = Object {
    name: "Finalize",
    about: "An upload is complete; it becomes the result if it is what is said here.",
    fields: &[
        field("uploadId", upload_id(), "which upload").required(),
        field("length", Kind::Int { min: 0, max: i64::MAX }, "how many bytes there must be"),
        field("sha256", sha256(), "what their digest must be"),
        field("parts", Kind::List { of: &Kind::Object(&PART), max: 1000 }, "of an upload in parts"),
        LEASE,
    ],
};
pub const RESULT_NAME: &[Field] = &[FILENAME];
pub const CHECKPOINT_BLOB: &[Field] = &[SCHEMA_VERSION.required()];
/// Sealed, so there is nothing to see in it.
pub const LINK_PATTERN: &str = "^[A-Za-z0-9_-]{1,512}$";
/// The name of a section is part of the URL.
pub const SECTION_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$";
