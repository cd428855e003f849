//! Bytes by link: `/v1/objects/{link}` serves one object of a local folder to the holder of the link, or stores one.
//! The link is the whole authority: sealed, for one object and one method, valid for minutes. The bytes are a user's,
//! so the response headers make the browser save them and trust nothing in them.

use std::ops::Range;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use outlast_core::Object;
use outlast_core::checkpoint::CheckpointData;
use outlast_core::object::digest_text;
use outlast_engine::keys::token::{Act, Link};
use outlast_engine::objects::upload::{content_type_of, disposition_of};
use outlast_store::artifacts::StoredObject;
use serde_json::json;

use crate::budget::Holder;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::Values;
use crate::{body, cors, outcome, wire, work};

const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
const POLICY: HeaderName = HeaderName::from_static("content-security-policy");
const REFERRER: HeaderName = HeaderName::from_static("referrer-policy");

/// A download.
pub(crate) async fn get(request: RequestContext) -> Result<Response, Problem> {
    let link = opened(&request, Act::Get).await?;
    let stored = request.rooms.objects.stored(&link.object).await?;
    let stored = stored.filter(|stored| stored.attached && stored.delete_after.is_none()).ok_or_else(gone)?;
    let holder = Holder::Token { namespace: link.object.namespace, key: link.key, job: link.object.job };
    let mut response = serve(&request, holder, &stored).await?;
    // A link is in the page's own hands, like a token.
    cors::open(response.headers_mut());
    Ok(response)
}

/// An upload, to be finalised afterwards.
pub(crate) async fn put(request: RequestContext) -> Result<Response, Problem> {
    let link = opened(&request, Act::Put).await?;
    let stream = body::stream(&request.headers, request.take_upload(), &request.limits)?;
    let written = request.rooms.objects.take_upload(&link.object, stream).await?;
    let digest = digest_text(&written.sha256);
    let mut response = wire::json_ok(StatusCode::OK, &json!({"length": written.length, "sha256": digest}));
    // Those who upload in parts want one of each.
    if let Ok(etag) = HeaderValue::try_from(format!("\"{digest}\"")) {
        response.headers_mut().insert(ETAG, etag);
    }
    Ok(response)
}

/// The bytes of a large checkpoint, for the worker that goes on from it.
pub(crate) async fn checkpoint(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let kept = request.rooms.work.saved(&request.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    match kept.checkpoint.map(|checkpoint| checkpoint.data) {
        Some(CheckpointData::Object(object)) => {
            let stored = request.rooms.objects.stored(&object.key).await?;
            serve(&request, request.holder(), &stored.ok_or_else(no_checkpoint)?).await
        }
        _ => Err(no_checkpoint()),
    }
}

fn no_checkpoint() -> Problem {
    Problem::new(Code::CheckpointNotFound, "the job has no checkpoint that was saved as a blob")
}

pub(crate) async fn put_checkpoint(mut request: RequestContext) -> Result<Response, Problem> {
    let worker = work::worker(&request, &mut Values::default())?;
    let schema_version = request.query.u32("schemaVersion");
    let schema_version = schema_version.ok_or_else(|| Problem::field("schemaVersion", "is required"))?;
    let stream = body::stream(&request.headers, request.take_upload(), &request.limits)?;
    let applied = request.rooms.objects.upload_checkpoint(&worker, schema_version, stream).await?;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

async fn opened(request: &RequestContext, act: Act) -> Result<Link, Problem> {
    request.rooms.keys.open_link(request.parameter("link"), act).await?.ok_or_else(gone)
}

/// The same whatever is wrong: a link says nothing about what it does not open.
fn gone() -> Problem {
    Problem::new(
        Code::RouteNotFound,
        "this link has expired or is not valid; request the result again to get a new one",
    )
}

async fn serve(request: &RequestContext, holder: Holder, stored: &StoredObject) -> Result<Response, Problem> {
    let object = &stored.object;
    // A part is good only beside the rest of the same bytes.
    let etag = format!("\"{}\"", digest_text(&object.sha256));
    let asked = request.header("range").filter(|_| request.header("if-range").is_none_or(|seen| seen == etag));
    let wanted = match range(asked, object.length) {
        Ok(wanted) => wanted,
        Err(()) => return Ok(unsatisfiable(object.length)),
    };
    let (status, span) = match &wanted {
        Some(range) => (StatusCode::PARTIAL_CONTENT, range.clone()),
        None => (StatusCode::OK, 0..object.length),
    };
    let charge = request.answers.download(holder, span.end - span.start)?;
    let opened = request.rooms.objects.open(stored, wanted.clone()).await?;
    let chunks = opened.chunks.map(move |chunk| {
        // It is given back with the end of the download.
        let _ = &charge;
        chunk
            .inspect_err(|error| tracing::warn!(error = error.with_causes(), "download failed; closing its connection"))
    });
    let mut response = Response::new(Body::from_stream(chunks.map_err(std::io::Error::other)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    describe(headers, object);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(span.end - span.start));
    if wanted.is_some()
        && let Ok(value) = HeaderValue::try_from(format!("bytes {}-{}/{}", span.start, span.end - 1, object.length))
    {
        headers.insert(CONTENT_RANGE, value);
    }
    Ok(response)
}

fn describe(headers: &mut HeaderMap, object: &Object) {
    let texts = [
        (CONTENT_TYPE, content_type_of(object).to_owned()),
        (CONTENT_DISPOSITION, disposition_of(object)),
        (ETAG, format!("\"{}\"", digest_text(&object.sha256))),
    ];
    for (name, text) in texts {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    headers.insert(POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(REFERRER, HeaderValue::from_static("no-referrer"));
}

fn unsatisfiable(length: u64) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    if let Ok(value) = HeaderValue::try_from(format!("bytes */{length}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}

/// The requested range. A malformed range, or several, count as none; one that lies
/// behind the end is an error.
fn range(header: Option<&str>, length: u64) -> Result<Option<Range<u64>>, ()> {
    let Some((first, last)) = header.and_then(|text| text.strip_prefix("bytes=")).and_then(|span| span.split_once('-'))
    else {
        return Ok(None);
    };
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let span = match (first.trim(), last.trim()) {
        ("", last) => number(last).map(|last| length.saturating_sub(last)..length),
        (first, "") => number(first).map(|first| first..length),
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(first..last.saturating_add(1).min(length)),
            _ => None,
        },
    };
    match span {
        Some(span) if span.start >= length => Err(()),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood_and_everything_else_is_the_whole() {
        for (header, expected) in [
            (None, Ok(None)),
            (Some("bytes=0-0"), Ok(Some(0..1))),
            (Some("bytes=5-"), Ok(Some(5..10))),
            (Some("bytes=-3"), Ok(Some(7..10))),
            (Some("bytes=-30"), Ok(Some(0..10))),
            (Some("bytes=2-99"), Ok(Some(2..10))),
            (Some("bytes=10-"), Err(())),
            (Some("bytes=-0"), Err(())),
            (Some("bytes=3-2"), Ok(None)),
            (Some("bytes=0-1,3-4"), Ok(None)),
            (Some("bytes=+1-2"), Ok(None)),
            (Some("lines=1-2"), Ok(None)),
            (Some("bytes"), Ok(None)),
        ] {
            assert_eq!(range(header, 10), expected, "{header:?}");
        }
    }
}
