//! The job that tells a callback URL how another job ended. Its payload is made in the transaction that ended the job and
//! never again, so that every copy says the same.

use outlast_core::state::{FailReason, ResultMeta};
use outlast_core::{Job, Queue, Spec, State};
use serde::Serialize;
use serde_json::value::RawValue;

/// The tag under which the callbacks of a job are found.
pub const JOB_TAG: &str = "job";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    id: String,
    queue: &'a str,
    status: &'a str,
    run: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
    error: Option<Failure<'a>>,
    finished_at: Option<String>,
}

#[derive(Serialize)]
struct Failure<'a> {
    reason: &'a str,
    message: Option<&'a str>,
}

/// What to publish to the queue of callbacks for a job that has just ended, with its inline result if it has one.
pub fn spec(job: &Job, queue: &Queue, result: Option<&str>) -> Spec {
    let inline: Option<&RawValue> = result.and_then(|text| serde_json::from_str(text).ok());
    let has_object = matches!(&job.state, State::Succeeded { result: Some(ResultMeta { inline: false, .. }), .. });
    let body = Body {
        id: job.id.to_string(),
        queue: &queue.name,
        status: job.status().as_str(),
        run: job.run,
        result: inline,
        result_url: has_object.then(|| format!("/v1/jobs/{}/result", job.id)),
        error: failure(job),
        finished_at: job.finished_at().map(|at| at.to_string()),
    };
    Spec {
        payload: serde_json::to_string(&body).unwrap_or_default().into(),
        callback_url: job.spec.callback_url.clone(),
        tags: vec![(JOB_TAG.into(), job.id.to_string().into())],
        traceparent: job.spec.traceparent.clone(),
        ..Spec::default()
    }
}

fn failure(job: &Job) -> Option<Failure<'_>> {
    let reason = match &job.state {
        State::Failed { reason, .. } => FailReason::as_str(*reason),
        State::Cancelled { reason, .. } => reason.as_str(),
        _ => return None,
    };
    Some(Failure { reason, message: job.last_error.as_deref() })
}
