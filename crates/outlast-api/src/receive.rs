//! `POST /v1/queues/{queue}/receive`.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use outlast_core::Job;
use outlast_core::checkpoint::Checkpoint;
use outlast_core::state::Phase;
use outlast_store::artifacts::Artifacts;
use outlast_store::jobs::{ClaimRequest, Claimed};

use crate::answers::HandoutMemory;
use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::schema::Value;
use crate::wire::Resume;
use crate::{fields, wire};

pub(crate) async fn receive(mut request: RequestContext) -> Result<Response, Problem> {
    let mut values = request.read(&fields::RECEIVE)?;
    let wait = values.duration("wait").unwrap_or(Duration::ZERO);
    let want = ClaimRequest {
        namespace: request.caller()?.namespace,
        queue: request.queue()?.into(),
        limit: values.usize("batch").unwrap_or(1),
        phase: Phase::Leased,
        visibility: values.duration("visibilityTimeout"),
        worker: values.text("worker").map(Into::into),
    };
    let accepts: Option<Vec<u32>> =
        values.list("acceptsSchema").map(|versions| versions.into_iter().filter_map(schema_version).collect());
    let claimed = hand_out(&mut request, want, wait).await?;
    let resumes = resumes(&request, &claimed, accepts.as_deref()).await?;
    let mut body =
        String::with_capacity(16 + claimed.jobs.iter().map(|job| 512 + job.spec.payload.len()).sum::<usize>());
    body.push_str("{\"jobs\":[");
    for (place, (job, resume)) in claimed.jobs.iter().zip(&resumes).enumerate() {
        if place > 0 {
            body.push(',');
        }
        wire::leased(&mut body, job, &claimed.queue, resume);
    }
    body.push_str("]}");
    Ok(handed_out(body, claimed))
}

/// The answer, which keeps its share of the memory for hand-outs if it is large.
pub(crate) fn handed_out(body: String, claimed: Claimed) -> Response {
    let mut response = wire::ok(StatusCode::OK, body);
    if let Some(share) = claimed.share {
        response.extensions_mut().insert(HandoutMemory(share));
    }
    response
}

fn schema_version(value: Value<'_>) -> Option<u32> {
    match value {
        Value::Int(number) => u32::try_from(number).ok(),
        _ => None,
    }
}

/// The saved work of earlier attempts. If it cannot be read, or the receiver disconnects, the jobs are released, so
/// that no worker repeats saved work.
async fn resumes(request: &RequestContext, claimed: &Claimed, accepts: Option<&[u32]>) -> Result<Vec<Resume>, Problem> {
    if !claimed.jobs.iter().any(|job| job.work_summary.has_checkpoint || job.work_summary.has_sections) {
        return Ok(claimed.jobs.iter().map(|_| Resume::default()).collect());
    }
    let handover = request.rooms.jobs.handover(&claimed.jobs);
    let mut resumes = Vec::with_capacity(claimed.jobs.len());
    for job in &claimed.jobs {
        let kept = request.rooms.jobs.saved_work(job).await?;
        resumes.push(resume(job, kept.unwrap_or_default(), accepts));
    }
    handover.complete();
    Ok(resumes)
}

fn resume(job: &Job, kept: Artifacts, accepts: Option<&[u32]>) -> Resume {
    let is_taken = |checkpoint: &Checkpoint| checkpoint.is_taken_by(accepts);
    let is_incompatible = kept.checkpoint.as_ref().is_some_and(|checkpoint| !is_taken(checkpoint));
    let checkpoint = kept.checkpoint.filter(is_taken).map(|checkpoint| wire::checkpoint(job.id, &checkpoint));
    Resume { checkpoint, is_incompatible, sections: kept.sections }
}

/// Shared with the simple form.
pub(crate) async fn hand_out(
    request: &mut RequestContext,
    want: ClaimRequest,
    wait: Duration,
) -> Result<Claimed, Problem> {
    let name = want.queue.clone();
    let mut claimed = request.rooms.jobs.claim_now(&want).await?;
    if claimed.as_ref().is_some_and(|claimed| claimed.jobs.is_empty() && !claimed.push_only) && !wait.is_zero() {
        drop(claimed);
        let waiting = request.begin_wait()?;
        // On the heap only for those who wait.
        claimed = Box::pin(request.rooms.jobs.claim_waiting(want, wait)).await?;
        request.end_wait(waiting);
    }
    let claimed = claimed.ok_or_else(|| Problem::queue_not_found(&name))?;
    if claimed.push_only {
        let detail = format!("queue \"{name}\" delivers to a webhook; set allowPull to let pullers have its jobs");
        return Err(Problem::new(Code::NotPullable, detail));
    }
    Ok(claimed)
}
