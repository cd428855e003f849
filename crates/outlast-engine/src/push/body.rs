//! What a delivery looks like on the wire. The payload goes out byte for byte as it came in.

use bytes::Bytes;
use outlast_core::checkpoint::{Checkpoint, CheckpointData};
use outlast_core::object::digest_text;
use outlast_core::queue::Mode;
use outlast_core::{Job, Queue, Running};
use outlast_store::artifacts::Artifacts;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Delivery<'a> {
    id: String,
    queue: &'a str,
    payload: &'a RawValue,
    attempt: u32,
    max_attempts: u32,
    defer_count: u32,
    replays: u32,
    created_at: String,
    lease: String,
    lease_expires_at: String,
    checkpoint: Option<Saved<'a>>,
    sections: &'a [Box<str>],
}

/// The checkpoint of an earlier attempt, in the form that reading it has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved<'a> {
    schema_version: u32,
    data: Option<&'a RawValue>,
    length: u64,
    at: String,
    replays: u32,
    attempt: u32,
    blob_url: Option<String>,
    sha256: Option<String>,
}

/// The body of a delivery; `None` for a payload that is no JSON, which a publish does not let in.
pub(super) fn body(job: &Job, queue: &Queue, running: &Running, kept: &Artifacts) -> Option<Bytes> {
    if queue.settings.mode == Mode::Callback {
        return Some(Bytes::copy_from_slice(job.spec.payload.as_bytes()));
    }
    // In ack mode the answer is only a receipt: the worker has the ack timeout from then on.
    let expires_at = match queue.settings.mode {
        Mode::Ack => running.began_at.plus(job.ack_timeout(queue)),
        Mode::Standard | Mode::Pull | Mode::Callback => running.expires_at,
    };
    let delivery = Delivery {
        id: job.id.to_string(),
        queue: &queue.name,
        payload: serde_json::from_str(&job.spec.payload).ok()?,
        attempt: job.attempt,
        max_attempts: job.max_attempts(queue),
        defer_count: job.deferrals,
        replays: job.replays,
        created_at: job.created_at.to_string(),
        lease: running.lease.to_string(),
        lease_expires_at: expires_at.to_string(),
        checkpoint: kept.checkpoint.as_ref().map(|checkpoint| saved(job, checkpoint)),
        sections: &kept.sections,
    };
    serde_json::to_vec(&delivery).ok().map(Bytes::from)
}

fn saved<'a>(job: &Job, checkpoint: &'a Checkpoint) -> Saved<'a> {
    let (data, object) = match &checkpoint.data {
        CheckpointData::Inline(text) => (serde_json::from_str(text).ok(), None),
        CheckpointData::Object(object) => (None, Some(object)),
    };
    Saved {
        schema_version: checkpoint.schema_version,
        data,
        length: checkpoint.length(),
        at: checkpoint.at.to_string(),
        replays: checkpoint.replays,
        attempt: checkpoint.attempt,
        blob_url: object.map(|_| format!("/v1/jobs/{}/checkpoint/blob", job.id)),
        sha256: object.map(|object| digest_text(&object.sha256)),
    }
}

/// The same for every redelivery until the job is replayed, so that a receiver can tell a repetition from something new.
pub(super) fn message_id(job: &Job) -> String {
    match job.replays {
        0 => job.id.to_string(),
        replays => format!("{}_{replays}", job.id),
    }
}
