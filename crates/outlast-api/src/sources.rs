//! Webhooks that providers post to the paths of sources. The signature replaces a key. A request with an invalid
//! signature gets the same answer whatever was wrong, and has no effect; a valid one gets 200 when event and jobs are
//! on disk.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use outlast_engine::Rooms;
use outlast_engine::inbound::catalog::Source;
use outlast_engine::inbound::ingest::IncomingEvent;
use outlast_engine::inbound::provider::{self, Unreadable};
use outlast_engine::inbound::verify::Request;

use crate::error::{Code, Problem};
use crate::wire;

/// Where a request came from; every request has it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Whether a webhook may come from there; asked before its body is read.
pub(crate) fn check_peer(rooms: &Rooms, source: &Source, address: IpAddr) -> Result<(), Problem> {
    if source.admits(address) { Ok(()) } else { Err(refuse(rooms)) }
}

fn refuse(rooms: &Rooms) -> Problem {
    rooms.status.counters.events_refused.add(1);
    Problem::new(Code::Unauthorized, "the signature is not valid")
}

/// One webhook, from its body to the answer.
pub(crate) async fn take(
    rooms: &Rooms,
    source: &Arc<Source>,
    parts: &Parts,
    bytes: Bytes,
) -> Result<Response, Problem> {
    let url = match parts.uri.query() {
        Some(query) => format!("{}?{query}", source.url),
        None => source.url.clone(),
    };
    let request = Request { url: &url, headers: &parts.headers, body: &bytes, now: rooms.clock.now() };
    source.verifier.check(&request).map_err(|_| refuse(rooms))?;
    let scheme = source.verifier.scheme();
    let event = provider::read(scheme, &parts.headers, &bytes, &source.projection).map_err(unreadable)?;
    if let Some(challenge) = provider::challenge(scheme, &event) {
        return Ok(plain_text(challenge));
    }
    let incoming = IncomingEvent {
        kind: event.event_type,
        key: event.provider_event_id,
        headers: event.headers,
        body: event.payload,
        value: event.value,
    };
    store(rooms, source, incoming).await
}

/// Checks an event whose sender is known against the schema of its source, and stores it.
pub(crate) async fn store(rooms: &Rooms, source: &Arc<Source>, incoming: IncomingEvent) -> Result<Response, Problem> {
    if let Some(schema) = &source.schema {
        schema(&incoming.value)
            .map_err(|why| Problem::field("body", format!("does not fit the source's schema: {why}")))?;
    }
    let taken = rooms.inbound.ingest(rooms.inbound.catalog().namespace, source, incoming).await?;
    Ok(wire::ok(StatusCode::OK, wire::taken(&taken)))
}

fn unreadable(why: Unreadable) -> Problem {
    match why {
        Unreadable::Media(_) => Problem::new(Code::UnsupportedMediaType, why.to_string()),
        Unreadable::Json(_) | Unreadable::Repeated(_) | Unreadable::Text(_) => Problem::field("body", why.to_string()),
    }
}

fn plain_text(text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
