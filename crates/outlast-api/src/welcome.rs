//! `GET /`: a page for people who open the address of the server in a browser. It is the same everywhere and says nothing
//! about this server: no version, no names, no state.

use axum::response::Response;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};

use crate::error::Problem;
use crate::request::RequestContext;

const HTML: &str = include_str!("welcome.html");
const TEXT: &str = "\
Outlast: a service for long-running jobs, used over HTTP.

/openapi.json       every call of this API
/healthz            the process is alive
/readyz             the server takes requests
/v1/...             the API; needs a key

The documentation comes with the source: README.md, docs/reference/PROTOCOL.md (the API), docs/how-to (running a server).
";

pub(crate) async fn show(request: RequestContext) -> Result<Response, Problem> {
    let (media_type, text) = if wants_html(&request.headers) {
        ("text/html; charset=utf-8", HTML)
    } else {
        ("text/plain; charset=utf-8", TEXT)
    };
    let mut response = Response::new(text.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The page loads nothing and runs nothing.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    Ok(response)
}

/// Browsers ask for HTML by name; `curl` takes anything and gets text.
fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|part| part.trim_start().starts_with("text/html"))
}
