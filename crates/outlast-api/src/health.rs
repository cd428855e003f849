//! Liveness and readiness.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_store::Error;
use serde_json::json;
use tokio::time::timeout;

use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::wire;

/// A store that does not answer within this time is not ready.
const PING_MAX: Duration = Duration::from_secs(2);

/// A server that has had no room for this long is not ready; a moment of it is ordinary load.
const EXHAUSTED_MAX: Duration = Duration::from_secs(3);

pub(crate) async fn alive(_: RequestContext) -> Result<Response, Problem> {
    Ok(wire::json_ok(StatusCode::OK, &json!({"status": "alive"})))
}

pub(crate) async fn ready(request: RequestContext) -> Result<Response, Problem> {
    if request.rooms.status.is_draining() {
        return Err(Problem::new(Code::Draining, "the server is shutting down; use another one"));
    }
    let stopped_loops = request.rooms.status.stopped_loops();
    if !stopped_loops.is_empty() {
        let detail = format!("background loops have failed and are about to start again: {}", stopped_loops.join(", "));
        return Err(Problem::new(Code::Unavailable, detail));
    }
    for budget in [&request.budgets.slots, &request.budgets.bytes] {
        if budget.exhausted_for() >= EXHAUSTED_MAX {
            let detail = format!("all {} have been in use for a while, so requests are refused", budget.what());
            return Err(Problem::new(Code::Overloaded, detail));
        }
    }
    match timeout(PING_MAX, request.rooms.status.ping()).await {
        Ok(Ok(())) => Ok(wire::json_ok(StatusCode::OK, &json!({"status": "ready"}))),
        Ok(Err(Error::Unavailable)) => Err(Error::Unavailable.into()),
        Ok(Err(Error::Overloaded)) => {
            Err(Problem::new(Code::Overloaded, "too many writes are waiting for the disk, so writes are refused"))
        }
        Ok(Err(Error::DiskFull)) => {
            let detail = "degraded: disk full; publishes are refused, outcomes of running jobs are still accepted; free some space";
            Err(Problem::new(Code::Unavailable, detail))
        }
        Ok(Err(_)) | Err(_) => Err(Problem::new(Code::Unavailable, "the store does not answer")),
    }
}
