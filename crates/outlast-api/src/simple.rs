//! The simple form under `/api/queues`, for consumers written against a bare message queue. The same jobs, leases and
//! rules; only the shape differs.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_core::state::Phase;
use outlast_core::{Command, Evidence, Job, JobId, Lease, Outcome, Queue, State, Status};
use outlast_store::checked_decide::PAYLOAD_KEY_MARK;
use outlast_store::jobs::{ClaimRequest, JobCommand, Reach};
use serde_json::{Map, Value, json};

use crate::dead_letters::texts;
use crate::error::Problem;
use crate::queues::namespace;
use crate::receive::{hand_out, handed_out};
use crate::request::RequestContext;
use crate::{fields, wire};

const QUEUES_MAX: usize = 1000;

pub(crate) async fn queues(request: RequestContext) -> Result<Response, Problem> {
    let namespace = namespace(&request)?;
    let queues = request.rooms.queues.list(namespace, None, QUEUES_MAX).await?;
    let declared = request.rooms.inbound.catalog();
    let said = |queue: &Queue| declared.queues.get(&queue.name).filter(|_| declared.namespace == namespace);
    let pullable = queues.iter().filter(|(queue, _)| queue.settings.allows_pull() && request.reach.covers(queue));
    let items: Vec<Value> = pullable
        .map(|(queue, counts)| {
            json!({
                "name": queue.name,
                "source": said(queue).and_then(|queue| queue.source.as_deref()),
                "events": said(queue).map_or(&[][..], |queue| &queue.events),
                "visibility_timeout": visibility(queue),
                "depth": counts.get(Status::Queued),
            })
        })
        .collect();
    Ok(wire::json_ok(StatusCode::OK, &json!({"queues": items})))
}

fn visibility(queue: &Queue) -> String {
    let timeout = queue.settings.visibility_timeout;
    match timeout.subsec_millis() {
        0 => format!("{}s", timeout.as_secs()),
        _ => format!("{}ms", timeout.as_millis()),
    }
}

pub(crate) async fn messages(mut request: RequestContext) -> Result<Response, Problem> {
    let wait = request.query.duration("wait").unwrap_or(Duration::ZERO);
    let want = ClaimRequest {
        namespace: namespace(&request)?,
        limit: request.query.usize("batch").unwrap_or(1),
        queue: request.queue()?.into(),
        phase: Phase::Leased,
        visibility: None,
        worker: None,
    };
    let claimed = hand_out(&mut request, want, wait).await?;
    let mut body = String::from("{\"messages\":[");
    for (place, job) in claimed.jobs.iter().enumerate() {
        let State::Running(running) = &job.state else {
            continue;
        };
        let head = json!({
            "id": job.id.to_string(),
            "event_id": event_id(job),
            "event_type": job.spec.origin.as_ref().map(|origin| &*origin.kind),
            "headers": headers(job),
            "attempt": job.attempt,
            "created_at": job.created_at.to_string(),
            "receipt": format!("{}.{}", job.id, running.lease),
        });
        let mut head = head.to_string();
        head.pop();
        let comma = if place > 0 { "," } else { "" };
        body.push_str(&format!("{comma}{head},\"payload\":{}}}", job.spec.payload));
    }
    body.push_str("]}");
    Ok(handed_out(body, claimed))
}

/// The event that the message is made of; else what its sender calls it, else itself.
fn event_id(job: &Job) -> String {
    if let Some(origin) = &job.spec.origin {
        return origin.event.to_string();
    }
    let given = job.spec.idempotency_key.as_deref();
    given.filter(|key| !key.starts_with(PAYLOAD_KEY_MARK)).map_or_else(|| job.id.to_string(), str::to_owned)
}

fn headers(job: &Job) -> Map<String, Value> {
    let kept = job.spec.origin.iter().flat_map(|origin| &*origin.headers);
    kept.map(|(name, value)| (name.to_string(), json!(**value))).collect()
}

pub(crate) async fn ack(request: RequestContext) -> Result<Response, Problem> {
    let changed = report(&request, &Outcome::Ack { result: None }).await?;
    Ok(wire::json_ok(StatusCode::OK, &json!({"acked": changed.len()})))
}

pub(crate) async fn nack(request: RequestContext) -> Result<Response, Problem> {
    let changed = report(&request, &Outcome::Nack { retryable: true, delay: Some(Duration::ZERO) }).await?;
    let dead = changed.iter().filter(|status| **status == Status::Failed).count();
    Ok(wire::json_ok(StatusCode::OK, &json!({"retried": changed.len() - dead, "dead": dead})))
}

/// Reports the outcome for each id or receipt; unknown and lost ones do not count. Returns where the others went.
async fn report(request: &RequestContext, outcome: &Outcome) -> Result<Vec<Status>, Problem> {
    let name = request.queue()?;
    request.rooms.queues.get(namespace(request)?, name).await?.ok_or_else(|| Problem::queue_not_found(name))?;
    let reach = Reach::Queues(namespace(request)?, [name.to_owned()].into());
    let ids = texts(request.read(&fields::SIMPLE_IDS)?.list("ids").unwrap_or_default());
    let mut orders = Vec::with_capacity(ids.len());
    for (id, lease) in ids.iter().filter_map(|text| receipt(text)) {
        let command = Command::Report { lease, outcome: outcome.clone(), evidence: Evidence::default() };
        orders.push(JobCommand { id, reach: reach.clone(), command });
    }
    let answers = request.rooms.jobs.apply(orders).await?;
    Ok(answers.into_iter().flatten().filter(|applied| applied.changed).map(|applied| applied.status).collect())
}

/// A job id, or `id.lease`.
fn receipt(text: &str) -> Option<(JobId, Option<Lease>)> {
    match text.split_once('.') {
        None => Some((text.parse().ok()?, None)),
        Some((id, lease)) => Some((id.parse().ok()?, Some(lease.parse().ok()?))),
    }
}
