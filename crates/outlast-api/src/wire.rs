//! How things look on the wire. The hot answers are written by hand, since they are most of what the server sends; the
//! others go through `serde_json`.

mod work;

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use outlast_core::alarm::{lease_deadline, work_deadline};
use outlast_core::event::Attempt;
use outlast_core::gate::Hold;
use outlast_core::liveness::liveness;
use outlast_core::progress::ProgressReport;
use outlast_core::queue::DedupeBy;
use outlast_core::state::{Phase, Running};
use outlast_core::{Event, EventKind, Job, Progress, Queue, State, Status, Timestamp};
use outlast_engine::feeds::queue_feed::JobSummary;
use outlast_engine::feeds::stream::JobEnd;
use outlast_engine::inbound::ingest::IngestReceipt;
use outlast_engine::keys::token::JobSight;
use outlast_engine::queues::Rotated;
use outlast_engine::queues::header_values::masked;
use outlast_store::artifacts::Artifacts;
use outlast_store::checked_decide::PAYLOAD_KEY_MARK;
use outlast_store::job_detail::JobDetail;
use outlast_store::jobs::FoundJob;
use outlast_store::keys::KeyRecord;
use outlast_store::operations::Operation;
use outlast_store::page::PageSize;
use outlast_store::queues::QueueCounts;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub(crate) use work::{accepted_progress, checkpoint, checkpoint_meta, progress, section};

pub(crate) fn ok(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

pub(crate) fn json_ok(status: StatusCode, body: &Value) -> Response {
    ok(status, body.to_string())
}

fn at(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| json!(time.to_string()))
}

/// The answer to an event.
pub(crate) fn taken(taken: &IngestReceipt) -> String {
    let IngestReceipt { id, duplicate, jobs_created } = taken;
    format!("{{\"event_id\":\"{id}\",\"duplicate\":{duplicate},\"jobs_created\":{jobs_created}}}")
}

/// How a publish was accepted.
pub(crate) struct AcceptedJob {
    pub(crate) is_duplicate: bool,
    pub(crate) payload_mismatch: bool,
    pub(crate) dedupe_by: DedupeBy,
}

/// The answer to a publish. Names and states need no escaping.
pub(crate) fn published(base: &str, job: &Job, queue: &str, accepted: &AcceptedJob) -> String {
    let mut out = String::with_capacity(512);
    let (id, duplicate, dedupe_by) = (job.id, accepted.is_duplicate, accepted.dedupe_by.as_str());
    let mismatch = if accepted.payload_mismatch { ",\"payloadMismatch\":true" } else { "" };
    let _ = write!(
        out,
        "{{\"id\":\"{id}\",\"queue\":\"{queue}\",\"status\":\"{}\",\"createdAt\":\"{}\",\"statusUrl\":\"{base}/v1/jobs/{id}\",\
         \"streamUrl\":\"{base}/v1/jobs/{id}/stream\",\"cancelUrl\":\"{base}/v1/jobs/{id}/cancel\",\"duplicate\":{duplicate},\"dedupeBy\":\"{dedupe_by}\"{mismatch}}}",
        job.status(),
        job.created_at,
    );
    out
}

/// Saved work of earlier attempts in a hand-out.
#[derive(Default)]
pub(crate) struct Resume {
    /// As JSON.
    pub(crate) checkpoint: Option<String>,
    /// There is one, but of a form that the worker does not take.
    pub(crate) is_incompatible: bool,
    pub(crate) sections: Vec<Box<str>>,
}

/// Data that a job shows and that is stored elsewhere.
#[derive(Default)]
pub(crate) struct JobExtras<'a> {
    /// Put before the paths of this server.
    pub(crate) base: &'a str,
    pub(crate) progress: Option<Arc<Progress>>,
    pub(crate) moved_at: Option<Timestamp>,
    pub(crate) kept: Option<Artifacts>,
    pub(crate) result_meta: Option<Value>,
}

