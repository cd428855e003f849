//! The calls a worker makes about one job, all with its lease, and what an answer means to it: the lease is lost, the
//! server is away, or this one thing was refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::backoff::Backoff;
use super::line::{Kept, Progress, Report};
use crate::client::transfer::Content;
use crate::client::{Answer, Call};
use crate::commands::Session;
use crate::commands::settings::Fields;
use crate::failure::Failure;
use crate::output::{self, cell};

/// What is larger is uploaded at once: the default of `limits.payload_bytes`. A server with a smaller limit refuses less as
/// too large, and then that is uploaded as well.
pub(crate) const INLINE_BYTES_MAX: usize = 256 * 1024;
const LEASE_HEADER: &str = "x-outlast-lease";

/// Why a call had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The job is not ours any more; nothing that is said about it counts.
    Lost(String),
    /// No answer, or a passing refusal: the same call may succeed later.
    Away(String),
    Refused(String),
    /// The server takes it only as an upload.
    TooLarge(String),
}

pub(crate) struct Desk {
    session: Arc<Session>,
    pub id: String,
    lease: String,
}

impl Desk {
    pub(crate) fn new(session: Arc<Session>, id: &str, lease: &str) -> Desk {
        Desk { session, id: id.to_owned(), lease: lease.to_owned() }
    }

    /// One call; the answer is what the worker should know.
    pub(crate) async fn heartbeat(&self, extend: Duration) -> Result<Value, Trouble> {
        let mut fields = Fields::default();
        fields.set_duration("extend", Some(extend)).map_err(unwritable)?;
        Ok(self.send(Method::POST, "heartbeat", fields).await?.json)
    }

    /// Tells what the program has reported, for as long as the server is away.
    pub(crate) async fn report(&self, report: &Report) -> Result<(), Trouble> {
        let mut patience = self.patience();
        loop {
            match self.report_once(report).await {
                Err(Trouble::Away(why)) => patience.wait(&why).await,
                told => return told.map(drop),
            }
        }
    }

    /// Reports the outcome, for as long as the server is away. Gives the state of the job after it.
    pub(crate) async fn outcome(&self, verb: &str, fields: &Fields) -> Result<String, Trouble> {
        let mut patience = self.patience();
        loop {
            match self.send(Method::POST, verb, fields.clone()).await {
                Err(Trouble::Away(why)) => patience.wait(&why).await,
                told => return told.map(|answer| cell(&answer.json, "status")),
            }
        }
    }

    /// Stores a file as the job's result, for as long as the server is away.
    pub(crate) async fn upload(&self, file: &Path, content: &Content) -> Result<(), Trouble> {
        let path = ["v1", "jobs", &self.id, "result"];
        let mut patience = self.patience();
        loop {
            let mut call = Call::new(Method::PUT, &path).header(LEASE_HEADER, self.lease.as_str());
            if let Some(name) = &content.filename {
                call = call.query("filename", name.as_str());
            }
            match self.weigh(self.session.client.upload(call, file, &content.kind).await) {
                Err(Trouble::Away(why)) => patience.wait(&why).await,
                told => return told.map(drop),
            }
        }
    }

    /// Fetches a checkpoint that is a blob into a file, for as long as the server is away.
    pub(crate) async fn fetch_checkpoint(&self, file: &Path) -> Result<(), Trouble> {
        let path = ["v1", "jobs", &self.id, "checkpoint", "blob"];
        let mut patience = self.patience();
        loop {
            match self.session.client.fetch(Call::get(&path), file).await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_temporary => patience.wait(&failure.message).await,
                Err(failure) => return Err(Trouble::Refused(failure.message)),
            }
        }
    }

    async fn report_once(&self, report: &Report) -> Result<Answer, Trouble> {
        let kept = match report {
            Report::Progress(fields) => return self.send(Method::PUT, "progress", given(fields)?).await,
            Report::Kept(kept) => kept,
        };
        match kept {
            Kept::Checkpoint { schema_version, data, progress } => self.save(schema_version, data, progress).await,
            Kept::Section { name, value } => {
                let path = ["v1", "jobs", &self.id, "sections", name];
                self.exchange(Call::new(Method::PUT, &path).body(value.get().to_owned())).await
            }
            Kept::Output { text } => {
                let mut fields = Fields::default();
                fields.put("text", text.as_str());
                self.send(Method::POST, "output", fields).await
            }
        }
    }

    async fn save(&self, version: &RawValue, data: &RawValue, progress: &Progress) -> Result<Answer, Trouble> {
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
            Err(Trouble::TooLarge(_)) => self.save_as_blob(version, data).await,
            told => told,
        }
    }

    async fn save_as_blob(&self, version: &RawValue, data: &RawValue) -> Result<Answer, Trouble> {
        let path = ["v1", "jobs", &self.id, "checkpoint", "blob"];
        let call = Call::new(Method::PUT, &path).query("schemaVersion", version.get());
        self.exchange(call.body(data.get().to_owned())).await
    }

    async fn send(&self, method: Method, verb: &str, mut fields: Fields) -> Result<Answer, Trouble> {
        fields.put("lease", self.lease.as_str());
        let body = fields.to_json().map_err(unwritable)?;
        let path = ["v1", "jobs", &self.id, verb];
        self.weigh(self.session.client.exchange(Call::new(method, &path).body(body)).await)
    }

    /// The same for a body that is not ours to add to.
    async fn exchange(&self, call: Call<'_>) -> Result<Answer, Trouble> {
        self.weigh(self.session.client.exchange(call.header(LEASE_HEADER, self.lease.as_str())).await)
    }

    fn weigh(&self, answer: Result<Answer, Failure>) -> Result<Answer, Trouble> {
        let answer = match answer {
            Ok(answer) if answer.status.is_success() => return Ok(answer),
            Ok(answer) => answer,
            Err(failure) if failure.is_temporary => return Err(Trouble::Away(failure.message)),
            Err(failure) => return Err(Trouble::Refused(failure.message)),
        };
        let code = answer.json.get("code").and_then(Value::as_str).unwrap_or_default();
        let said = self.session.client.refusal(&answer, &self.id).message;
        Err(match (answer.status, code) {
            (_, "lease_lost" | "not_running" | "outcome_conflict" | "job_not_found" | "job_expired") => {
                Trouble::Lost(said)
            }
            // A key that is not taken for a moment, on a node that has not heard of it, is not the end of hours of work.
            (StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => {
                Trouble::Away(said)
            }
            (_, "payload_too_large") => Trouble::TooLarge(said),
            (status, _) if status.is_server_error() => Trouble::Away(said),
            _ => Trouble::Refused(said),
        })
    }

    fn patience(&self) -> Patience<'_> {
        Patience { id: &self.id, backoff: Backoff::new(&self.lease) }
    }
}

/// The pauses between tries while the server is away. Whoever waits decides how long that is worth it.
struct Patience<'a> {
    id: &'a str,
    backoff: Backoff,
}

impl Patience<'_> {
    async fn wait(&mut self, why: &str) {
        if self.backoff.is_first() {
            output::note(&format!("job {}: {why}; trying again", self.id));
        }
        tokio::time::sleep(self.backoff.next()).await;
    }
}

fn given(progress: &Progress) -> Result<Fields, Trouble> {
    let mut fields = Fields::default();
    for (name, value) in progress {
        fields.set(name, value).map_err(unwritable)?;
    }
    Ok(fields)
}

fn unwritable(failure: Failure) -> Trouble {
    Trouble::Refused(failure.message)
}
