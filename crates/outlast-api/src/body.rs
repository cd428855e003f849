//! Reading request bodies: bounded in size and time before anything looks at them.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::unfold;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::error::{Code, Problem};
use crate::limits::Limits;
use crate::patience::heard_by;

/// What is read of a body after its request was refused. A client's own next request is worth that much.
const DISCARD_BYTES_MAX: usize = 64 << 10;
const DISCARD_MAX: Duration = Duration::from_millis(250);

/// The whole body, at most `bytes_max`.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut Body,
    bytes_max: usize,
    limits: &Limits,
) -> Result<Bytes, Problem> {
    check_encoding(headers)?;
    if declared_length(headers).is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let end = Instant::now() + limits.body_total;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let deadline = end.min(Instant::now() + limits.body_idle);
        let slow = || Problem::new(Code::RequestTimeout, "the request body came too slowly; nothing was stored");
        // After its time only what the last look has brought counts: there is no other look for each byte that drips in.
        let next = match Instant::now() < end {
            true => heard_by(deadline, body.frame()).await,
            false => body.is_end_stream().then_some(None),
        };
        let Some(frame) = next.ok_or_else(slow)? else {
            break;
        };
        let frame = frame.map_err(|_| Problem::field("body", "ended before its announced length"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = first.as_ref().map_or(0, Bytes::len) + rest.len() + data.len();
        if length > bytes_max {
            return Err(too_large(bytes_max));
        }
        // Nearly every body is one frame, which then needs no copy.
        match &first {
            None => first = Some(data),
            Some(_) => rest.extend_from_slice(&data),
        }
    }
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

/// The body as it comes, of any length: only a sender that falls silent is given up.
pub(crate) fn stream(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
) -> Result<impl Stream<Item = Result<Bytes, Interruption>> + Send + use<>, Problem> {
    check_encoding(headers)?;
    let idle = limits.body_idle;
    Ok(unfold(Some(body), move |body| async move {
        let mut body = body?;
        loop {
            let frame = match heard_by(Instant::now() + idle, body.frame()).await {
                Some(Some(Ok(frame))) => frame,
                Some(None) => return None,
                Some(Some(Err(_))) => return Some((Err(Interruption::Ended), None)),
                None => return Some((Err(Interruption::Silent), None)),
            };
            if let Ok(data) = frame.into_data() {
                return Some((Ok(data), Some(body)));
            }
        }
    }))
}

/// Why a body did not arrive whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    Ended,
    Silent,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Interruption::Ended => "the connection ended before the announced length",
            Interruption::Silent => "nothing came for too long",
        })
    }
}

impl std::error::Error for Interruption {}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Code::UnsupportedMediaType, "compressed bodies are not accepted; send it plain"));
    }
    Ok(())
}

/// Reads the rest of a body that nobody wants. `false` when there is more of it than is worth waiting for.
pub(crate) async fn discard(body: &mut Body) -> bool {
    let mut left = DISCARD_BYTES_MAX;
    let discarded = async {
        while let Some(frame) = body.frame().await {
            let length = frame.ok()?.into_data().map_or(0, |data| data.len());
            left = left.checked_sub(length)?;
        }
        Some(())
    };
    timeout(DISCARD_MAX, discarded).await.is_ok_and(|done| done.is_some())
}

pub(crate) fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn too_large(bytes_max: usize) -> Problem {
    Problem::new(
        Code::PayloadTooLarge,
        format!("the request body has more than {bytes_max} bytes, which is the limit here"),
    )
}