/// One handed-out job, as receive shows it. Names, words and times need no escaping.
pub(crate) fn leased(out: &mut String, job: &Job, queue: &Queue, resume: &Resume) {
    let State::Running(running) = &job.state else {
        return;
    };
    let _ = write!(
        out,
        "{{\"id\":\"{}\",\"queue\":\"{}\",\"mode\":\"{}\",\"lease\":\"{}\",\"leaseExpiresAt\":\"{}\",\"deadline\":",
        job.id,
        queue.name,
        queue.settings.mode.as_str(),
        running.lease,
        lease_deadline(job, queue, running),
    );
    match work_deadline(job, queue, running) {
        Some(deadline) => write!(out, "\"{deadline}\"").unwrap_or_default(),
        None => out.push_str("null"),
    }
    let _ = write!(
        out,
        ",\"attempt\":{},\"maxAttempts\":{},\"deferCount\":{},\"replays\":{},\"createdAt\":\"{}\",\"key\":{},\"tags\":",
        job.attempt,
        job.max_attempts(queue),
        job.deferrals,
        job.replays,
        job.created_at,
        json!(job.spec.key),
    );
    tags(out, &job.spec.tags);
    let _ = write!(
        out,
        ",\"heartbeatTimeout\":{},\"drainTimeout\":{},\"checkpoint\":{},\"checkpointIncompatible\":{},\"sections\":{},\
         \"softTimeLimit\":{},\"hardTimeLimit\":{},\"traceparent\":{},\"payload\":{}}}",
        seconds(job.heartbeat_timeout(queue)),
        seconds(Some(queue.settings.drain_timeout)),
        resume.checkpoint.as_deref().unwrap_or("null"),
        resume.is_incompatible,
        json!(resume.sections),
        seconds(job.soft_time_limit(queue)),
        seconds(job.hard_time_limit(queue)),
        json!(job.spec.traceparent),
        job.spec.payload,
    );
}

/// Most jobs have none.
fn tags(out: &mut String, tags: &[(Box<str>, Box<str>)]) {
    if tags.is_empty() {
        return out.push_str("{}");
    }
    let tags: Map<String, Value> = tags.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let _ = write!(out, "{}", Value::Object(tags));
}

fn seconds(duration: Option<std::time::Duration>) -> Value {
    match duration {
        None => Value::Null,
        Some(whole) if whole.subsec_nanos() == 0 => json!(whole.as_secs()),
        Some(duration) => json!(duration.as_secs_f64()),
    }
}

/// A job without payload and events, as lists show it.
pub(crate) fn job_summary(job: &Job, queue: &Queue, extras: &JobExtras<'_>, now: Timestamp) -> Map<String, Value> {
    let tags: Map<String, Value> = job.spec.tags.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    let key = job.spec.idempotency_key.as_deref().filter(|key| !key.starts_with(PAYLOAD_KEY_MARK));
    let status = job.status();
    let value = json!({
        "id": job.id.to_string(),
        "queue": queue.name,
        "status": status.as_str(),
        "replays": job.replays,
        "attempt": job.attempt,
        "maxAttempts": job.max_attempts(queue),
        "deferCount": job.deferrals,
        "version": job.version,
        "priority": job.spec.priority,
        "key": job.spec.key,
        "tags": tags,
        "idempotencyKey": key,
        "progress": extras.progress.as_deref().map(progress_json).or_else(|| whole_progress(job)),
        "checkpoint": extras.kept.as_ref().map(checkpoint_meta),
        "resultUrl": has_result(job).then(|| format!("{}/v1/jobs/{}/result", extras.base, job.id)),
        "resultMeta": extras.result_meta.clone().or_else(|| result_meta(&job.state)),
        "error": error(job),
        "lastError": job.last_error,
        "createdAt": job.created_at.to_string(),
        "queuedAt": at(job.queued_at),
        "startedAt": at(job.started_at),
        "finishedAt": at(job.finished_at()),
        "scheduledFor": at(scheduled_for(job)),
        "pendingReason": pending_reason(&job.state),
        "cancelReason": cancel_reason(&job.state),
        "callback": job.spec.callback_url.as_deref().map(|url| json!({"url": url})),
        "pipeline": null,
    });
    let Value::Object(mut map) = value else {
        return Map::new();
    };
    if let State::Running(running) = &job.state {
        add_running(&mut map, running, lease_deadline(job, queue, running));
        let word = liveness(job, queue, running, extras.moved_at, now);
        map.insert("liveness".to_owned(), json!(word.as_str()));
    }
    map
}

