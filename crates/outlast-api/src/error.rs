//! Problems as clients see them: RFC 9457 with a stable `code`. Every code is defined here once, with its status and
//! title; docs/reference/ERRORS.md lists the same ones, and a test compares the two.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use outlast_core::Refusal;
use outlast_core::queue::{FieldError, is_name};
use outlast_engine::queues::secrets::SecretError;
use outlast_store::Error;
use outlast_store::jobs::Declined;
use serde_json::{Map, Value, json};

/// On every answer with a route, and on every problem: a client knows by it which fields this server takes.
pub(crate) const SERVER_VERSION: HeaderName = HeaderName::from_static("x-outlast-version");
pub(crate) const VERSION: HeaderValue = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    InvalidRequest,
    LeaseRequired,
    Unauthorized,
    Forbidden,
    RouteNotFound,
    QueueNotFound,
    JobNotFound,
    ResultNotFound,
    CheckpointNotFound,
    SectionNotFound,
    UploadNotFound,
    ResultMissing,
    ResultDamaged,
    KeyNotFound,
    OperationNotFound,
    EventNotFound,
    SourceNotFound,
    MethodNotAllowed,
    RequestTimeout,
    QueueExists,
    QueueNotEmpty,
    LeaseLost,
    NotRunning,
    OutcomeConflict,
    NoCancelRequested,
    NotReplayable,
    KeyTaken,
    LastAdminKey,
    PayloadFixed,
    ResultExists,
    OutputFull,
    OutputGap,
    SectionsFull,
    UploadsFull,
    NotPullable,
    JobExpired,
    VersionMismatch,
    SetByFile,
    PayloadTooLarge,
    UriTooLong,
    UnsupportedMediaType,
    TooManyRequests,
    Overloaded,
    Draining,
    Unavailable,
    StoreUnavailable,
    BlobsUnavailable,
    SecretsSealed,
    DiskFull,
    UnsupportedTransferEncoding,
    DataDamaged,
    JobSetAside,
    Internal,
}

impl Code {
    pub const ALL: [Code; 53] = [
        Code::InvalidRequest,
        Code::LeaseRequired,
        Code::Unauthorized,
        Code::Forbidden,
        Code::RouteNotFound,
        Code::QueueNotFound,
        Code::JobNotFound,
        Code::ResultNotFound,
        Code::CheckpointNotFound,
        Code::SectionNotFound,
        Code::UploadNotFound,
        Code::ResultMissing,
        Code::ResultDamaged,
        Code::KeyNotFound,
        Code::OperationNotFound,
        Code::EventNotFound,
        Code::SourceNotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::QueueExists,
        Code::QueueNotEmpty,
        Code::LeaseLost,
        Code::NotRunning,
        Code::OutcomeConflict,
        Code::NoCancelRequested,
        Code::NotReplayable,
        Code::KeyTaken,
        Code::LastAdminKey,
        Code::PayloadFixed,
        Code::ResultExists,
        Code::OutputFull,
        Code::OutputGap,
        Code::SectionsFull,
        Code::UploadsFull,
        Code::NotPullable,
        Code::JobExpired,
        Code::VersionMismatch,
        Code::SetByFile,
        Code::PayloadTooLarge,
        Code::UriTooLong,
        Code::UnsupportedMediaType,
        Code::TooManyRequests,
        Code::Overloaded,
        Code::Draining,
        Code::Unavailable,
        Code::StoreUnavailable,
        Code::BlobsUnavailable,
        Code::SecretsSealed,
        Code::DiskFull,
        Code::UnsupportedTransferEncoding,
        Code::DataDamaged,
        Code::JobSetAside,
        Code::Internal,
    ];

