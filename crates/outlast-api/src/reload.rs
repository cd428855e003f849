//! `POST /v1/reload`: the server reads its configuration again, or says why not.

use std::pin::Pin;
use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use outlast_core::queue::FieldError;
use serde_json::json;

use crate::error::{Code, Problem};
use crate::request::RequestContext;
use crate::wire;

/// The changes that were applied.
#[derive(Clone, Debug)]
pub struct ReloadSummary {
    pub sources: usize,
    pub queues: usize,
    /// Other options that have changed.
    pub needs_restart: Vec<String>,
}

/// The configuration is not sound; nothing has changed.
#[derive(Clone, Debug)]
pub struct InvalidConfiguration {
    pub problems: Vec<String>,
}

/// How the program reads its configuration again.
pub type Reload =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<ReloadSummary, InvalidConfiguration>> + Send>> + Send + Sync>;

pub(crate) async fn reload(request: RequestContext) -> Result<Response, Problem> {
    if !request.caller()?.is_operator() {
        return Err(Problem::new(Code::Forbidden, "only an admin key of the namespace default may reload"));
    }
    let Some(reload) = &request.reload else {
        return Err(Problem::new(Code::Unavailable, "this server cannot read its configuration again"));
    };
    let reloaded = reload().await.map_err(|refused| {
        let problem = |message: String| FieldError::new("configuration", message);
        Problem::invalid(refused.problems.into_iter().map(problem).collect())
    })?;
    let body = json!({
        "sources": reloaded.sources, "queues": reloaded.queues, "needsRestart": reloaded.needs_restart,
    });
    Ok(wire::json_ok(StatusCode::OK, &body))
}
