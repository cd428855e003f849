//! What a delivery looks like on the wire. The payload goes out byte for byte as it came in.

use bytes::Bytes;
use outlast_core::queue::Mode;
use outlast_core::{Job, Queue, Running};
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
    run: u32,
    created_at: String,
    lease: String,
    lease_expires_at: String,
}

/// The body of a delivery; `None` for a payload that is no JSON, which a publish does not let in.
pub(super) fn body(job: &Job, queue: &Queue, running: &Running) -> Option<Bytes> {
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
        run: job.run,
        created_at: job.created_at.to_string(),
        lease: running.lease.to_string(),
        lease_expires_at: expires_at.to_string(),
    };
    serde_json::to_vec(&delivery).ok().map(Bytes::from)
}

/// The same for every redelivery of a run, so that a receiver can tell a repetition from something new.
pub(super) fn message_id(job: &Job) -> String {
    match job.run {
        1 => job.id.to_string(),
        run => format!("{}_{run}", job.id),
    }
}
