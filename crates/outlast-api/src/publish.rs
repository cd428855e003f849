//! `POST /v1/queues/{queue}/jobs` and its batch form.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::header::{ETAG, HeaderName, LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use outlast_core::dedupe::KEY_BYTES_MAX;
use outlast_core::{Job, NamespaceId, Overrides, Spec, Timestamp};
use outlast_engine::jobs::long_poll::Until;
use outlast_engine::keys::scope::Word;
use outlast_store::jobs::{FoundJob, NewJob, Published, Reach};
use serde_json::{Value as Json, json};

use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::{Value, Values, read_raw};
use crate::wire::{self, AcceptedJob};
use crate::{fields, jobs};

/// Longest wait of `Prefer: wait`.
const PREFER_WAIT_MAX: Duration = Duration::from_secs(30);
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(crate) async fn one(mut request: RequestContext) -> Result<Response, Problem> {
    let queue: Arc<str> = request.queue_to_publish()?.into();
    let namespace = request.caller()?.namespace;
    let spec = spec(request.read(&fields::PUBLISH)?, &request)?;
    let wait = preferred_wait(&request);
    let new = NewJob { namespace, queue: Arc::clone(&queue), spec: Arc::new(spec) };
    let published = request.rooms.jobs.publish(vec![new]).await?.pop();
    let (mut job, accepted) = created(published, &queue)?;
    let mut status = if accepted.is_duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
    if let Some(wait) = wait
        && let Some(found) = finished(&mut request, namespace, &job, wait).await.map_err(Problem::after_commit)?
    {
        // The whole job is for those who may read it; a key that only publishes learns the state.
        if let Some(reach) = request.caller()?.reach(Word::Read).filter(|reach| reach.covers(&found.queue)) {
            return whole(&request, &reach, &found).await.map_err(Problem::after_commit);
        }
        (job, status) = (found.job, StatusCode::OK);
    }
    let mut response = wire::ok(status, wire::published(request.base(), &job, &queue, &accepted));
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(format!("{}/v1/jobs/{}", request.base(), job.id)) {
        headers.insert(LOCATION, location);
    }
    if !job.status().is_terminal() {
        headers.insert(RETRY_AFTER, jobs::retry_header(jobs::POLL_SECONDS, request.budgets.slots.load_percent()));
    }
    Ok(response)
}

/// Each job is taken or refused on its own; what is taken is one durable commit.
pub(crate) async fn batch(request: RequestContext) -> Result<Response, Problem> {
    let queue: Arc<str> = request.queue_to_publish()?.into();
    let namespace = request.caller()?.namespace;
    if request.headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(Problem::field("Idempotency-Key", "names one job; in a batch, give each job its idempotencyKey"));
    }
    let raws = request.read(&fields::PUBLISH_BATCH)?.list("jobs").unwrap_or_default();
    if raws.len() > request.limits.batch_jobs {
        let detail =
            format!("a batch has at most {} jobs, not {}; nothing was stored", request.limits.batch_jobs, raws.len());
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let mut jobs = Vec::with_capacity(raws.len());
    let mut refusals: Vec<Option<Problem>> = Vec::with_capacity(raws.len());
    for (place, raw) in raws.into_iter().enumerate() {
        match batch_spec(&raw, place, &request) {
            Ok(spec) => {
                jobs.push(NewJob { namespace, queue: Arc::clone(&queue), spec: Arc::new(spec) });
                refusals.push(None);
            }
            Err(problem) => refusals.push(Some(problem)),
        }
    }
    let published = request.rooms.jobs.publish(jobs).await?;
    // An unknown queue refuses the batch as a whole, even one without a single good job.
    let missing = match published.first() {
        Some(first) => *first == Published::QueueNotFound,
        None => request.rooms.queues.get(namespace, &queue).await?.is_none(),
    };
    if missing {
        return Err(Problem::queue_not_found(&queue));
    }
    let mut published = published.into_iter();
    let answers: Vec<Json> = refusals
        .into_iter()
        .map(|refusal| match refusal {
            Some(problem) => json!({"error": problem.to_json()}),
            None => batch_answer(request.base(), published.next(), &queue),
        })
        .collect();
    Ok(wire::json_ok(StatusCode::ACCEPTED, &json!({"jobs": answers})))
}