    /// Name, HTTP status, title.
    pub fn facts(self) -> (&'static str, u16, &'static str) {
        match self {
            Code::InvalidRequest => ("invalid_request", 400, "The request is not valid"),
            Code::LeaseRequired => ("lease_required", 400, "This queue requires the lease"),
            Code::Unauthorized => ("unauthorized", 401, "No valid credentials"),
            Code::Forbidden => ("forbidden", 403, "The key lacks a scope"),
            Code::RouteNotFound => ("route_not_found", 404, "No such URL"),
            Code::QueueNotFound => ("queue_not_found", 404, "No such queue"),
            Code::JobNotFound => ("job_not_found", 404, "No such job"),
            Code::ResultNotFound => ("result_not_found", 404, "The job has no result"),
            Code::CheckpointNotFound => ("checkpoint_not_found", 404, "The job has no checkpoint"),
            Code::SectionNotFound => ("section_not_found", 404, "The job has no such section"),
            Code::UploadNotFound => ("upload_not_found", 404, "There is no such upload"),
            Code::ResultMissing => ("result_missing", 502, "The result is gone from the object store"),
            Code::ResultDamaged => ("result_damaged", 502, "The stored bytes are damaged"),
            Code::KeyNotFound => ("key_not_found", 404, "No such key"),
            Code::OperationNotFound => ("operation_not_found", 404, "No such operation"),
            Code::EventNotFound => ("event_not_found", 404, "No such event"),
            Code::SourceNotFound => ("source_not_found", 404, "No such source"),
            Code::SetByFile => ("set_by_file", 409, "The configuration file says otherwise"),
            Code::MethodNotAllowed => ("method_not_allowed", 405, "Method not allowed"),
            Code::RequestTimeout => ("request_timeout", 408, "The request body came too slowly"),
            Code::QueueExists => ("queue_exists", 409, "The queue exists already"),
            Code::QueueNotEmpty => ("queue_not_empty", 409, "The queue has jobs"),
            Code::LeaseLost => ("lease_lost", 409, "The lease is no longer valid"),
            Code::NotRunning => ("not_running", 409, "The job is not running"),
            Code::OutcomeConflict => ("outcome_conflict", 409, "Another outcome was reported before"),
            Code::NoCancelRequested => ("no_cancel_requested", 409, "No cancel was requested"),
            Code::NotReplayable => ("not_replayable", 409, "The job cannot be replayed"),
            Code::LastAdminKey => ("last_admin_key", 409, "The last admin key"),
            Code::KeyTaken => ("key_taken", 409, "Another job has the idempotency key"),
            Code::PayloadFixed => ("payload_fixed", 409, "The payload cannot be changed"),
            Code::ResultExists => ("result_exists", 409, "A result was uploaded already"),
            Code::OutputGap => ("output_gap", 409, "A part of the output is missing"),
            Code::OutputFull => ("output_full", 409, "The job has as much output as it may"),
            Code::SectionsFull => ("sections_full", 409, "The job has as many sections as it may"),
            Code::UploadsFull => ("uploads_full", 409, "The job has as many uploads as it may"),
            Code::NotPullable => ("not_pullable", 409, "The queue is pushed, not pulled"),
            Code::JobExpired => ("job_expired", 410, "The result has expired"),
            Code::VersionMismatch => ("version_mismatch", 412, "Someone else changed it"),
            Code::PayloadTooLarge => ("payload_too_large", 413, "Too large"),
            Code::UriTooLong => ("uri_too_long", 414, "The URL is too long"),
            Code::UnsupportedMediaType => ("unsupported_media_type", 415, "This encoding is not accepted"),
            Code::TooManyRequests => ("too_many_requests", 429, "A limit is reached"),
            Code::Overloaded => ("overloaded", 503, "The server is busy"),
            Code::Draining => ("draining", 503, "The server is shutting down"),
            Code::Unavailable => ("unavailable", 503, "The store does not answer"),
            Code::StoreUnavailable => ("store_unavailable", 503, "The database cannot be reached"),
            Code::BlobsUnavailable => ("blobs_unavailable", 503, "The object store cannot be reached"),
            Code::SecretsSealed => ("secrets_sealed", 503, "Signing secrets cannot be opened"),
            Code::DiskFull => ("disk_full", 507, "The disk is full"),
            Code::UnsupportedTransferEncoding => {
                ("unsupported_transfer_encoding", 501, "This transfer encoding is not understood")
            }
            Code::DataDamaged => ("data_damaged", 500, "Stored data is damaged"),
            Code::JobSetAside => ("job_set_aside", 500, "The job was set aside"),
            Code::Internal => ("internal", 500, "Something broke"),
        }
    }

    pub fn name(self) -> &'static str {
        self.facts().0
    }
}

