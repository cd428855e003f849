//! Events of sources: sent by our users' own programs, looked at, and made into jobs again.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use outlast_core::NamespaceId;
use outlast_core::inbound_event::InboundEvent;
use outlast_engine::inbound::catalog::Source;
use outlast_engine::inbound::ingest::IncomingEvent;
use outlast_store::inbound_events::ListInboundEvents;
use outlast_store::jobs::{Published, Reach};
use serde_json::{Map, Value, json};

use crate::answers::Weight;
use crate::error::{Code, Problem};
use crate::publish::key_header;
use crate::request::RequestContext;
use crate::schema::check_json;
use crate::{fields, sources, wire};

const PAGE_DEFAULT: usize = 50;
const KIND_BYTES_MAX: usize = 255;

/// `POST /events/{source}/{type}`: the key authenticates the request, and the type is in the URL.
pub(crate) async fn send(request: RequestContext) -> Result<Response, Problem> {
    let namespace = whole_namespace(&request)?;
    let body = check_json(&request.body).map_err(Problem::invalid)?;
    let declared = request.rooms.inbound.catalog();
    let name = request.parameter("source");
    let source: &Arc<Source> =
        declared.source(name).filter(|_| declared.namespace == namespace).ok_or_else(|| source_not_found(name))?;
    let kind = request.parameter("type");
    if kind.is_empty() || kind.len() > KIND_BYTES_MAX || kind.chars().any(char::is_control) {
        let detail = format!("must be 1 to {KIND_BYTES_MAX} bytes without control characters");
        return Err(Problem::field("type", detail));
    }
    if request.body.len() > source.body_max {
        return Err(crate::body::too_large(source.body_max));
    }
    let value: Value =
        serde_json::from_str(body).map_err(|error| Problem::field("body", format!("must be JSON: {error}")))?;
    let mut headers = vec![(CONTENT_TYPE.to_string(), "application/json".to_owned())];
    headers.extend(
        request
            .headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("ce-"))
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))),
    );
    let incoming = IncomingEvent {
        kind: kind.to_owned(),
        key: key_header(&request)?.map(str::to_owned),
        headers,
        body: body.into(),
        value,
    };
    sources::store(&request.rooms, source, incoming).await
}

pub(crate) async fn list(mut request: RequestContext) -> Result<Response, Problem> {
    let namespace = whole_namespace(&request)?;
    let limit = request.query.usize("limit").unwrap_or(PAGE_DEFAULT);
    let before = match request.query.text("cursor") {
        None => None,
        Some(text) => {
            let position = text.strip_prefix('e').and_then(|position| position.parse().ok());
            Some(position.ok_or_else(|| Problem::field("cursor", "must be the nextCursor of the page before"))?)
        }
    };
    let (source, kind) = (request.query.text("source"), request.query.text("type"));
    let _turn = request.turn(Weight::Page).await?;
    let page = request.rooms.inbound.list_events(ListInboundEvents { namespace, source, kind, before, limit }).await?;
    let items = page.inbound_events.into_iter().map(|inbound_event| Value::Object(summary(&inbound_event)).to_string());
    Ok(wire::ok(StatusCode::OK, wire::list_page(items, page.next.map(|position| format!("e{position}")))))
}

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let _turn = request.turn(Weight::Single).await?;
    let inbound_event = find(&request).await?;
    let mut body = Value::Object(summary(&inbound_event)).to_string();
    body.pop();
    // As it was sent, byte for byte.
    body.push_str(",\"payload\":");
    body.push_str(&inbound_event.body);
    body.push('}');
    Ok(wire::ok(StatusCode::OK, body))
}

/// New jobs of an event, in the queue that is named or in all that take it.
pub(crate) async fn replay(request: RequestContext) -> Result<Response, Problem> {
    let queue = request.read(&fields::REPLAY_EVENT)?.text("queue");
    let inbound_event = find(&request).await?;
    let published =
        request.rooms.inbound.replay_event(whole_namespace(&request)?, &inbound_event, queue.as_deref()).await?;
    let mut jobs = Vec::with_capacity(published.len());
    for (name, answer) in published {
        match answer {
            Published::Created { job, .. } | Published::Existing { job, .. } => {
                jobs.push(json!({"queue": &*name, "id": job.id.to_string(), "status": job.status().as_str()}));
            }
            Published::QueueNotFound if queue.is_some() => return Err(Problem::queue_not_found(&name)),
            // Catalog here, and deleted in the meantime.
            Published::QueueNotFound => {}
            Published::QuotaReached { waiting_max } => {
                // Others may be stored already, so each says for itself what became of it.
                let problem = Problem::quota_reached(waiting_max);
                jobs.push(json!({"queue": &*name, "error": problem.to_json()}));
            }
        }
    }
    Ok(wire::json_ok(StatusCode::ACCEPTED, &json!({"event_id": inbound_event.id.to_string(), "jobs": jobs})))
}

async fn find(request: &RequestContext) -> Result<InboundEvent, Problem> {
    let not_found = || Problem::new(Code::EventNotFound, "no event with this id; events are kept for 7 days");
    let id = request.parameter("id").parse().map_err(|_| not_found())?;
    request.rooms.inbound.event(whole_namespace(request)?, id).await?.ok_or_else(not_found)
}

/// Events belong to no queue, so a key that is bound to some cannot touch them.
fn whole_namespace(request: &RequestContext) -> Result<NamespaceId, Problem> {
    match &request.reach {
        Reach::Queues(..) => Err(Problem::new(
            Code::Forbidden,
            "queue-bound scopes cannot read events, because events do not belong to a queue",
        )),
        Reach::Everything | Reach::Namespace(_) => Ok(request.caller()?.namespace),
    }
}

fn source_not_found(name: &str) -> Problem {
    Problem::new(Code::SourceNotFound, format!("no source \"{name}\"; sources stand in the configuration file"))
}

fn summary(inbound_event: &InboundEvent) -> Map<String, Value> {
    let headers: Map<String, Value> =
        inbound_event.headers.iter().map(|(name, value)| (name.to_string(), json!(**value))).collect();
    let mut map = Map::new();
    map.insert("id".to_owned(), json!(inbound_event.id.to_string()));
    map.insert("source".to_owned(), json!(*inbound_event.source));
    map.insert("type".to_owned(), json!(*inbound_event.kind));
    map.insert("providerEventId".to_owned(), json!(inbound_event.key));
    map.insert("receivedAt".to_owned(), json!(inbound_event.at.to_string()));
    map.insert("jobsCreated".to_owned(), json!(inbound_event.jobs));
    map.insert("headers".to_owned(), Value::Object(headers));
    map
}
