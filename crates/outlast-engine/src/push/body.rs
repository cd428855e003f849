//! What a delivery looks like on the wire. The payload goes out byte for byte as it came in.

use std::time::Duration;

use bytes::Bytes;
use outlast_core::alarm::work_deadline;
use outlast_core::checkpoint::{Checkpoint, CheckpointData};
use outlast_core::object::digest_text;
use outlast_core::queue::Mode;
use outlast_core::{Job, Queue, Running};
use outlast_store::artifacts::Artifacts;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Delivery<'a> {
    id: String,
    queue: &'a str,
    mode: &'static str,
    payload: &'a RawValue,
    attempt: u32,
    max_attempts: u32,
    defer_count: u32,
    replays: u32,
    created_at: String,
    key: Option<&'a str>,
    tags: Tags<'a>,
    lease: String,
    lease_expires_at: String,
    /// The end of what the work may take.
    deadline: Option<String>,
    webhook_timeout: Seconds,
    heartbeat_timeout: Option<Seconds>,
    drain_timeout: Seconds,
    checkpoint: Option<Saved<'a>>,
    sections: &'a [Box<str>],
}

/// A JSON object, in the order of the publish.
struct Tags<'a>(&'a [(Box<str>, Box<str>)]);

impl Serialize for Tags<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A number; a whole one where it can be.
struct Seconds(Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => serializer.serialize_u64(self.0.as_secs()),
            _ => serializer.serialize_f64(self.0.as_secs_f64()),
        }
    }
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
pub(super) fn body(
    public_url: &str,
    job: &Job,
    (queue, running): (&Queue, &Running),
    kept: &Artifacts,
) -> Option<Bytes> {
    if queue.settings.mode == Mode::Callback {
        return Some(callback(public_url, &job.spec.payload));
    }
    // In ack mode the answer is only a receipt: the worker has the ack timeout from then on.
    let expires_at = match queue.settings.mode {
        Mode::Ack => running.began_at.plus(job.ack_timeout(queue)),
        Mode::Standard | Mode::Pull | Mode::Callback => running.expires_at,
    };
    let delivery = Delivery {
        id: job.id.to_string(),
        queue: &queue.name,
        mode: queue.settings.mode.as_str(),
        payload: serde_json::from_str(&job.spec.payload).ok()?,
        attempt: job.attempt,
        max_attempts: job.max_attempts(queue),
        defer_count: job.deferrals,
        replays: job.replays,
        created_at: job.created_at.to_string(),
        key: job.spec.key.as_deref(),
        tags: Tags(&job.spec.tags),
        lease: running.lease.to_string(),
        lease_expires_at: expires_at.to_string(),
        deadline: work_deadline(job, queue, running).map(|deadline| deadline.to_string()),
        webhook_timeout: Seconds(queue.settings.webhook_timeout),
        heartbeat_timeout: job.heartbeat_timeout(queue).map(Seconds),
        drain_timeout: Seconds(queue.settings.drain_timeout),
        checkpoint: kept.checkpoint.as_ref().map(|checkpoint| saved(public_url, job, checkpoint)),
        sections: &kept.sections,
    };
    serde_json::to_vec(&delivery).ok().map(Bytes::from)
}

/// A callback was composed when its job ended, with a path. It has either a result or the URL of one, and no text of a user
/// comes before that URL, so that the first one is ours.
fn callback(public_url: &str, payload: &str) -> Bytes {
    const RESULT_PATH: &str = "\"resultUrl\":\"/v1/";
    match public_url.is_empty() {
        true => Bytes::copy_from_slice(payload.as_bytes()),
        false => payload.replacen(RESULT_PATH, &format!("\"resultUrl\":\"{public_url}/v1/"), 1).into(),
    }
}

fn saved<'a>(public_url: &str, job: &Job, checkpoint: &'a Checkpoint) -> Saved<'a> {
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
        blob_url: object.map(|_| format!("{public_url}/v1/jobs/{}/checkpoint/blob", job.id)),
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
