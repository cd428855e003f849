//! `GET /v1/workers`: which workers ask for jobs, and what they hold.

use axum::response::Response;
use http::StatusCode;
use outlast_engine::workers::ListedWorker;
use serde_json::{Value, json};

use crate::answers::Weight;
use crate::error::Problem;
use crate::request::RequestContext;
use crate::wire;

pub(crate) async fn list(request: RequestContext) -> Result<Response, Problem> {
    let _turn = request.turn(Weight::Page).await?;
    let namespace = request.caller()?.namespace;
    let list = request.rooms.workers.list(namespace, &request.reach).await?;
    let items: Vec<Value> = list.workers.iter().map(worker).collect();
    Ok(wire::json_ok(StatusCode::OK, &json!({"items": items, "complete": list.is_complete})))
}

fn worker(listed: &ListedWorker) -> Value {
    let name = &listed.name;
    json!({
        "worker": name.worker,
        "agent": {"host": name.host, "pid": name.pid, "sdk": name.sdk},
        "queues": listed.queues,
        "seenAt": listed.seen_at.map(|at| at.to_string()),
        "holds": listed.holds,
        "jobs": listed.jobs.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
