//! The page of a job: read and serialised once for all concurrent requests, so that a job
//! that many clients poll costs little. Access is checked for each caller.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use outlast_core::{JobId, Progress, State, Status};
use outlast_engine::Rooms;
use outlast_engine::keys::token::JobSight;
use outlast_engine::single_flight::SingleFlight;
use outlast_store::jobs::{FoundJob, Reach};
use serde_json::Value;

use crate::answers::Weight;
use crate::error::Problem;
use crate::request::RequestContext;
use crate::{jobs, wire};

/// Jobs that are being looked at.
pub(crate) type Views = SingleFlight<JobId, Result<Option<View>, Problem>>;

/// A job, written out.
#[derive(Clone)]
pub(crate) struct View {
    found: Arc<FoundJob>,
    body: Bytes,
    /// As the body has them, for callers that see a part of it.
    progress: Option<Arc<Progress>>,
    result_meta: Option<Value>,
    /// In seconds, without regard to load; `None` once it has ended.
    retry_after: Option<u64>,
}

/// The job as it is, within the caller's reach.
pub(crate) async fn look(request: &RequestContext, id: JobId) -> Result<View, Problem> {
    request.answers.check_room(request.holder(), Weight::Single)?;
    // All waiting callers share the result, so it must not depend on the share of the caller that reads.
    let reading = || async {
        let _turn = request.answers.shared_turn(request.holder(), Weight::Single).await?;
        read(&request.rooms, id).await
    };
    let view = request.views.share(id, reading).await?;
    view.filter(|view| request.reach.covers(&view.found.queue)).ok_or_else(Problem::job_not_found)
}

/// Reads for all who ask, whatever their reach.
async fn read(rooms: &Rooms, id: JobId) -> Result<Option<View>, Problem> {
    let Some(detail) = rooms.jobs.detail(&Reach::Everything, id).await? else {
        return Ok(None);
    };
    let (mut body, extras) = jobs::shown(rooms, &detail).await;
    let found = detail.found;
    if found.job.status() == Status::Expired {
        add_expired(&mut body);
    }
    let retry_after = (!found.job.status().is_terminal()).then(|| jobs::retry_after(rooms, &found));
    body.shrink_to_fit();
    let (progress, result_meta) = (extras.progress, extras.result_meta);
    Ok(Some(View { found: Arc::new(found), body: body.into(), progress, result_meta, retry_after }))
}

fn add_expired(body: &mut String) {
    body.pop();
    body.push_str(",\"code\":\"job_expired\",\"detail\":\"the result has expired and was deleted; submit the job again if you need it\"}");
}

impl View {
    /// The whole job, or only that it has not changed; 410 once its result has expired.
    pub(crate) fn answer(self, request: &RequestContext) -> Response {
        let mut seen = request.headers.get_all(IF_NONE_MATCH).iter();
        if self.changes_only_with_version() && seen.any(|seen| self.is_named_by(seen)) {
            return self.unchanged(request);
        }
        self.whole(request)
    }

    pub(crate) fn whole(self, request: &RequestContext) -> Response {
        let status = if self.status() == Status::Expired { StatusCode::GONE } else { StatusCode::OK };
        let mut response = match request.sight() {
            JobSight::Whole => wire::ok(status, self.body.clone()),
            JobSight::Watch { .. } => wire::ok(status, self.watched()),
        };
        self.add_headers(&mut response, request);
        response
    }

    /// For one who may watch: how far the job is.
    fn watched(&self) -> String {
        let mut body = wire::watched_job(&self.found.job, self.progress.as_deref(), self.result_meta.as_ref());
        if self.status() == Status::Expired {
            add_expired(&mut body);
        }
        body
    }

    fn unchanged(self, request: &RequestContext) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        self.add_headers(&mut response, request);
        response
    }

    fn add_headers(&self, response: &mut Response, request: &RequestContext) {
        let headers = response.headers_mut();
        if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", self.found.job.version)) {
            headers.insert(ETAG, etag);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, jobs::retry_header(seconds, request.budgets.slots.load_percent()));
        }
    }

    fn status(&self) -> Status {
        self.found.job.status()
    }

    /// Liveness and progress of a running job change without a new version. So do its callback, which is another job,
    /// and how often a result was collected. An expired one is no success, which alone can be "not modified".
    fn changes_only_with_version(&self) -> bool {
        let tells = self.found.job.spec.callback_url.is_some();
        match &self.found.job.state {
            State::Running(_) | State::Expired { .. } => false,
            State::Succeeded { result: Some(_), .. } => false,
            state => !(tells && state.status().is_terminal()),
        }
    }

    /// Does this `If-None-Match` list the current version? A weak ETag is as good as a strong one.
    fn is_named_by(&self, seen: &HeaderValue) -> bool {
        let version = self.found.job.version.to_string();
        seen.to_str().unwrap_or_default().split(',').map(str::trim).any(|etag| {
            let number =
                etag.strip_prefix("W/").unwrap_or(etag).strip_prefix('"').and_then(|etag| etag.strip_suffix('"'));
            etag == "*" || number == Some(version.as_str())
        })
    }
}
