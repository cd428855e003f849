//! While a job is being worked on: the heartbeat, which keeps the lease and brings back what the worker should know;
//! progress, output, and what an operator asks of the worker.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_core::directive::{Directive, DirectiveSet};
use outlast_core::{Command, Directives, JobId, ProgressReport, Timestamp};
use outlast_engine::work::lease_watch::{LeaseStatus, WatchedLease};
use outlast_engine::work::{Beat, Worker};
use outlast_store::jobs::{Applied, JobCommand};
use serde_json::json;

use crate::batch::{BatchRefusals, BatchRequest, job_and_lease, refusal};
use crate::dead_letters::texts;
use crate::error::Problem;
use crate::request::RequestContext;
use crate::schema::{Value, Values};
use crate::{checkpoint, fields, outcome, wire};

pub(crate) async fn heartbeat(request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::HEARTBEAT)?;
    let worker = worker(&request, &mut values)?;
    let beat = beat(&request, values)?;
    let applied = request.rooms.work.heartbeat(&worker, beat).await??;
    let status = lease_status(&applied, request.rooms.clock.now());
    Ok(wire::ok(StatusCode::OK, heartbeat_answer(applied.id, status.as_ref())))
}

/// Of a worker with many jobs. With a `wait`, the answer comes when there is news about one of the leases.
pub(crate) async fn heartbeats(mut request: RequestContext) -> Result<Response, Problem> {
    let (entries, refused, wait) = read_heartbeats(&request)?;
    let (beats, seen): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|(worker, beat, seen)| ((worker, beat), seen)).unzip();
    let ids = ids(&beats);
    // Without a free place the request does not wait: the leases are what matters.
    let may_wait = !wait.is_zero() && !ids.is_empty() && refused.is_empty();
    let place = if may_wait { request.reserve_wait(ids.len()).ok() } else { None };
    let watch = place.as_ref().map(|_| request.rooms.work.watch_leases(&ids, &request.reach));
    let answers = request.rooms.work.heartbeats(beats).await?;
    let now = request.rooms.clock.now();
    let mut leases = Vec::new();
    let mut results = Vec::with_capacity(ids.len());
    for ((id, answer), seen) in ids.iter().zip(answers).zip(seen) {
        results.push(match &answer {
            Ok(applied) => {
                let status = lease_status(applied, now);
                let lease = applied.running.as_ref().and_then(|job| WatchedLease::new(job, &applied.queue, seen, now));
                leases.extend(lease.filter(|lease| status.as_ref().is_some_and(|status| !lease.differs(status))));
                heartbeat_answer(*id, status.as_ref())
            }
            Err(declined) => refusal(Some(*id), &declined.clone().into()),
        });
    }
    // News on arrival leaves out a lease.
    if let (Some(place), Some(watch), true) = (place, watch, leases.len() == ids.len()) {
        let wait = leases.iter().map(|lease| lease.wait_max).fold(wait, Duration::min);
        request.begin_reserved_wait();
        for (at, news) in Box::pin(request.rooms.work.lease_news(watch, &leases, wait)).await {
            if let (Some(result), Some(id)) = (results.get_mut(at), ids.get(at)) {
                *result = match news {
                    Ok(status) => heartbeat_answer(*id, Some(&status)),
                    Err(declined) => refusal(Some(*id), &declined.into()),
                };
            }
        }
        request.end_wait(place);
    }
    Ok(refused.answer(results))
}

type HeartbeatEntry = (Worker, Beat, Option<DirectiveSet>);

fn read_heartbeats(request: &RequestContext) -> Result<(Vec<HeartbeatEntry>, BatchRefusals, Duration), Problem> {
    let mut body = request.read(&fields::HEARTBEATS)?;
    let wait = body.duration("wait").unwrap_or_default();
    let batch = BatchRequest::read(&mut body, "heartbeats", &fields::HEARTBEAT_ENTRY, |mut values, _| {
        let seen =
            values.list("seen").map(|words| texts(words).iter().filter_map(|word| Directive::parse(word)).collect());
        Ok((one_of(request, &mut values)?, beat(request, values)?, seen))
    });
    let (entries, refused) = batch.split();
    Ok((entries, refused, wait))
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
    let mut body = request.read(&fields::PROGRESS_BATCH)?;
    let batch = BatchRequest::read(&mut body, "reports", &fields::PROGRESS_ENTRY, |mut values, _| {
        Ok((one_of(&request, &mut values)?, report(values)))
    });
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
    let part = values.int("part").and_then(|part| u64::try_from(part).ok());
    let text = values.text("text").unwrap_or_default();
    let work = &request.rooms.work;
    let applied = work.output(&worker, part, text.into()).await??;
    let last_part = applied.running.as_ref().and_then(|job| job.running()?.work.last_part);
    let seq = match (applied.changed, part, last_part) {
        (false, Some(part), Some(last)) => work.output_seq(&worker.reach, worker.id, last, part).await?,
        _ => applied.running.as_ref().map(|job| job.events),
    };
    let mut body = outcome::accepted(&applied);
    body.pop();
    body.push_str(&format!(",\"seq\":{}}}", json!(seq)));
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

/// `None` if the job has ended since.
fn lease_status(applied: &Applied, now: Timestamp) -> Option<LeaseStatus> {
    let job = applied.running.as_ref()?;
    Some(LeaseStatus::of(job, &applied.queue, job.running()?, now))
}

/// Directives and limits for the worker; none if the job has ended since.
fn heartbeat_answer(id: JobId, status: Option<&LeaseStatus>) -> String {
    let directives = status.map_or(&[][..], |status| &status.directives).iter().map(|directive| directive.as_str());
    json!({
        "id": id.to_string(),
        "accepted": true,
        "leaseExpiresAt": status.map(|status| status.expires_at.to_string()),
        "deadline": status.and_then(|status| status.deadline).map(|deadline| deadline.to_string()),
        "directives": directives.collect::<Vec<_>>(),
        "cancelRequested": status.is_some_and(|status| status.cancel_requested),
        "softLimitReached": status.is_some_and(|status| status.soft_limit_reached),
    })
    .to_string()
}
