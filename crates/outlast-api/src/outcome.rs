//! Outcomes, one by one and in batches.

use axum::response::Response;
use http::StatusCode;
use outlast_core::gate::HoldCause;
use outlast_core::{Command, Evidence, JobId, Lease, Outcome};
use outlast_store::jobs::{Applied, JobCommand};

use crate::batch::{BatchRequest, job_and_lease, refusal};
use crate::error::Problem;
use crate::fields;
use crate::request::RequestContext;
use crate::schema::{Object, Values};
use crate::{settings, wire};

pub(crate) async fn ack(request: RequestContext) -> Result<Response, Problem> {
    report(request, &fields::ACK, "ack").await
}

pub(crate) async fn nack(request: RequestContext) -> Result<Response, Problem> {
    report(request, &fields::NACK, "nack").await
}

pub(crate) async fn defer(request: RequestContext) -> Result<Response, Problem> {
    report(request, &fields::DEFER, "defer").await
}

pub(crate) async fn release(request: RequestContext) -> Result<Response, Problem> {
    report(request, &fields::RELEASE, "release").await
}

pub(crate) async fn cancelled(request: RequestContext) -> Result<Response, Problem> {
    report(request, &fields::CONFIRM, "cancelled").await
}

async fn report(request: RequestContext, object: &'static Object, kind: &str) -> Result<Response, Problem> {
    let id = request.job()?;
    let mut values = request.read(object)?;
    let lease = lease(&mut values, &request)?;
    let command = command(kind, lease, values, &request)?;
    let order = JobCommand { id, reach: request.reach.clone(), command };
    let applied = request.rooms.jobs.apply_one(order).await??;
    Ok(wire::ok(StatusCode::OK, accepted(&applied)))
}

/// The lease of the field, else of the header.
pub(crate) fn lease(values: &mut Values<'_>, request: &RequestContext) -> Result<Option<Lease>, Problem> {
    if let Some(text) = values.text("lease") {
        return Ok(text.parse().ok());
    }
    let header = request.header("x-outlast-lease").map(str::parse).transpose();
    header.map_err(|_| Problem::field("x-outlast-lease", "must be the lease as it was handed out"))
}

/// Each outcome is taken or refused on its own.
pub(crate) async fn batch(request: RequestContext) -> Result<Response, Problem> {
    let mut body = request.read(&fields::OUTCOMES)?;
    let batch =
        BatchRequest::read(&mut body, "outcomes", &fields::OUTCOME, |values, path| order(values, path, &request));
    let (orders, refused) = batch.split();
    let ids: Vec<JobId> = orders.iter().map(|order| order.id).collect();
    let answers = request.rooms.jobs.apply(orders).await?;
    Ok(refused.answer(ids.into_iter().zip(answers).map(|(id, answer)| match answer {
        Ok(applied) => accepted(&applied),
        Err(declined) => refusal(Some(id), &declined.into()),
    })))
}

pub(crate) fn accepted(applied: &Applied) -> String {
    format!(
        "{{\"id\":\"{}\",\"accepted\":true,\"status\":\"{}\",\"version\":{}}}",
        applied.id, applied.status, applied.version
    )
}

fn order(mut values: Values<'_>, path: &str, request: &RequestContext) -> Result<JobCommand, Problem> {
    let (id, lease) = job_and_lease(&mut values)?;
    let kind = values.text("outcome").unwrap_or_default();
    let allowed = allowed(&kind);
    if let Some(stranger) =
        fields::OUTCOME.fields.iter().find(|field| values.contains(field.name) && !allowed.contains(&field.name))
    {
        return Err(Problem::field(
            &format!("{path}.{}", stranger.name),
            format!("has no meaning with outcome \"{kind}\""),
        ));
    }
    Ok(JobCommand { id, reach: request.reach.clone(), command: command(&kind, lease, values, request)? })
}

fn allowed(kind: &str) -> &'static [&'static str] {
    match kind {
        "ack" => &["lease", "result", "usage"],
        "nack" => &["lease", "retryable", "reason", "delay", "usage"],
        "defer" => &["lease", "retryAfter", "scope", "reason"],
        _ => &["lease"],
    }
}

fn command(
    kind: &str,
    lease: Option<Lease>,
    mut values: Values<'_>,
    request: &RequestContext,
) -> Result<Command, Problem> {
    let usage = values.amounts("usage").unwrap_or_default();
    let usage = usage.into_iter().map(|(unit, amount)| (unit.into(), amount)).collect();
    let evidence = Evidence { error: values.text("reason").map(Into::into), usage, ..Evidence::default() };
    let outcome = match kind {
        "ack" => {
            let result = values.any("result").map(wire::raw);
            if let Some(result) = result.as_ref().filter(|result| result.len() > request.limits.payload_bytes) {
                let detail = format!(
                    "the result has {} bytes, the limit inline is {}",
                    result.len(),
                    request.limits.payload_bytes
                );
                return Err(Problem::new(crate::error::Code::PayloadTooLarge, detail));
            }
            Outcome::Ack { result }
        }
        "nack" => {
            Outcome::Nack { retryable: values.bool("retryable").unwrap_or(true), delay: values.duration("delay") }
        }
        "defer" => Outcome::Defer {
            retry_after: values.duration("retryAfter"),
            scope: values.text("scope").map(|word| settings::scope(&word)),
            cause: HoldCause::Deferred,
        },
        "cancelled" => Outcome::Cancelled,
        _ => Outcome::Release,
    };
    Ok(Command::Report { lease, outcome, evidence })
}
