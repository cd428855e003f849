//! Liveness and readiness.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_store::Error;
use serde_json::json;
use tokio::time::timeout;

use crate::call::Call;
use crate::error::{Code, Problem};
use crate::wire;

/// A store that does not answer within this time is not ready.
const PING_MAX: Duration = Duration::from_secs(2);

pub(crate) async fn alive(_: Call) -> Result<Response, Problem> {
    Ok(wire::json_ok(StatusCode::OK, &json!({"status": "alive"})))
}

pub(crate) async fn ready(call: Call) -> Result<Response, Problem> {
    if call.engine.is_draining() {
        return Err(Problem::new(Code::Draining, "the server is shutting down; use another one"));
    }
    match timeout(PING_MAX, call.engine.store().ping()).await {
        Ok(Ok(())) => Ok(wire::json_ok(StatusCode::OK, &json!({"status": "ready"}))),
        Ok(Err(Error::Unavailable)) => Err(Error::Unavailable.into()),
        Ok(Err(_)) | Err(_) => Err(Problem::new(Code::Unavailable, "the store does not answer")),
    }
}
