//! The one way out: every request to a URL that somebody gave us leaves through [`Egress`]. The port and its types are
//! here; below it the real connector, which dials only addresses that it has checked itself. Nothing else in the product
//! may open a connection to such a host.

pub mod settings;
pub mod headers;

mod addresses;
mod target;
mod ssrf_guard;
mod host_limits;
mod resolve;
mod stream;
mod dial;
mod connection;
mod pool;
mod client;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;

pub use self::client::{EgressError, HttpEgress};
pub use self::settings::EgressSettings;

/// The port; the simulator has an implementation without a network.
#[async_trait]
pub trait Egress: Send + Sync {
    /// May this URL be stored as a destination? Looks at its shape only, asks no name server, and is no promise: `send` checks
    /// again, addresses included.
    fn check(&self, url: &str) -> Result<(), RefusedUrl>;

    /// Sends one POST and reads the answer, all of it within the request's timeout. Redirects are answers like any
    /// other. May be dropped at any time; the connection goes with it.
    async fn send(&self, request: Outgoing) -> Result<Incoming, SendError>;
}

/// One POST. `headers` are sent as they are, but for those that the connector itself sets.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub url: Arc<str>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// From the call to the last byte of the answer.
    pub timeout: Duration,
    /// Not on a connection that was used before.
    pub fresh: bool,
    /// Of the answer's body so many bytes are kept; where there are more, the connection is dropped.
    pub body_max: usize,
    /// The same for a success that says it is JSON, and so may be a result.
    pub json_max: usize,
}

/// The answer, whatever its status. The body is as it came: never decompressed.
#[derive(Debug, Clone)]
pub struct Incoming {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The body is not all there: too long, too slow, or the connection broke. The status is valid all the same.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    pub phase: SendPhase,
    /// For the owner of the job: what happened, in plain words. The same for all that is blocked.
    pub message: Box<str>,
    is_resolver_outage: bool,
    broke_used_connection: bool,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendPhase {
    /// The destination is not allowed; nothing was dialled.
    Blocked,
    /// Waiting for its turn: too many requests to this host at once, or too fast. Nothing was dialled.
    Wait,
    Resolve,
    Connect,
    Tls,
    /// Not all of the request has left.
    Send,
    /// The request has left and no byte came back.
    FirstByte,
    /// Bytes came back, but no complete head of an answer.
    Head,
}

impl SendPhase {
    /// A stable word for logs and the list of attempts.
    pub fn as_str(self) -> &'static str {
        match self {
            SendPhase::Blocked => "blocked",
            SendPhase::Wait => "wait",
            SendPhase::Resolve => "resolve",
            SendPhase::Connect => "connect",
            SendPhase::Tls => "tls",
            SendPhase::Send => "send",
            SendPhase::FirstByte => "first_byte",
            SendPhase::Head => "head",
        }
    }
}

impl SendError {
    pub fn new(phase: SendPhase, message: impl Into<Box<str>>) -> SendError {
        SendError { phase, message: message.into(), is_resolver_outage: false, broke_used_connection: false }
    }

    /// One text for everything that is blocked, so that nothing can be learnt from it about what is there.
    pub fn blocked() -> SendError {
        SendError::new(SendPhase::Blocked, "blocked destination")
    }

    /// The name server gave no answer at all, about no fault of the destination's.
    pub fn resolver_outage(message: impl Into<Box<str>>) -> SendError {
        SendError { is_resolver_outage: true, ..SendError::new(SendPhase::Resolve, message) }
    }

    /// The request went out on a connection that had been used before, and that broke without a word. The other side may
    /// just have closed it for being idle; or it has read the request and died of it. The two cannot be told apart.
    pub fn broke_used_connection(&self) -> bool {
        self.broke_used_connection
    }

    pub(crate) fn on_used_connection(self) -> SendError {
        SendError { broke_used_connection: true, ..self }
    }

    /// Our own resolver is down, as opposed to a name that does not exist.
    pub fn is_resolver_outage(&self) -> bool {
        self.is_resolver_outage
    }
}

/// Why a URL cannot be a destination: the text says what is allowed, to be shown after the name of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RefusedUrl(pub Box<str>);

impl RefusedUrl {
    pub(crate) fn new(message: impl Into<Box<str>>) -> RefusedUrl {
        RefusedUrl(message.into())
    }
}
