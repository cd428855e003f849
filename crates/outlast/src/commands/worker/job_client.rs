//! HTTP calls about one job, each with its lease: heartbeat, progress, checkpoint, sections, output, result and outcome.
//! Classifies errors: lease lost, server unavailable, or this call refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::backoff::Backoff;
use super::protocol::{Durable, Progress, Report};
use crate::client::transfer::Content;
use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::commands::settings::Fields;
use crate::failure::Failure;
use crate::output::{self, cell};

/// Larger values are uploaded: the default of `limits.payload_bytes`. A server with a smaller limit answers
/// `payload_too_large`, and the value is uploaded then.
pub(crate) const INLINE_BYTES_MAX: usize = 256 * 1024;
const LEASE_HEADER: &str = "x-outlast-lease";

/// Why a call had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The worker has lost the job; the server ignores further reports about it.
    Lost(String),
    /// No response, or a temporary refusal: the same call may succeed later.
    Unavailable(String),
    Refused(String),
    /// The server accepts it only as an upload.
    TooLarge(String),
}

pub(crate) struct JobClient {
    session: Arc<Session>,
    pub id: String,
    lease: String,
}

impl JobClient {
    pub(crate) fn new(session: Arc<Session>, id: &str, lease: &str) -> JobClient {
        JobClient { session, id: id.to_owned(), lease: lease.to_owned() }
    }

    /// One heartbeat, without retries. Returns the response.
    pub(crate) async fn heartbeat(&self, extend: Duration) -> Result<Value, CallError> {
        let mut fields = Fields::default();
        fields.set_duration("extend", Some(extend)).map_err(unwritable)?;
        Ok(self.send(Method::POST, "heartbeat", fields).await?.json)
    }

    /// Sends a report of the program; retries while the server is unavailable.
    pub(crate) async fn report(&self, report: &Report) -> Result<(), CallError> {
        let mut pause = self.pause();
        loop {
            match self.report_once(report).await {
                Err(CallError::Unavailable(why)) => pause.wait(&why).await,
                result => return result.map(drop),
            }
        }
    }

    /// Reports the outcome; retries while the server is unavailable. Returns the job's status after it.
    pub(crate) async fn outcome(&self, verb: &str, fields: &Fields) -> Result<String, CallError> {
        let mut pause = self.pause();
        loop {
            match self.send(Method::POST, verb, fields.clone()).await {
                Err(CallError::Unavailable(why)) => pause.wait(&why).await,
                result => return result.map(|answer| cell(&answer.json, "status")),
            }
        }
    }

    /// Uploads a file as the job's result; retries while the server is unavailable.
    pub(crate) async fn upload(&self, file: &Path, content: &Content) -> Result<(), CallError> {
        let path = ["v1", "jobs", &self.id, "result"];
        let mut pause = self.pause();
        loop {
            let mut call = Call::new(Method::PUT, &path).header(LEASE_HEADER, self.lease.as_str());
            if let Some(name) = &content.filename {
                call = call.query("filename", name.as_str());
            }
            match self.check(self.session.client.upload(call, file, &content.kind).await) {
                Err(CallError::Unavailable(why)) => pause.wait(&why).await,
                result => return result.map(drop),
            }
        }
    }