fn batch_spec(raw: &Value<'_>, place: usize, request: &RequestContext) -> Result<Spec, Problem> {
    let Value::Any(raw) = raw else {
        return Err(Problem::field("jobs", "must be objects"));
    };
    let place = format!("jobs[{place}]");
    let values = read_raw(&fields::PUBLISH, raw, &place).map_err(Problem::invalid)?;
    spec(values, request).map_err(|problem| problem.at(&place))
}

fn batch_answer(base: &str, published: Option<Published>, queue: &str) -> Json {
    match created(published, queue) {
        Err(problem) => json!({"error": problem.to_json()}),
        Ok((job, accepted)) => {
            let mut answer = json!({
                "id": job.id.to_string(),
                "status": job.status().as_str(),
                "createdAt": job.created_at.to_string(),
                "statusUrl": format!("{base}/v1/jobs/{}", job.id),
                "streamUrl": format!("{base}/v1/jobs/{}/stream", job.id),
                "duplicate": accepted.is_duplicate,
                "dedupeBy": accepted.dedupe_by.as_str(),
            });
            if let (true, Json::Object(map)) = (accepted.payload_mismatch, &mut answer) {
                map.insert("payloadMismatch".to_owned(), json!(true));
            }
            answer
        }
    }
}

fn created(published: Option<Published>, queue: &str) -> Result<(Job, AcceptedJob), Problem> {
    match published {
        Some(Published::Created { job, dedupe_by, .. }) => {
            Ok((job, AcceptedJob { is_duplicate: false, payload_mismatch: false, dedupe_by }))
        }
        Some(Published::Existing { job, payload_mismatch, dedupe_by }) => {
            Ok((job, AcceptedJob { is_duplicate: true, payload_mismatch, dedupe_by }))
        }
        Some(Published::QueueNotFound) | None => Err(Problem::queue_not_found(queue)),
        Some(Published::QuotaReached { waiting_max }) => Err(Problem::quota_reached(waiting_max)),
    }
}

/// The job that the fields describe. The header wins over the field where both exist.
fn spec(mut values: Values<'_>, request: &RequestContext) -> Result<Spec, Problem> {
    let now = request.rooms.clock.now();
    let payload = values.any("payload").map_or_else(|| "null".into(), wire::raw);
    if payload.len() > request.limits.payload_bytes {
        let detail = format!(
            "the payload has {} bytes, the limit is {}; put large data elsewhere and send a link",
            payload.len(),
            request.limits.payload_bytes
        );
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let overrides = overrides(&mut values);
    if let (Some(soft), Some(hard)) = (overrides.soft_time_limit, overrides.hard_time_limit)
        && soft >= hard
    {
        return Err(Problem::field("softTimeLimit", "must be shorter than hardTimeLimit"));
    }
    let callback_url = values.text("callbackUrl");
    if let Some(url) = &callback_url {
        request.rooms.push.check_url(url).map_err(|refused| Problem::field("callbackUrl", refused.to_string()))?;
    }
    if values.contains("notifyEmail") {
        // Accepted and never sent would be worse than refused.
        return Err(Problem::field("notifyEmail", "must be left out: mail is not configured"));
    }
    Ok(Spec {
        payload,
        priority: values.int("priority").and_then(|priority| i8::try_from(priority).ok()).unwrap_or(0),
        not_before: not_before(&mut values, now)?,
        start_by: values.time("startBy"),
        idempotency_key: idempotency_key(&mut values, request)?,
        key: values.text("key").map(Into::into),
        tags: tags(&mut values),
        callback_url: callback_url.map(Into::into),
        notify_email: None,
        traceparent: request.header("traceparent").filter(|text| is_traceparent(text)).map(Into::into),
        overrides,
        origin: None,
    })
}

fn overrides(values: &mut Values<'_>) -> Overrides {
    Overrides {
        max_attempts: values.u32("maxAttempts"),
        visibility_timeout: values.duration("visibilityTimeout"),
        ack_timeout: values.duration("ackTimeout"),
        heartbeat_timeout: values.duration("heartbeatTimeout"),
        soft_time_limit: values.duration("softTimeLimit"),
        hard_time_limit: values.duration("hardTimeLimit"),
        job_timeout: values.duration("jobTimeout"),
        max_deferrals: values.u32("maxDeferrals"),
        max_age: values.duration("maxAge"),
        result_ttl: values.duration("resultTtl"),
    }
}

fn not_before(values: &mut Values<'_>, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    match (values.duration("delay"), values.time("runAt")) {
        (Some(_), Some(_)) => Err(Problem::field("runAt", "cannot be given together with delay")),
        (Some(delay), None) => Ok(Some(now.plus(delay))),
        (None, run_at) => Ok(run_at),
    }
}