fn add_running(map: &mut Map<String, Value>, running: &Running, deadline: Timestamp) {
    map.insert("runningPhase".to_owned(), json!(running.phase.as_str()));
    map.insert("leaseExpiresAt".to_owned(), at(Some(deadline)));
    map.insert("lastHeartbeatAt".to_owned(), at(running.heartbeat_at));
    map.insert("cancelRequested".to_owned(), json!(running.revoke_at.is_some()));
    map.insert("worker".to_owned(), json!(running.worker));
    map.insert("stalled".to_owned(), json!(running.work.is_stalled));
}

/// The whole job: summary, payload, the last events, and its moves and attempts.
pub(crate) fn job(detail: &JobDetail, callback: Option<Value>, extras: &JobExtras<'_>, now: Timestamp) -> String {
    let FoundJob { job, queue } = &detail.found;
    let mut map = job_summary(job, queue, extras, now);
    if let Some(callback) = callback {
        map.insert("callback".to_owned(), callback);
    }
    let (moves, attempts): (Vec<&Event>, Vec<&Event>) =
        detail.moves.iter().partition(|event| matches!(event.kind, EventKind::State { .. }));
    map.insert("transitions".to_owned(), Value::Array(moves.into_iter().map(event_json).collect()));
    map.insert("attempts".to_owned(), Value::Array(attempts.into_iter().map(event_json).collect()));
    map.insert("events".to_owned(), Value::Array(detail.events.iter().map(event_json).collect()));
    let mut text = Value::Object(map).to_string();
    // The payload goes in as it came, so that big numbers are not rounded.
    text.pop();
    let _ = write!(text, ",\"payload\":{}}}", job.spec.payload);
    text
}

fn error(job: &Job) -> Value {
    match &job.state {
        State::Failed { reason, .. } => json!({"reason": reason.as_str(), "message": job.last_error}),
        _ => Value::Null,
    }
}

/// The result's metadata in the job's own row.
fn result_meta(state: &State) -> Option<Value> {
    let State::Succeeded { result: Some(result), .. } = state else {
        return None;
    };
    let content_type = result.inline.then_some("application/json");
    Some(json!({"length": result.length, "contentType": content_type}))
}

fn progress_json(said: &Progress) -> Value {
    let mut text = String::new();
    progress(&mut text, said);
    serde_json::from_str(&text).unwrap_or_default()
}

/// Work that has succeeded is done, whatever was reported of it.
fn whole_progress(job: &Job) -> Option<Value> {
    let finished_at = job.finished_at().filter(|_| matches!(job.status(), Status::Succeeded | Status::Expired))?;
    let report = ProgressReport { pct: Some(100.0), ..ProgressReport::default() };
    Some(progress_json(&Progress::restored(report, job.started_at.unwrap_or(finished_at), finished_at, None)))
}

/// The result, or what a job that was cancelled or has failed had uploaded of it.
fn has_result(job: &Job) -> bool {
    result_length(&job.state).is_some() || (job.work_summary.has_upload && job.status().is_terminal())
}

fn result_length(state: &State) -> Option<u64> {
    match state {
        State::Succeeded { result, .. } => result.as_ref().map(|result| result.length),
        _ => None,
    }
}

fn scheduled_for(job: &Job) -> Option<Timestamp> {
    match &job.state {
        State::Pending { until, .. } => Some(*until),
        _ => None,
    }
}

fn pending_reason(state: &State) -> Option<&'static str> {
    match state {
        State::Pending { reason, .. } => Some(reason.as_str()),
        _ => None,
    }
}

fn cancel_reason(state: &State) -> Option<&'static str> {
    match state {
        State::Cancelled { reason, .. } => Some(reason.as_str()),
        _ => None,
    }
}