/// An answer that is not a success.
#[derive(Clone, Debug)]
pub struct Problem {
    /// `None`: the outcome is unknown, and no code may claim otherwise.
    code: Option<Code>,
    detail: String,
    errors: Vec<FieldError>,
    retry_after_seconds: Option<u32>,
    allow: Option<String>,
    /// The connection is closed behind the answer.
    closes: bool,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let retry_after_seconds = match code {
            Code::TooManyRequests
            | Code::Overloaded
            | Code::Unavailable
            | Code::StoreUnavailable
            | Code::BlobsUnavailable => Some(1),
            Code::Draining | Code::DiskFull => Some(5),
            _ => None,
        };
        Problem {
            code: Some(code),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_seconds,
            allow: None,
            closes: false,
        }
    }

    /// 400 with the fields at fault.
    pub fn invalid(errors: Vec<FieldError>) -> Problem {
        let named: Vec<String> = errors.iter().map(|error| format!("{} {}", error.field, error.message)).collect();
        let detail = if named.is_empty() { "the request is not valid".to_owned() } else { named.join("; ") };
        Problem { errors, ..Problem::new(Code::InvalidRequest, detail) }
    }

    pub fn field(field: &str, message: impl Into<String>) -> Problem {
        Problem::invalid(vec![FieldError::new(field, message)])
    }

    /// The fields at fault.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// The same about one entry of a list: its fields are named with their place.
    pub(crate) fn at(self, place: &str) -> Problem {
        if self.errors.is_empty() {
            return self;
        }
        let named = |error: FieldError| FieldError::new(format!("{place}.{}", error.field), error.message);
        Problem::invalid(self.errors.into_iter().map(named).collect())
    }

    /// A place in a job's log that it has not come to.
    pub(crate) fn beyond(given_as: &str, last: u64) -> Problem {
        Problem::field(given_as, format!("must be the id of an event of this job, which has {last} events so far"))
    }

    pub fn queue_not_found(name: &str) -> Problem {
        let detail = match is_name(name) {
            true => format!("queue \"{name}\" does not exist for this key; create it with PUT /v1/queues/{name}"),
            // An invalid name is not repeated, because it may contain anything.
            false => "no queue has a name like this; check the URL".to_owned(),
        };
        Problem::new(Code::QueueNotFound, detail)
    }

    pub fn job_not_found() -> Problem {
        Problem::new(
            Code::JobNotFound,
            "no job with this id; check the id and that the key belongs to the same namespace",
        )
    }

    pub(crate) fn method_not_allowed(allow: String) -> Problem {
        let detail = format!("this URL takes {allow}");
        Problem { allow: Some(allow), ..Problem::new(Code::MethodNotAllowed, detail) }
    }

    /// Whatever went wrong after a write was committed: a code would claim that nothing was stored.
    pub(crate) fn after_commit(self) -> Problem {
        tracing::warn!(detail = self.detail, "write was stored, but its answer could not be built");
        Problem::indeterminate()
    }

    pub(crate) fn quota_reached(waiting_max: u64) -> Problem {
        let detail = format!("this namespace has {waiting_max} waiting jobs, which is the limit; nothing was stored");
        Problem::new(Code::TooManyRequests, detail)
    }

    /// The address has sent too many wrong keys, and this was another one.
    pub(crate) fn wrong_key_again(wait: Duration) -> Problem {
        let seconds = u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX);
        let detail = "too many wrong keys from this address; send a valid key";
        Problem { retry_after_seconds: Some(seconds), closes: true, ..Problem::new(Code::TooManyRequests, detail) }
    }

    /// 500 without a code: whether the request was stored is unknown.
    pub(crate) fn indeterminate() -> Problem {
        let detail = "the server stopped before the write was confirmed; check, or retry with the same idempotency key";
        Problem { code: None, ..Problem::new(Code::Internal, detail) }
    }

    fn status(&self) -> StatusCode {
        let (_, status, _) = self.code.unwrap_or(Code::Internal).facts();
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body; also the form errors have inside a batch answer.
    pub(crate) fn to_json(&self) -> Value {
        let (name, status, title) = self.code.unwrap_or(Code::Internal).facts();
        let mut body = Map::new();
        if self.code.is_some() {
            body.insert("type".to_owned(), json!(format!("urn:outlast:error:{name}")));
            body.insert("code".to_owned(), json!(name));
        }
        body.insert("title".to_owned(), json!(title));
        body.insert("status".to_owned(), json!(status));
        body.insert("detail".to_owned(), json!(self.detail));
        if !self.errors.is_empty() {
            let errors: Vec<Value> =
                self.errors.iter().map(|error| json!({"field": error.field, "message": error.message})).collect();
            body.insert("errors".to_owned(), Value::Array(errors));
        }
        Value::Object(body)
    }

    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_json().to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(SERVER_VERSION, VERSION);
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.code == Some(Code::Unauthorized) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        match error {
            Error::Overloaded => Problem::new(
                Code::Overloaded,
                "too many writes are waiting for the disk; nothing was stored, try again",
            ),
            Error::QuotaReached { waiting_max } => Problem::quota_reached(waiting_max),
            Error::DiskFull => Problem::new(Code::DiskFull, "the server's disk is full; nothing was stored"),
            Error::Unavailable => {
                Problem::new(Code::StoreUnavailable, "the database cannot be reached; nothing was stored, try again")
            }
            Error::Stopped => Problem::new(Code::Unavailable, "the store has stopped; nothing was stored"),
            Error::Indeterminate => Problem::indeterminate(),
            Error::Corrupt(_) => Problem::new(
                Code::DataDamaged,
                "the stored data is damaged and is not served; nothing was stored; the operator can restore it from a \
                 backup",
            ),
            Error::Unreadable(what) => {
                tracing::error!(what, "the store could not be read");
                Problem::new(Code::Internal, "stored data could not be read; the server's log says more")
            }
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Problem {
        match error {
            SecretError::Store(error) => error.into(),
            SecretError::Headers(refused) => Problem::field("headers", refused.to_string()),
            SecretError::NothingToKeep { header } => Problem::field(
                &format!("headers.{header}"),
                "is masked, and there is no value to keep: it was not set, or webhookUrl moves to another host; send the value",
            ),
            SecretError::Sealed { .. } | SecretError::OtherKey { .. } => {
                tracing::error!(%error, "signing secrets cannot be opened; configure the secret_key of the other nodes");
                let detail = "this server lacks the key that the store's signing secrets are sealed with; nothing was \
                              stored; the operator must give it the same secret_key as the other nodes";
                Problem::new(Code::SecretsSealed, detail)
            }
        }
    }
}

impl From<Declined> for Problem {
    fn from(declined: Declined) -> Problem {
        let refusal = match declined {
            Declined::NotFound => return Problem::job_not_found(),
            Declined::Refused(refusal) => refusal,
        };
        let (code, advice) = match refusal {
            Refusal::LeaseLost => (Code::LeaseLost, "stop working on it: it was or will be handed out again"),
            Refusal::LeaseRequired => (Code::LeaseRequired, "send the lease that came with the job"),
            Refusal::NotRunning { .. } => (Code::NotRunning, "only a job that is handed out can have an outcome"),
            Refusal::OutcomeConflict { .. } => {
                (Code::OutcomeConflict, "the first outcome counts, and only the same one may be reported again")
            }
            Refusal::NotReplayable { .. } => (Code::NotReplayable, "wait until it has failed, or cancel it first"),
            Refusal::KeyTaken { .. } => (Code::KeyTaken, "one key has one live job; look at that one instead"),
            Refusal::PayloadFixed => (Code::PayloadFixed, "replay it without a payload"),
            Refusal::NotQueued { .. } => (Code::NotRunning, "it cannot be handed out"),
            Refusal::ResultExists => (Code::ResultExists, "ack without a result to keep what was uploaded"),
            Refusal::OutputGap { .. } => {
                (Code::OutputGap, "send the parts in order, each with the number after the last one")
            }
            Refusal::OutputFull => (Code::OutputFull, "put long texts into the result"),
            Refusal::SectionsFull => (Code::SectionsFull, "put more into each"),
            Refusal::SetAside => (Code::JobSetAside, "its error says which rule; the operator can replay it"),
            Refusal::NoCancelRequested => (Code::NoCancelRequested, "report ack, nack, defer or release instead"),
        };
        Problem::new(code, format!("{refusal}; {advice}"))
    }
}
