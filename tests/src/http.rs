//! A thin JSON client with keep-alive. It tells the three endings of a write apart: acknowledged (a whole 2xx answer),
//! refused (a definite "not stored"), and unknown (the answer was lost, or says nothing definite).

use std::net::IpAddr;
use std::sync::Once;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;

/// The server closes a connection over which nothing comes within 5 s of its opening. A client keeps spare ones, and a
/// request on one that is just being closed would be lost.
const SPARE_MAX: Duration = Duration::from_secs(4);
/// Longer than the longest long poll (30 s); a hit means the server hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

static TLS_PROVIDER: Once = Once::new();

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    pub base: String,
    pub key: String,
}

/// A complete answer. An empty body reads as `null`.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

/// No complete answer came.
#[derive(Debug, Clone)]
pub struct Lost(pub String);

/// How a write ended, in the words of the promises.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Acknowledged,
    Refused { status: u16, code: String },
    Unknown(String),
}

impl Client {
    pub fn new(base: &str, key: &str) -> Client {
        Client::with_timeout(base, key, ANSWER_TIMEOUT)
    }

    pub fn with_timeout(base: &str, key: &str, timeout: Duration) -> Client {
        Client::build(base, key, Client::settings(timeout))
    }

    /// A client that calls from this address of the machine.
    pub fn from_address(base: &str, key: &str, address: IpAddr) -> Client {
        Client::build(base, key, Client::settings(ANSWER_TIMEOUT).local_address(address))
    }

    fn settings(timeout: Duration) -> reqwest::ClientBuilder {
        reqwest::Client::builder().no_proxy().timeout(timeout).pool_idle_timeout(SPARE_MAX)
    }

    fn build(base: &str, key: &str, settings: reqwest::ClientBuilder) -> Client {
        TLS_PROVIDER.call_once(|| {
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        });
        let http = settings.build().expect("the client has no settings that can fail");
        Client { http, base: base.to_owned(), key: key.to_owned() }
    }

    /// The same client for another server. Making a new one costs tens of milliseconds.
    pub fn at(&self, base: &str) -> Client {
        Client { base: base.to_owned(), ..self.clone() }
    }

    pub async fn get(&self, path: &str) -> Result<Reply, Lost> {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Reply, Lost> {
        self.send(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<Reply, Lost> {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Result<Reply, Lost> {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Result<Reply, Lost> {
        self.send(self.request(Method::PATCH, path).json(&body)).await
    }

    /// A request with the key on it, for callers that add headers or a raw body.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.keyless(method, path).bearer_auth(&self.key)
    }

    /// A request without the key.
    pub fn keyless(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Reply, Lost> {
        let response = request.send().await.map_err(lost)?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.bytes().await.map_err(lost)?;
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let reply = Reply { status, headers, body };
        if reply.is_of_proxy_alone() { Err(Lost(format!("{status} of the proxy"))) } else { Ok(reply) }
    }
}

impl Reply {
    /// The body, if the status is the wanted one; panics with the whole answer otherwise.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "unexpected answer: {}", self.body);
        self.body
    }

    /// The body of a problem with this status and code; panics with the whole answer otherwise.
    #[track_caller]
    pub fn expect_problem(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.code()), (status, code), "unexpected answer: {}", self.body);
        self.body
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    /// The proxy got no answer: what became of the request is not known to it either.
    fn is_of_proxy_alone(&self) -> bool {
        let is_nginx = self.headers.get("server").is_some_and(|name| name.as_bytes().starts_with(b"nginx"));
        is_nginx && matches!(self.status, 502 | 504) && self.code().is_empty()
    }

    pub fn ending(&self) -> Ending {
        let definite = self.status < 500 || matches!(self.status, 503 | 507) && !self.code().is_empty();
        match self.status {
            200..=299 => Ending::Acknowledged,
            status if definite => Ending::Refused { status, code: self.code().to_owned() },
            status => Ending::Unknown(format!("status {status}: {}", self.body)),
        }
    }
}

pub fn ending(answer: &Result<Reply, Lost>) -> Ending {
    match answer {
        Ok(reply) => reply.ending(),
        Err(Lost(reason)) => Ending::Unknown(reason.clone()),
    }
}

fn lost(error: reqwest::Error) -> Lost {
    Lost(format!("{error:?}"))
}
