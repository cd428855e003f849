//! `POST /v1/dev/clock`: moves the clock of a server that was started with `outlast dev --clock manual`. Other servers do not
//! have this route.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_core::Timestamp;
use serde_json::json;

use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::{fields, wire};

/// Moves the clock forward and gives the time after it.
pub type DevClock = Arc<dyn Fn(Duration) -> Timestamp + Send + Sync>;

pub(crate) async fn advance(request: RequestContext) -> Result<Response, Problem> {
    if !request.caller()?.is_operator() {
        return Err(Problem::new(Code::Forbidden, "only an admin key of the namespace default may move the clock"));
    }
    let Some(clock) = &request.dev_clock else {
        return Err(Problem::new(Code::RouteNotFound, "the clock of this server is not moved by hand"));
    };
    let by = request.read(&fields::ADVANCE_CLOCK)?.duration("advance").unwrap_or_default();
    Ok(wire::json_ok(StatusCode::OK, &json!({"now": clock(by).to_string()})))
}
