//! HTTP client of the command line, for the public API only. Finds the server and the key, bounds every call in time and
//! size, and turns refusals into failures with an exit code.

pub(crate) mod find;
pub(crate) mod page;
pub(crate) mod transfer;
pub(crate) mod stream;
mod webhook;
mod refusal;

use std::path::PathBuf;
use std::time::Duration;

use outlast_core::time::parse_duration;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::{Environment, Secret};
use crate::failure::{Exit, Failure};

use find::{Found, KeySource};

/// No answer of the API comes near this; more is refused rather than kept in memory.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Flags of every command that talks to a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Remote {
    /// Base URL of the server [environment: OUTLAST_URL] [default: from the file, or http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub url: Option<String>,
    /// API key [environment: OUTLAST_KEY] [default: the content of admin.key in the data directory]
    #[arg(long, global = true, value_name = "KEY", help_heading = "Global options")]
    pub key: Option<String>,
    /// Data directory of the server [environment: OUTLAST_DATA] [default: from the file, or ./outlast-data]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub data: Option<PathBuf>,
    /// Configuration file of the server [environment: OUTLAST_CONFIG] [default: ./outlast.yaml if it exists]
    #[arg(short, long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// Timeout of a request, in addition to any --wait
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration, help_heading = "Global options")]
    pub timeout: Duration,
    /// JSON output; a failure is a problem document on stdout too
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

/// The same flags where no server is called: hidden, so that help does not offer them, and refused when given.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct NoServer {
    #[arg(long, global = true, hide = true)]
    url: Option<String>,
    #[arg(long, global = true, hide = true)]
    key: Option<String>,
    #[arg(long, global = true, hide = true, default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

/// For flags: seconds, or `500ms`, `30s`, `5m`, `2h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "not a duration; write 30, 500ms, 30s, 5m, 2h or 7d".to_owned())
}

pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<Secret>,
    pub key_source: KeySource,
    timeout: Duration,
}

/// One request. The path is given in segments, so that a name can never reach into another route.
pub(crate) struct Call<'a> {
    pub method: Method,
    pub path: &'a [&'a str],
    pub query: Vec<(&'a str, String)>,
    pub headers: Vec<(&'static str, String)>,
    /// JSON text.
    pub body: Option<String>,
    /// How long the server was asked to hold the answer; added to the timeout.
    pub wait: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: &'a [&'a str]) -> Call<'a> {
        Call { method, path, query: Vec::new(), headers: Vec::new(), body: None, wait: Duration::ZERO }
    }

    pub(crate) fn get(path: &'a [&'a str]) -> Call<'a> {
        Call::new(Method::GET, path)
    }

    pub(crate) fn post(path: &'a [&'a str]) -> Call<'a> {
        Call::new(Method::POST, path)
    }

    pub(crate) fn delete(path: &'a [&'a str]) -> Call<'a> {
        Call::new(Method::DELETE, path)
    }

    pub(crate) fn query(mut self, name: &'a str, value: impl Into<String>) -> Call<'a> {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Call<'a> {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(self, json: String) -> Call<'a> {
        Call { body: Some(json), ..self }
    }

    pub(crate) fn wait(self, wait: Duration) -> Call<'a> {
        Call { wait, ..self }
    }
}

/// A whole answer: the text as it came, and what it says.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub text: String,
    /// Null when the body is not JSON.
    pub json: Value,
}