/// The last frame of a stream: how the job has ended.
pub(crate) fn end_json(end: JobEnd) -> Value {
    json!({"type": "end", "status": end.status.as_str(), "replays": end.replays})
}

/// An event as a caller sees it; `None` where it does not.
pub(crate) fn seen_event(event: &Event, sight: JobSight) -> Option<Value> {
    match (sight, &event.kind) {
        (JobSight::Whole, _) | (JobSight::Watch { output: true }, EventKind::Output { .. }) => Some(event_json(event)),
        // Without the reason, which may tell of a worker or an error.
        (JobSight::Watch { .. }, EventKind::State { from, to, replays, .. }) => Some(json!({
            "seq": event.seq, "at": event.at.to_string(), "type": event.kind.as_str(),
            "from": from.map(Status::as_str), "to": to.as_str(), "replays": replays,
        })),
        (JobSight::Watch { .. }, _) => None,
    }
}

/// A job as one sees it who may only watch: nothing of its publisher or its worker.
pub(crate) fn watched_job(job: &Job, progress: Option<&Progress>, result: Option<&Value>) -> String {
    let shown = json!({
        "id": job.id.to_string(),
        "status": job.status().as_str(),
        "version": job.version,
        "progress": progress.map(progress_json).or_else(|| whole_progress(job)),
        "createdAt": job.created_at.to_string(),
        "startedAt": at(job.started_at),
        "finishedAt": at(job.finished_at()),
        "resultMeta": result.cloned().or_else(|| result_meta(&job.state)),
    });
    shown.to_string()
}

pub(crate) fn event_json(event: &Event) -> Value {
    let mut value = match &event.kind {
        EventKind::State { from, to, reason, replays } => {
            json!({"from": from.map(Status::as_str), "to": to.as_str(), "reason": reason.as_str(), "replays": replays})
        }
        EventKind::Attempt(attempt) => attempt_json(attempt),
        EventKind::Result { length } => json!({"length": length}),
        EventKind::Checkpoint { schema_version, section: None, length } => {
            json!({"schemaVersion": schema_version, "length": length})
        }
        EventKind::Checkpoint { section: Some(section), length, .. } => json!({"section": section, "length": length}),
        EventKind::Output { attempt, part, text } => json!({"attempt": attempt, "part": part, "text": &**text}),
        EventKind::Callback => json!({}),
        EventKind::Note { text } => json!({"text": text}),
    };
    if let Value::Object(map) = &mut value {
        map.insert("seq".to_owned(), json!(event.seq));
        map.insert("at".to_owned(), at(Some(event.at)));
        map.insert("type".to_owned(), json!(event.kind.as_str()));
    }
    value
}

fn attempt_json(attempt: &Attempt) -> Value {
    let mut shown = json!({
        "number": attempt.number,
        "phase": Phase::as_str(attempt.phase),
        "outcome": attempt.outcome.as_str(),
        "durationMs": u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
        "statusCode": attempt.status_code,
        "error": attempt.error,
        "responseExcerpt": attempt.excerpt,
    });
    if let Value::Object(map) = &mut shown
        && !attempt.usage.is_empty()
    {
        let usage = attempt.usage.iter().map(|(unit, amount)| (unit.to_string(), amount_json(*amount))).collect();
        map.insert("usage".to_owned(), Value::Object(usage));
    }
    shown
}

/// Whole amounts as whole numbers; all of them fit.
fn amount_json(amount: f64) -> Value {
    let text = amount.to_string();
    text.parse::<u64>().map_or_else(|_| json!(amount), |whole| json!(whole))
}

pub(crate) fn queue(queue: &Queue, counts: &QueueCounts) -> Value {
    let mut value = serde_json::to_value(masked(&queue.settings)).unwrap_or_default();
    if let Value::Object(map) = &mut value {
        map.insert("name".to_owned(), json!(queue.name));
        map.insert("paused".to_owned(), json!(queue.paused));
        map.insert("hold".to_owned(), queue.hold.as_ref().map_or(Value::Null, hold));
        map.insert("version".to_owned(), json!(queue.version));
        map.insert("createdAt".to_owned(), at(Some(queue.created_at)));
        map.insert("updatedAt".to_owned(), at(Some(queue.updated_at)));
        map.insert("counts".to_owned(), self::counts(counts));
    }
    value
}

