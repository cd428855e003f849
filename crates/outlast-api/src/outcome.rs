//! Outcomes, one by one and in batches.

use axum::response::Response;
use http::StatusCode;
use outlast_core::gate::Cause;
use outlast_core::{Command, Evidence, JobId, Lease, Outcome};
use outlast_store::jobs::{Applied, Declined, Order};
use serde_json::json;

use crate::call::Call;
use crate::error::Problem;
use crate::fields;
use crate::schema::{Object, Value, Values, read_raw};
use crate::{settings, wire};

pub(crate) async fn ack(call: Call) -> Result<Response, Problem> {
    report(call, &fields::ACK, "ack").await
}

pub(crate) async fn nack(call: Call) -> Result<Response, Problem> {
    report(call, &fields::NACK, "nack").await
}

pub(crate) async fn defer(call: Call) -> Result<Response, Problem> {
    report(call, &fields::DEFER, "defer").await
}

pub(crate) async fn release(call: Call) -> Result<Response, Problem> {
    report(call, &fields::RELEASE, "release").await
}

pub(crate) async fn cancelled(call: Call) -> Result<Response, Problem> {
    report(call, &fields::CONFIRM, "cancelled").await
}

async fn report(call: Call, object: &'static Object, kind: &str) -> Result<Response, Problem> {
    let id = call.job()?;
    let mut values = call.read(object)?;
    let lease = lease(&mut values, &call)?;
    let command = command(kind, lease, values, &call)?;
    let order = Order { id, reach: call.reach.clone(), command };
    let applied = call.engine.apply_one(order).await??;
    Ok(wire::ok(StatusCode::OK, accepted(&applied)))
}

/// The lease of the field, else of the header.
pub(crate) fn lease(values: &mut Values<'_>, call: &Call) -> Result<Option<Lease>, Problem> {
    if let Some(text) = values.text("lease") {
        return Ok(text.parse().ok());
    }
    let header = call.header("x-outlast-lease").map(str::parse).transpose();
    header.map_err(|_| Problem::field("x-outlast-lease", "must be the lease as it was handed out"))
}

/// Each outcome is taken or refused on its own.
pub(crate) async fn batch(call: Call) -> Result<Response, Problem> {
    let raws = call.read(&fields::OUTCOMES)?.list("outcomes").unwrap_or_default();
    let mut orders = Vec::with_capacity(raws.len());
    let mut refusals = Vec::with_capacity(raws.len());
    for (place, raw) in raws.iter().enumerate() {
        match order(raw, place, &call) {
            Ok(order) => {
                orders.push(order);
                refusals.push(None);
            }
            Err(problem) => refusals.push(Some(problem)),
        }
    }
    let ids: Vec<JobId> = orders.iter().map(|order| order.id).collect();
    let answers = call.engine.apply(orders).await?;
    let mut answers = ids.into_iter().zip(answers);
    let mut body = String::with_capacity(16 + refusals.len() * 128);
    body.push_str("{\"results\":[");
    for (place, refusal) in refusals.into_iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        match refusal {
            Some(problem) => {
                body.push_str(&json!({"id": null, "accepted": false, "error": problem.to_json()}).to_string())
            }
            None => body.push_str(&answers.next().map(|(id, answer)| batch_answer(id, answer)).unwrap_or_default()),
        }
    }
    body.push_str("]}");
    Ok(wire::ok(StatusCode::OK, body))
}

fn batch_answer(id: JobId, answer: Result<Applied, Declined>) -> String {
    match answer {
        Ok(applied) => accepted(&applied),
        Err(declined) => {
            json!({"id": id.to_string(), "accepted": false, "error": Problem::from(declined).to_json()}).to_string()
        }
    }
}

pub(crate) fn accepted(applied: &Applied) -> String {
    format!(
        "{{\"id\":\"{}\",\"accepted\":true,\"status\":\"{}\",\"version\":{}}}",
        applied.id, applied.status, applied.version
    )
}

fn order(raw: &Value<'_>, place: usize, call: &Call) -> Result<Order, Problem> {
    let Value::Any(raw) = raw else {
        return Err(Problem::field("outcomes", "must be objects"));
    };
    let path = format!("outcomes[{place}]");
    let mut values = read_raw(&fields::OUTCOME, raw, &path).map_err(Problem::invalid)?;
    let id = values.text("id").unwrap_or_default().parse().map_err(|_| Problem::job_not_found())?;
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
    let lease = values.text("lease").and_then(|text| text.parse().ok());
    Ok(Order { id, reach: call.reach.clone(), command: command(&kind, lease, values, call)? })
}

fn allowed(kind: &str) -> &'static [&'static str] {
    match kind {
        "ack" => &["lease", "result", "usage"],
        "nack" => &["lease", "retryable", "reason", "delay"],
        "defer" => &["lease", "retryAfter", "scope", "reason"],
        _ => &["lease"],
    }
}

fn command(kind: &str, lease: Option<Lease>, mut values: Values<'_>, call: &Call) -> Result<Command, Problem> {
    let evidence = Evidence { error: values.text("reason").map(Into::into), ..Evidence::default() };
    let outcome = match kind {
        "ack" => {
            let result = values.any("result").map(wire::raw);
            if let Some(result) = result.as_ref().filter(|result| result.len() > call.limits.payload_bytes) {
                let detail =
                    format!("the result has {} bytes, the limit inline is {}", result.len(), call.limits.payload_bytes);
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
            cause: Cause::Deferred,
        },
        "cancelled" => Outcome::Cancelled,
        _ => Outcome::Release,
    };
    Ok(Command::Report { lease, outcome, evidence })
}