impl Client {
    pub(crate) fn new(remote: &Remote, environment: &Environment) -> Result<Client, Failure> {
        let Found { base, key, key_source } = find::server(remote, environment)?;
        #[expect(clippy::disallowed_methods, reason = "the command line calls the server that its user names")]
        let builder = reqwest::Client::builder();
        let http = builder
            .connect_timeout(Duration::from_secs(5).min(remote.timeout))
            // A redirect would carry the key elsewhere; a proxy from the environment could stand before localhost.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("outlast-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::usage(format!("cannot make an HTTP client: {}", cause(&error))))?;
        Ok(Client { http, base, key, key_source, timeout: remote.timeout })
    }

    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A successful answer with a JSON body, or none; everything else is a failure.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let path: Vec<String> = call.path.iter().map(|segment| (*segment).to_owned()).collect();
        let answer = self.exchange(call).await?;
        if !answer.status.is_success() {
            return Err(refusal::failure(&answer, &path, &self.key_source));
        }
        if answer.json.is_null() && !answer.text.trim().is_empty() {
            let message = format!("the answer of {} is not JSON", self.base());
            return Err(Failure::new(Exit::Refused, message).with_hint("does --url point to an Outlast server?"));
        }
        Ok(answer)
    }

    /// A job by id. An expired job is answered with 410 and the job; that is an answer, not a failure.
    pub(crate) async fn job(
        &self,
        id: &str,
        query: &[(&'static str, String)],
        wait: Duration,
    ) -> Result<Answer, Failure> {
        let path = ["v1", "jobs", id];
        let call = Call { query: query.to_vec(), ..Call::get(&path) };
        let answer = self.exchange(call.wait(wait)).await?;
        let is_job = answer.json.get("status").is_some_and(Value::is_string);
        if is_job && (answer.status.is_success() || answer.status == StatusCode::GONE) {
            return Ok(answer);
        }
        Err(refusal::failure(&answer, &path.map(str::to_owned), &self.key_source))
    }

    /// Any answer, whatever its status; fails only when there is none.
    pub(crate) async fn exchange(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let timeout = self.timeout.saturating_add(call.wait);
        let request = self.request(call)?.timeout(timeout);
        let response = request.send().await.map_err(|error| self.unreachable(&error, timeout))?;
        self.read(response, timeout).await
    }

    /// A refusing answer about a job, as a failure.
    pub(crate) fn refusal(&self, answer: &Answer, id: &str) -> Failure {
        refusal::failure(answer, &["v1", "jobs", id].map(str::to_owned), &self.key_source)
    }

    /// The key, for a program that is trusted with it.
    pub(crate) fn key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    async fn read(&self, mut response: Response, timeout: Duration) -> Result<Answer, Failure> {
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error, timeout))? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                let message = format!("the answer of {} is larger than {ANSWER_BYTES_MAX} bytes", self.base());
                return Err(Failure::new(Exit::Refused, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status, text, json })
    }

    fn request(&self, call: Call<'_>) -> Result<RequestBuilder, Failure> {
        let mut request = self.http.request(call.method, self.address(call.path)?);
        if !call.query.is_empty() {
            request = request.query(&call.query);
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        if let Some(body) = call.body {
            request = request.header("content-type", "application/json").body(body);
        }
        Ok(request)
    }

    fn address(&self, path: &[&str]) -> Result<Url, Failure> {
        for segment in path {
            // URL rules would drop these and lead to another route.
            if matches!(*segment, "" | "." | "..") {
                return Err(Failure::usage(format!("\"{segment}\" is not a name or an id")));
            }
        }
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => return Err(Failure::usage(format!("\"{}\" cannot be a base URL", self.base))),
        };
        Ok(url)
    }

    fn unreachable(&self, error: &reqwest::Error, timeout: Duration) -> Failure {
        if error.is_builder() {
            return Failure::usage(format!("cannot make the request: {}", cause(error)))
                .with_hint("does the key hold line breaks or other control characters?");
        }
        if error.is_timeout() {
            return self.silent(timeout);
        }
        let cause = cause(error);
        // The error of a TLS client that gets plain text.
        if self.base.scheme() == "https" && cause.contains("corrupt message") {
            let message = format!("{} does not speak TLS: this port speaks plain HTTP", self.base());
            return Failure::new(Exit::Unreachable, message).with_hint("use http:// instead of https://");
        }
        away(format!("cannot reach {}: {cause}", self.base()))
    }

    fn silent(&self, timeout: Duration) -> Failure {
        away(format!("no answer from {} within {timeout:?}", self.base()))
    }
}

impl Answer {
    /// A part of the answer as the server wrote it: numbers keep all their digits.
    pub(crate) fn raw(&self, field: &str) -> Option<String> {
        let fields: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_str(&self.text).ok()?;
        fields.get(field).map(|raw| raw.get().to_owned())
    }
}

fn away(message: String) -> Failure {
    let hint = "start a server with `outlast serve`, or give its address with --url or OUTLAST_URL";
    Failure { is_temporary: true, ..Failure::new(Exit::Unreachable, message).with_hint(hint) }
}

/// The innermost cause: "connection refused" says more than the layers around it.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests;
