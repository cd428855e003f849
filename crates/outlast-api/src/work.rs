//! While a job is being worked on: the heartbeat, which keeps the lease and brings back what the worker should know;
//! progress, output, and what an operator asks of the worker.

use axum::response::Response;
use http::StatusCode;
use outlast_core::alarm::{lease_deadline, work_deadline};
use outlast_core::directive::{Directive, directives};
use outlast_core::liveness::soft_limit_reached;
use outlast_core::{Command, Directives, Job, Queue, Report, State, Timestamp};
use outlast_engine::work::{Beat, Worker};
use outlast_store::jobs::Order;
use serde_json::{Value as Json, json};

use crate::call::Call;
use crate::error::Problem;
use crate::schema::{Value, Values};
use crate::{checkpoint, fields, outcome, wire};

pub(crate) async fn heartbeat(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::HEARTBEAT)?;
    let worker = worker(&call, &mut values)?;
    let checkpoint = values.object("checkpoint").map(|saved| checkpoint::inline(&call, saved)).transpose()?;
    let beat = Beat { extend: values.duration("extend"), progress: values.object("progress").map(report), checkpoint };
    let applied = call.engine.heartbeat(&worker, beat).await??;
    let told = match &applied.running {
        Some(job) => answer(job, &applied.queue, call.engine.now()),
        None => nothing(),
    };
    Ok(wire::json_ok(StatusCode::OK, &told))
}

pub(crate) async fn progress(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::PROGRESS)?;
    let worker = worker(&call, &mut values)?;
    let progress = call.engine.report(&worker, report(values)).await??;
    let mut body = String::with_capacity(320);
    wire::accepted_progress(&mut body, worker.id, &progress);
    Ok(wire::ok(StatusCode::OK, body))
}

pub(crate) async fn output(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::OUTPUT)?;
    let worker = worker(&call, &mut values)?;
    let text = values.text("text").unwrap_or_default();
    let applied = call.engine.output(&worker, text.into()).await??;
    let mut body = outcome::accepted(&applied);
    if let Some(job) = &applied.running {
        body.pop();
        body.push_str(&format!(",\"seq\":{}}}", job.events));
    }
    Ok(wire::ok(StatusCode::OK, body))
}

/// An operator's wishes, told with the heartbeats to come.
pub(crate) async fn direct(call: Call) -> Result<Response, Problem> {
    let id = call.job()?;
    let asked = call.read(&fields::DIRECTIVES)?.list("directives").unwrap_or_default();
    let has = |wanted: &str| asked.iter().any(|word| matches!(word, Value::Text(word) if word == wanted));
    let directives =
        Directives { checkpoint_now: has("checkpoint_now"), hand_over: has("hand_over"), slow_down: has("slow_down") };
    let order = Order { id, reach: call.reach.clone(), command: Command::Direct { directives } };
    let applied = call.engine.apply_one(order).await??;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

/// Who speaks, and of which job.
pub(crate) fn worker(call: &Call, values: &mut Values<'_>) -> Result<Worker, Problem> {
    Ok(Worker { reach: call.reach.clone(), id: call.job()?, lease: outcome::lease(values, call)? })
}

pub(crate) fn report(mut values: Values<'_>) -> Report {
    let mut count = |name: &str| values.int(name).and_then(|number| u64::try_from(number).ok());
    let (stages_done, stages_total) = (count("stagesDone"), count("stagesTotal"));
    let (items_done, items_total) = (count("itemsDone"), count("itemsTotal"));
    Report {
        pct: values.number("pct"),
        stage: values.text("stage").map(Into::into),
        stage_pct: values.number("stagePct"),
        stages_done,
        stages_total,
        items_done,
        items_total,
        message: values.text("message").map(Into::into),
    }
}

/// What the worker should know.
fn answer(job: &Job, queue: &Queue, now: Timestamp) -> Json {
    let State::Running(running) = &job.state else {
        return nothing();
    };
    let told: Vec<&str> = directives(job, queue, running, now).into_iter().map(Directive::as_str).collect();
    json!({
        "leaseExpiresAt": lease_deadline(job, queue, running).to_string(),
        "deadline": work_deadline(job, queue, running).map(|deadline| deadline.to_string()),
        "directives": told,
        "cancelRequested": running.revoke_at.is_some(),
        "softLimitReached": soft_limit_reached(job, queue, running, now),
    })
}

/// The job has ended since.
fn nothing() -> Json {
    json!({
        "leaseExpiresAt": null, "deadline": null, "directives": [], "cancelRequested": false, "softLimitReached": false,
    })
}