fn tags(values: &mut Values<'_>) -> Vec<(Box<str>, Box<str>)> {
    let tags = values.map("tags").unwrap_or_default();
    tags.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// From the field or the header.
fn idempotency_key(values: &mut Values<'_>, request: &RequestContext) -> Result<Option<Box<str>>, Problem> {
    let in_body = values.text("idempotencyKey");
    let Some(in_header) = key_header(request)? else {
        return Ok(in_body.map(Into::into));
    };
    if in_body.is_some_and(|key| key != in_header) {
        let message = "differs from the field idempotencyKey; send one of them";
        return Err(Problem::field("Idempotency-Key", message));
    }
    Ok(Some(in_header.into()))
}

/// The header `Idempotency-Key`, bare or as a quoted string.
pub(crate) fn key_header(request: &RequestContext) -> Result<Option<&str>, Problem> {
    let Some(header) = request.headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = header.to_str().unwrap_or_default().trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if !(1..=KEY_BYTES_MAX).contains(&text.len()) || !fields::is_visible_ascii(text) {
        return Err(Problem::field("Idempotency-Key", "must be visible ASCII of 1 to 255 bytes"));
    }
    Ok(Some(text))
}

/// `version-traceid-parentid-flags` as W3C has it: lower case, no version `ff`, no id of zeros. Anything else counts as
/// absent.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = *parts.as_slice() else {
        return false;
    };
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    (version.len(), trace.len(), parent.len(), flags.len()) == (2, 32, 16, 2)
        && parts.iter().all(|part| is_hex(part))
        && version != "ff"
        && !is_zero(trace)
        && !is_zero(parent)
}

/// `Prefer: wait=10`, in seconds, at most 30.
fn preferred_wait(request: &RequestContext) -> Option<Duration> {
    let prefer = request.header("prefer")?;
    let wait = prefer.split([',', ';']).find_map(|part| part.trim().strip_prefix("wait=")?.parse::<u64>().ok())?;
    (wait > 0).then(|| Duration::from_secs(wait).min(PREFER_WAIT_MAX))
}

/// The job, if it finishes within the wait. The job is stored, so without a free place the request does not wait.
async fn finished(
    request: &mut RequestContext,
    namespace: NamespaceId,
    job: &Job,
    wait: Duration,
) -> Result<Option<FoundJob>, Problem> {
    let Ok(waiting) = request.begin_wait() else {
        return Ok(None);
    };
    let reach = Reach::Namespace(namespace);
    let found = Box::pin(request.rooms.jobs.watch(&reach, job.id, Until::Terminal, wait)).await?;
    request.end_wait(waiting);
    Ok(found.filter(|found| found.job.status().is_terminal()))
}

async fn whole(request: &RequestContext, reach: &Reach, found: &FoundJob) -> Result<Response, Problem> {
    let detail = request.rooms.jobs.detail(reach, found.job.id).await?.ok_or_else(Problem::job_not_found)?;
    let found = &detail.found;
    let (mut body, _) = jobs::shown(&request.rooms, &detail).await;
    if let Some(inline) = request.rooms.objects.inline_result(reach, found.job.id).await? {
        body.pop();
        body.push_str(",\"result\":");
        body.push_str(&inline.body);
        body.push('}');
        request.rooms.objects.count_download(found.job.id);
    }
    let mut response = wire::ok(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("wait"));
    if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", found.job.version)) {
        headers.insert(ETAG, etag);
    }
    Ok(response)
}
