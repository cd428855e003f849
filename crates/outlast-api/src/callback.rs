//! The body of a callback: how a job ended. It is composed in the transaction that ended the job and never again, so
//! that every copy says the same.

use outlast_core::state::{FailReason, ResultMeta};
use outlast_core::system_queue::JOB_TAG;
use outlast_core::{Job, Spec, State};
use outlast_store::outbox::EndedJob;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    id: String,
    queue: &'a str,
    status: &'a str,
    replays: u32,
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

/// The spec of the job that brings the callback.
pub fn compose(ended: &EndedJob<'_>) -> Spec {
    let job = ended.job;
    let inline: Option<&RawValue> = ended.result.and_then(|text| serde_json::from_str(text).ok());
    let has_object = matches!(&job.state, State::Succeeded { result: Some(ResultMeta { inline: false, .. }), .. });
    let body = Body {
        id: job.id.to_string(),
        queue: &ended.queue.name,
        status: job.status().as_str(),
        replays: job.replays,
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
