//! `POST /v1/queues/{queue}/receive`.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_core::state::Phase;
use outlast_store::jobs::{Claim, Claimed};

use crate::call::Call;
use crate::error::{Code, Problem};
use crate::fields;
use crate::wire;

pub(crate) async fn receive(call: Call) -> Result<Response, Problem> {
    let mut values = call.read(&fields::RECEIVE)?;
    let wait = values.duration("wait").unwrap_or(Duration::ZERO);
    let want = Claim {
        namespace: call.caller()?.namespace,
        queue: call.queue()?.into(),
        limit: values.usize("batch").unwrap_or(1),
        phase: Phase::Leased,
        visibility: values.duration("visibilityTimeout"),
        worker: values.text("worker").map(Into::into),
    };
    let claimed = hand_out(&call, want, wait).await?;
    let mut body =
        String::with_capacity(16 + claimed.jobs.iter().map(|job| 512 + job.spec.payload.len()).sum::<usize>());
    body.push_str("{\"jobs\":[");
    for (place, job) in claimed.jobs.iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        wire::leased(&mut body, job, &claimed.queue);
    }
    body.push_str("]}");
    Ok(wire::ok(StatusCode::OK, body))
}

/// Shared with the simple form.
pub(crate) async fn hand_out(call: &Call, want: Claim, wait: Duration) -> Result<Claimed, Problem> {
    let name = want.queue.clone();
    let claimed = call.engine.claim(want, wait).await?.ok_or_else(|| Problem::queue_not_found(&name))?;
    if claimed.push_only {
        let detail = format!("queue \"{name}\" delivers to a webhook; set allowPull to let pullers have its jobs");
        return Err(Problem::new(Code::NotPullable, detail));
    }
    Ok(claimed)
}