    /// Downloads a blob checkpoint into a file; retries while the server is unavailable.
    pub(crate) async fn fetch_checkpoint(&self, file: &Path) -> Result<(), CallError> {
        let path = ["v1", "jobs", &self.id, "checkpoint", "blob"];
        let mut pause = self.pause();
        loop {
            match self.session.client.fetch(Call::get(&path), file).await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_temporary => pause.wait(&failure.message).await,
                Err(failure) => return Err(CallError::Refused(failure.message)),
            }
        }
    }

    async fn report_once(&self, report: &Report) -> Result<Answer, CallError> {
        let kept = match report {
            Report::Progress(fields) => return self.send(Method::PUT, "progress", given(fields)?).await,
            Report::Durable(kept) => kept,
        };
        match kept {
            Durable::Checkpoint { schema_version, data, progress } => self.save(schema_version, data, progress).await,
            Durable::Section { name, value } => {
                let path = ["v1", "jobs", &self.id, "sections", name];
                self.exchange(Call::new(Method::PUT, &path).body(value.get().to_owned())).await
            }
            Durable::Output { text } => {
                let mut fields = Fields::default();
                fields.put("text", text.as_str());
                self.send(Method::POST, "output", fields).await
            }
        }
    }

    async fn save(&self, version: &RawValue, data: &RawValue, progress: &Progress) -> Result<Answer, CallError> {
        if data.get().len() > INLINE_BYTES_MAX {
            return self.save_as_blob(version, data).await;
        }
        let mut fields = Fields::default();
        fields.set("schemaVersion", &version).map_err(unwritable)?;
        fields.set("data", &data).map_err(unwritable)?;
        if !progress.is_empty() {
            fields.set("progress", progress).map_err(unwritable)?;
        }
        match self.send(Method::PUT, "checkpoint", fields).await {
            Err(CallError::TooLarge(_)) => self.save_as_blob(version, data).await,
            result => result,
        }
    }

    async fn save_as_blob(&self, version: &RawValue, data: &RawValue) -> Result<Answer, CallError> {
        let path = ["v1", "jobs", &self.id, "checkpoint", "blob"];
        let call = Call::new(Method::PUT, &path).query("schemaVersion", version.get());
        self.exchange(call.body(data.get().to_owned())).await
    }

    async fn send(&self, method: Method, verb: &str, mut fields: Fields) -> Result<Answer, CallError> {
        fields.put("lease", self.lease.as_str());
        let body = fields.to_json().map_err(unwritable)?;
        let path = ["v1", "jobs", &self.id, verb];
        self.check(self.session.client.exchange(Call::new(method, &path).body(body)).await)
    }

    /// Sends a body that cannot hold the lease; the lease goes into a header.
    async fn exchange(&self, call: Call<'_>) -> Result<Answer, CallError> {
        self.check(self.session.client.exchange(call.header(LEASE_HEADER, self.lease.as_str())).await)
    }

    fn check(&self, answer: Result<Answer, Failure>) -> Result<Answer, CallError> {
        let answer = match answer {
            Ok(answer) if answer.status.is_success() => return Ok(answer),
            Ok(answer) => answer,
            Err(failure) if failure.is_temporary => return Err(CallError::Unavailable(failure.message)),
            Err(failure) => return Err(CallError::Refused(failure.message)),
        };
        let code = answer.json.get("code").and_then(Value::as_str).unwrap_or_default();
        let message = self.session.client.refusal(&answer, &self.id).message;
        Err(match (answer.status, code) {
            (_, "lease_lost" | "not_running" | "outcome_conflict" | "job_not_found" | "job_expired") => {
                CallError::Lost(message)
            }
            // Retried, because a node may not know a new key yet, and hours of work must not be lost for that.
            (StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => {
                CallError::Unavailable(message)
            }
            (_, "payload_too_large") => CallError::TooLarge(message),
            (status, _) if status.is_server_error() => CallError::Unavailable(message),
            _ => CallError::Refused(message),
        })
    }

    fn pause(&self) -> RetryPause<'_> {
        RetryPause { id: &self.id, backoff: Backoff::new(&self.lease) }
    }
}

/// Pauses between retries while the server is unavailable. The caller decides when to give up.
struct RetryPause<'a> {
    id: &'a str,
    backoff: Backoff,
}

impl RetryPause<'_> {
    async fn wait(&mut self, why: &str) {
        if self.backoff.is_first() {
            output::note(&format!("job {}: {why}; retrying", self.id));
        }
        tokio::time::sleep(self.backoff.next()).await;
    }
}

fn given(progress: &Progress) -> Result<Fields, CallError> {
    let mut fields = Fields::default();
    for (name, value) in progress {
        fields.set(name, value).map_err(unwritable)?;
    }
    Ok(fields)
}

fn unwritable(failure: Failure) -> CallError {
    CallError::Refused(failure.message)
}
