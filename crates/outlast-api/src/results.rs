//! Results: what is known of them, and how they are collected.

use axum::response::Response;
use http::StatusCode;
use outlast_core::{State, Status};
use outlast_store::jobs::Found;
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::{Code, Problem};
use crate::wire;

pub(crate) async fn show(call: Call) -> Result<Response, Problem> {
    let id = call.job()?;
    let found = call.engine.store().job(&call.reach, id).await?.ok_or_else(Problem::job_not_found)?;
    if found.job.status() == Status::Expired {
        return Err(Problem::new(
            Code::JobExpired,
            "the result has expired and was deleted; submit the job again if you need it",
        ));
    }
    match call.engine.store().result(&call.reach, id).await? {
        Some(inline) => Ok(wire::ok(StatusCode::OK, inline.body.to_string())),
        None => Err(Problem::new(Code::ResultNotFound, format!("the job is {} and has no result", found.job.status()))),
    }
}

/// What is shown of a result with its job.
pub(crate) async fn meta(call: &Call, found: &Found) -> Result<Option<Value>, Problem> {
    let State::Succeeded { result: Some(result), .. } = &found.job.state else {
        return Ok(None);
    };
    let inline = call.engine.store().result(&call.reach, found.job.id).await?;
    Ok(inline.map(|inline| {
        json!({
            "length": result.length, "contentType": "application/json", "filename": null, "sha256": null,
            "downloadCount": inline.downloads,
        })
    }))
}
