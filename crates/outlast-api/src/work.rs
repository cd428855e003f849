//! While a job is being worked on: the heartbeat, which keeps the lease and brings back what the worker should know.

use axum::response::Response;
use http::StatusCode;
use outlast_core::alarm::lease_deadline;
use outlast_core::{Command, Job, Queue, State, Timestamp};
use outlast_store::jobs::Order;
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::Problem;
use crate::{fields, outcome, wire};

pub(crate) async fn heartbeat(call: Call) -> Result<Response, Problem> {
    let id = call.job()?;
    let mut values = call.read(&fields::HEARTBEAT)?;
    let command = Command::beat(outcome::lease(&mut values, &call)?, values.duration("extend"));
    call.engine.apply_one(Order { id, reach: call.reach.clone(), command }).await??;
    let found = call.engine.store().job(&call.reach, id).await.map_err(|error| Problem::from(error).after_commit())?;
    let found = found.ok_or_else(Problem::job_not_found)?;
    Ok(wire::json_ok(StatusCode::OK, &answer(&found.job, &found.queue, call.engine.now())))
}

/// What the worker should know; the job may have ended since.
fn answer(job: &Job, queue: &Queue, now: Timestamp) -> Value {
    let State::Running(running) = &job.state else {
        return json!({"leaseExpiresAt": null, "directives": [], "cancelRequested": false, "softLimitReached": false});
    };
    let is_cancelled = running.revoke_at.is_some();
    let is_late = job.soft_time_limit(queue).is_some_and(|limit| running.began_at.plus(limit) <= now);
    json!({
        "leaseExpiresAt": lease_deadline(job, queue, running).to_string(),
        "directives": if is_cancelled { vec!["cancel"] } else { Vec::new() },
        "cancelRequested": is_cancelled,
        "softLimitReached": is_late,
    })
}
