//! Pages of other origins may call with a token, and only so: a token is in the page's own hands, while a browser adds
//! neither cookies nor our keys automatically. Without a token, nothing here applies.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::routes::Route;

/// Response headers that a page may read.
const EXPOSED: &str = "Content-Disposition, Content-Length, ETag, Location, Retry-After, x-outlast-version";
/// Request headers that a page may send.
const TAKEN: &str = "Authorization, Content-Type, Last-Event-ID";
/// Seconds for which a browser need not ask again.
const MAX_AGE: &str = "600";

/// Lets any page read the answer to a call that came with a token, and keeps the URL with the token in it to the page.
pub(crate) fn open(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// The answer to a browser that asks first. Says the same to everybody, so it needs no token.
pub(crate) fn preflight(routes: &[&'static Route]) -> Response {
    let methods: Vec<&str> =
        routes.iter().filter(|route| route.token.is_some()).map(|route| route.method.as_str()).collect();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(TAKEN));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if let Ok(methods) = HeaderValue::try_from(methods.join(", ")) {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    response
}
