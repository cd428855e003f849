//! While a job is being worked on: the heartbeat, which keeps the lease and brings back what the worker should know;
//! progress, output, and what an operator asks of the worker.

use axum::response::Response;
use http::StatusCode;
use outlast_core::alarm::{lease_deadline, work_deadline};
use outlast_core::directive::{Directive, directives};
use outlast_core::liveness::soft_limit_reached;
use outlast_core::{Command, Directives, JobId, ProgressReport, State, Timestamp};
use outlast_engine::work::{Beat, Worker};
use outlast_store::jobs::{Applied, JobCommand};
use serde_json::{Value as Json, json};

use crate::batch::{BatchRequest, job_and_lease, refusal};
use crate::error::Problem;
use crate::request::RequestContext;
use crate::schema::{Value, Values};
use crate::{checkpoint, fields, outcome, wire};

pub(crate) async fn heartbeat(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::HEARTBEAT)?;
    let worker = worker(&request, &mut values)?;
    let beat = beat(&request, values)?;
    let applied = request.rooms.work.heartbeat(&worker, beat).await??;
    Ok(wire::json_ok(StatusCode::OK, &heartbeat_answer(&applied, request.rooms.clock.now())))
}

/// Of a worker with many jobs.
pub(crate) async fn heartbeats(request: RequestContext) -> Result<Response, Problem> {
    let batch =
        BatchRequest::read(&request, &fields::HEARTBEATS, "heartbeats", &fields::HEARTBEAT_ENTRY, |mut values, _| {
            Ok((one_of(&request, &mut values)?, beat(&request, values)?))
        })?;
    let (beats, refused) = batch.split();
    let ids = ids(&beats);
    let answers = request.rooms.work.heartbeats(beats).await?;
    let now = request.rooms.clock.now();
    Ok(refused.answer(ids.into_iter().zip(answers).map(|(id, answer)| match answer {
        Ok(applied) => heartbeat_answer(&applied, now).to_string(),
        Err(declined) => refusal(Some(id), &declined.into()),
    })))
}

fn beat(request: &RequestContext, mut values: Values<'_>) -> Result<Beat, Problem> {
    let checkpoint = values.object("checkpoint").map(|saved| checkpoint::inline(request, saved)).transpose()?;
    Ok(Beat { extend: values.duration("extend"), progress: values.object("progress").map(report), checkpoint })
}

pub(crate) async fn progress(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::PROGRESS)?;
    let worker = worker(&request, &mut values)?;
    let progress = request.rooms.work.report(&worker, report(values)).await??;
    Ok(wire::ok(StatusCode::OK, wire::accepted_progress(worker.id, &progress)))
}

/// Of a worker with many jobs.
pub(crate) async fn reports(request: RequestContext) -> Result<Response, Problem> {
    let batch =
        BatchRequest::read(&request, &fields::PROGRESS_BATCH, "reports", &fields::PROGRESS_ENTRY, |mut values, _| {
            Ok((one_of(&request, &mut values)?, report(values)))
        })?;
    let (reports, refused) = batch.split();
    let ids = ids(&reports);
    let answers = request.rooms.work.reports(reports).await?;
    Ok(refused.answer(ids.into_iter().zip(answers).map(|(id, answer)| match answer {
        Ok(progress) => wire::accepted_progress(id, &progress),
        Err(declined) => refusal(Some(id), &declined.into()),
    })))
}

fn ids<T>(said: &[(Worker, T)]) -> Vec<JobId> {
    said.iter().map(|(worker, _)| worker.id).collect()
}

pub(crate) async fn output(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::OUTPUT)?;
    let worker = worker(&request, &mut values)?;
    let text = values.text("text").unwrap_or_default();
    let applied = request.rooms.work.output(&worker, text.into()).await??;
    let mut body = outcome::accepted(&applied);
    if let Some(job) = &applied.running {
        body.pop();
        body.push_str(&format!(",\"seq\":{}}}", job.events));
    }
    Ok(wire::ok(StatusCode::OK, body))
}

/// An operator's directives, sent with the next heartbeats.
pub(crate) async fn direct(request: RequestContext) -> Result<Response, Problem> {
    let id = request.job()?;
    let asked = request.read(&fields::DIRECTIVES)?.list("directives").unwrap_or_default();
    let has = |wanted: &str| asked.iter().any(|word| matches!(word, Value::Text(word) if word == wanted));
    let directives =
        Directives { checkpoint_now: has("checkpoint_now"), hand_over: has("hand_over"), slow_down: has("slow_down") };
    let order = JobCommand { id, reach: request.reach.clone(), command: Command::Direct { directives } };
    let applied = request.rooms.jobs.apply_one(order).await??;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

/// The caller, and the job it reports on.
pub(crate) fn worker(request: &RequestContext, values: &mut Values<'_>) -> Result<Worker, Problem> {
    Ok(Worker { reach: request.reach.clone(), id: request.job()?, lease: outcome::lease(values, request)? })
}

/// The same of an entry among many.
fn one_of(request: &RequestContext, values: &mut Values<'_>) -> Result<Worker, Problem> {
    let (id, lease) = job_and_lease(values)?;
    Ok(Worker { reach: request.reach.clone(), id, lease })
}

pub(crate) fn report(mut values: Values<'_>) -> ProgressReport {
    let mut count = |name: &str| values.int(name).and_then(|number| u64::try_from(number).ok());
    let (stages_done, stages_total) = (count("stagesDone"), count("stagesTotal"));
    let (items_done, items_total) = (count("itemsDone"), count("itemsTotal"));
    ProgressReport {
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

/// Directives and limits for the worker; none if the job has ended since.
fn heartbeat_answer(applied: &Applied, now: Timestamp) -> Json {
    let queue = &applied.queue;
    let running = applied.running.as_ref().and_then(|job| match &job.state {
        State::Running(running) => Some((job, running)),
        _ => None,
    });
    let directives = running.map_or_else(Vec::new, |(job, running)| directives(job, queue, running, now));
    let deadline = running.and_then(|(job, running)| work_deadline(job, queue, running));
    json!({
        "id": applied.id.to_string(),
        "accepted": true,
        "leaseExpiresAt": running.map(|(job, running)| lease_deadline(job, queue, running).to_string()),
        "deadline": deadline.map(|deadline| deadline.to_string()),
        "directives": directives.into_iter().map(Directive::as_str).collect::<Vec<_>>(),
        "cancelRequested": running.is_some_and(|(_, running)| running.revoke_at.is_some()),
        "softLimitReached": running.is_some_and(|(job, running)| soft_limit_reached(job, queue, running, now)),
    })
}
