//! `GET /v1/jobs/{id}/ws`: a job's log over a WebSocket, live to its end, and a way to cancel the job from the same
//! connection. Here is the handshake; `session.rs` has what follows it. The bounds are those of any other stream.

mod session;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use outlast_engine::feeds::stream::Opened;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::error::Problem;
use crate::listen::upgrade::Upgrade;
use crate::request::RequestContext;
use crate::stream::{life, no_stream_while_draining};
use session::Session;

/// Sixteen bytes in base64.
const KEY_LENGTH: usize = 24;

pub(crate) async fn job(mut request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let after = request.query.int("after").and_then(|after| u64::try_from(after).ok()).unwrap_or(0);
    no_stream_while_draining(&request.rooms.status)?;
    let caller = request.caller()?.clone();
    let place = request.open_stream()?;
    let opened =
        request.rooms.feeds.follow(request.reach.clone(), id, after).await?.ok_or_else(Problem::job_not_found)?;
    let follower = match opened {
        Opened::Following(follower) => Ok(follower),
        // A browser sees no status of a refused handshake: the last frame and the close code say it.
        Opened::Finished(end) => Err(end),
        Opened::Beyond { last } => return Err(Problem::beyond("after", last)),
    };
    // After the look at the job: to one who may not see it, it is not there, however he asks.
    let accept = handshake(&request)?;
    let (rooms, token, ends_at) = (Arc::clone(&request.rooms), request.token.clone(), life(&request));
    let (answers, holder) = (Arc::clone(&request.answers), request.holder());
    let session = Session { rooms, caller, token, id, ends_at, answers, holder, _place: place };
    Ok(switch(accept, Upgrade::new(move |upgraded| session.run(follower, upgraded))))
}

/// The answer to the key of a request that asks for this protocol and no other.
fn handshake(request: &RequestContext) -> Result<HeaderValue, Problem> {
    let headers = &request.headers;
    if request.version != Version::HTTP_11 || !has_token(headers, &UPGRADE, "websocket") {
        return Err(Problem::field("Upgrade", "must be websocket: this URL speaks nothing else; see also …/stream"));
    }
    if !has_token(headers, &CONNECTION, "upgrade") {
        return Err(Problem::field("Connection", "must be Upgrade; a proxy in between has to pass it on"));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(Problem::field("Sec-WebSocket-Version", "must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| key.len() == KEY_LENGTH);
    let accept = key.and_then(|key| HeaderValue::try_from(derive_accept_key(key)).ok());
    accept.ok_or_else(|| Problem::field("Sec-WebSocket-Key", "must be 16 bytes in base64"))
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

fn switch(accept: HeaderValue, upgrade: Upgrade) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    response.extensions_mut().insert(upgrade);
    response
}