/// Jobs by status.
pub(crate) fn counts(counts: &QueueCounts) -> Value {
    Status::ALL.iter().map(|status| (status.as_str().to_owned(), json!(counts.get(*status)))).collect()
}

/// A job as a line of a dashboard.
pub(crate) fn queue_feed_job(job: &JobSummary) -> Value {
    json!({
        "id": job.id.to_string(),
        "status": job.status.as_str(),
        "version": job.version,
        "attempt": job.attempt,
        "at": job.at.to_string(),
        "progress": job.progress.as_deref().map(progress_json),
    })
}

pub(crate) fn rotated(rotated: &Rotated) -> Value {
    json!({
        "queue": rotated.queue.name,
        "signingSecret": rotated.secret.expose(),
        "previousValidUntil": at(rotated.previous_until),
        "version": rotated.queue.version,
    })
}

/// The status of a job's callback.
pub(crate) fn callback(url: &str, told: Option<&FoundJob>) -> Value {
    let Some(found) = told else {
        return json!({"url": url, "status": "waiting"});
    };
    let job = &found.job;
    json!({
        "url": url,
        "id": job.id.to_string(),
        "status": job.status().as_str(),
        "attempt": job.attempt,
        "maxAttempts": job.max_attempts(&found.queue),
        "deferCount": job.deferrals,
        "lastError": job.last_error,
        "scheduledFor": at(scheduled_for(job)),
        "finishedAt": at(job.finished_at()),
    })
}

fn hold(hold: &Hold) -> Value {
    json!({
        "reason": hold.cause.as_str(),
        "until": at(Some(hold.until)),
        "probing": hold.probe.is_some(),
        "probe": hold.probe.map(|job| job.to_string()),
        "round": hold.round,
    })
}

pub(crate) fn operation(operation: &Operation) -> Value {
    json!({
        "id": operation.id.0.to_string(),
        "kind": operation.kind.as_str(),
        "queue": operation.queue_name,
        "status": operation.status.as_str(),
        "processed": operation.processed,
        "skipped": operation.skipped,
        "limit": operation.limit,
        "ratePerSecond": operation.rate_per_second,
        "createdAt": at(Some(operation.created_at)),
        "finishedAt": at(operation.finished_at),
    })
}

pub(crate) fn key(record: &KeyRecord) -> Value {
    json!({
        "id": record.id.0.to_string(),
        "prefix": format!("ol_{}", record.prefix),
        "name": record.name,
        "namespace": record.namespace_name,
        "scopes": record.scopes,
        "createdAt": at(Some(record.created_at)),
        "expiresAt": at(record.expires_at),
        "revokedAt": at(record.revoked_at),
    })
}

/// A page of a list, entry by entry: the entries are never all there as values too.
pub(crate) fn list_page(items: impl Iterator<Item = String>, next: Option<String>) -> String {
    list(items, "nextCursor", &json!(next))
}

/// The same, which is continued by another name.
pub(crate) fn list(items: impl Iterator<Item = String>, name: &str, next: &Value) -> String {
    let mut out = String::from("{\"items\":[");
    for (place, item) in items.enumerate() {
        if place > 0 {
            out.push(',');
        }
        out.push_str(&item);
    }
    let _ = write!(out, "],\"{name}\":{next}}}");
    out
}

/// The first entries that fill a page, at least one, and whether any are left out.
pub(crate) fn fill(items: impl Iterator<Item = String>) -> (Vec<String>, bool) {
    let (mut page, mut size) = (Vec::new(), PageSize::default());
    for item in items {
        if size.is_full() {
            return (page, true);
        }
        size.add(item.len());
        page.push(item);
    }
    (page, false)
}

/// JSON text as it came, for keeping.
pub(crate) fn raw(value: &RawValue) -> Arc<str> {
    value.get().into()
}
