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

use crate::call::Call;
use crate::error::Problem;
use crate::many::{Many, refusal, who};
use crate::schema::{Value, Values};
use crate::{checkpoint, fields, outcome, wire};

pub(crate) async fn heartbeat(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::HEARTBEAT)?;
    let worker = worker(&call, &mut values)?;
    let beat = beat(&call, values)?;
    let applied = call.rooms.work.heartbeat(&worker, beat).await??;
    Ok(wire::json_ok(StatusCode::OK, &heartbeat_answer(&applied, call.rooms.clock.now())))
}

/// Of a worker with many jobs.
pub(crate) async fn heartbeats(call: Call) -> Result<Response, Problem> {
    let many = Many::read(&call, &fields::HEARTBEATS, "heartbeats", &fields::HEARTBEAT_OF, |mut values, _| {
        Ok((one_of(&call, &mut values)?, beat(&call, values)?))
    })?;
    let (beats, refused) = many.split();
    let ids = ids(&beats);
    let answers = call.rooms.work.heartbeats(beats).await?;
    let now = call.rooms.clock.now();
    Ok(refused.answer(ids.into_iter().zip(answers).map(|(id, answer)| match answer {
        Ok(applied) => heartbeat_answer(&applied, now).to_string(),
        Err(declined) => refusal(Some(id), &declined.into()),
    })))
}

fn beat(call: &Call, mut values: Values<'_>) -> Result<Beat, Problem> {
    let checkpoint = values.object("checkpoint").map(|saved| checkpoint::inline(call, saved)).transpose()?;
    Ok(Beat { extend: values.duration("extend"), progress: values.object("progress").map(report), checkpoint })
}

pub(crate) async fn progress(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::PROGRESS)?;
    let worker = worker(&call, &mut values)?;
    let progress = call.rooms.work.report(&worker, report(values)).await??;
    Ok(wire::ok(StatusCode::OK, wire::accepted_progress(worker.id, &progress)))
}

/// Of a worker with many jobs.
pub(crate) async fn reports(call: Call) -> Result<Response, Problem> {
    let many = Many::read(&call, &fields::REPORTS, "reports", &fields::PROGRESS_OF, |mut values, _| {
        Ok((one_of(&call, &mut values)?, report(values)))
    })?;
    let (reports, refused) = many.split();
    let ids = ids(&reports);
    let answers = call.rooms.work.reports(reports).await?;
    Ok(refused.answer(ids.into_iter().zip(answers).map(|(id, answer)| match answer {
        Ok(progress) => wire::accepted_progress(id, &progress),
        Err(declined) => refusal(Some(id), &declined.into()),
    })))
}

fn ids<T>(said: &[(Worker, T)]) -> Vec<JobId> {
    said.iter().map(|(worker, _)| worker.id).collect()
}

pub(crate) async fn output(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::OUTPUT)?;
    let worker = worker(&call, &mut values)?;
    let text = values.text("text").unwrap_or_default();
    let applied = call.rooms.work.output(&worker, text.into()).await??;
    let mut body = outcome::accepted(&applied);
    if let Some(job) = &applied.running {
        body.pop();
        body.push_str(&format!(",\"seq\":{}}}", job.events));
    }
    Ok(wire::ok(StatusCode::OK, body))
}

/// An operator's directives, sent with the next heartbeats.
pub(crate) async fn direct(call: Call) -> Result<Response, Problem> {
    let id = call.job()?;
    let asked = call.read(&fields::DIRECTIVES)?.list("directives").unwrap_or_default();
    let has = |wanted: &str| asked.iter().any(|word| matches!(word, Value::Text(word) if word == wanted));
    let directives =
        Directives { checkpoint_now: has("checkpoint_now"), hand_over: has("hand_over"), slow_down: has("slow_down") };
    let order = JobCommand { id, reach: call.reach.clone(), command: Command::Direct { directives } };
    let applied = call.rooms.jobs.apply_one(order).await??;
    Ok(wire::ok(StatusCode::OK, outcome::accepted(&applied)))
}

/// The caller, and the job it reports on.
pub(crate) fn worker(call: &Call, values: &mut Values<'_>) -> Result<Worker, Problem> {
    Ok(Worker { reach: call.reach.clone(), id: call.job()?, lease: outcome::lease(values, call)? })
}

/// The same of an entry among many.
fn one_of(call: &Call, values: &mut Values<'_>) -> Result<Worker, Problem> {
    let (id, lease) = who(values)?;
    Ok(Worker { reach: call.reach.clone(), id, lease })
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
