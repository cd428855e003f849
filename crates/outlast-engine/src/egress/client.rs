//! The connector: guard, host limits, pool, resolver and dialer put together. Follows nothing, asks no proxy, keeps no cookies,
//! and decompresses nothing.

use async_trait::async_trait;
use hickory_resolver::net::NetError;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, USER_AGENT,
};
use http::{Method, Request};
use http_body_util::Full;
use tokio::time::Instant;

use super::connection::{Bounds, Connection, NoAnswer};
use super::dial::Dialer;
use super::host_limits::HostLimits;
use super::pool::Pool;
use super::resolve::Resolver;
use super::settings::{Deadlines, EgressSettings};
use super::ssrf_guard::SsrfGuard;
use super::target::Target;
use super::{Egress, Incoming, Outgoing, RefusedUrl, SendError};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("outlast/", env!("CARGO_PKG_VERSION")));
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// They belong to the connection; a caller's would break it.
const OURS: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The real way out. One for the whole process, since limits and connections are per host.
pub struct HttpEgress {
    guard: SsrfGuard,
    host_limits: HostLimits,
    pool: Pool,
    resolver: Resolver,
    dialer: Dialer,
    deadlines: Deadlines,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("the certificate authorities cannot be used")]
    Certificates(#[source] rustls::Error),
    #[error("the resolver cannot be set up")]
    Resolver(#[source] NetError),
}

impl HttpEgress {
    /// Reads the system's certificate authorities, hosts file and resolver configuration; opens nothing.
    pub fn new(settings: EgressSettings) -> Result<HttpEgress, EgressError> {
        let guard = SsrfGuard::new(&settings);
        let resolver = Resolver::new(&settings.nameservers, guard.allows_private()).map_err(EgressError::Resolver)?;
        let dialer = Dialer::new(&settings.extra_roots, settings.deadlines).map_err(EgressError::Certificates)?;
        let host_limits = HostLimits::new(settings.per_host_concurrency, settings.per_host_rate);
        Ok(HttpEgress { guard, host_limits, pool: Pool::new(), resolver, dialer, deadlines: settings.deadlines })
    }

    fn target(&self, url: &str) -> Result<Target, RefusedUrl> {
        let target = Target::parse(url)?;
        self.guard.check_target(&target)?;
        Ok(target)
    }

    /// A fresh connection: resolved, checked, dialled, checked again.
    async fn open(&self, target: &Target, deadline: Instant) -> Result<Connection, SendError> {
        let resolve_deadline = deadline.min(Instant::now() + self.deadlines.resolve);
        let addresses = self.resolver.addresses(&target.origin, &self.guard, resolve_deadline).await?;
        let transport = self.dialer.dial(target, &addresses, &self.guard, deadline).await?;
        Connection::open(transport).await
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        target: &Target,
        request: &Outgoing,
        bounds: Bounds,
    ) -> Result<Incoming, NoAnswer> {
        let answer = connection.exchange(post(target, request), bounds).await?;
        self.pool.put(&target.origin, connection);
        Ok(answer)
    }
}

#[async_trait]
impl Egress for HttpEgress {
    fn check(&self, url: &str) -> Result<(), RefusedUrl> {
        self.target(url).map(|_| ())
    }

    async fn send(&self, request: Outgoing) -> Result<Incoming, SendError> {
        let deadline = Instant::now() + request.timeout;
        let target = self.target(&request.url).map_err(|_| SendError::blocked())?;
        // Whoever waits longer for his turn would have too little time left to be answered in.
        let turn_deadline = deadline - request.timeout / 2;
        let _turn = self.host_limits.enter(&target.origin.place, turn_deadline).await?;
        let bounds = Bounds {
            deadline,
            first_byte: self.deadlines.first_byte,
            body_max: request.body_max,
            json_max: request.json_max,
        };
        let used = if request.fresh { None } else { self.pool.take(&target.origin) };
        if let Some(connection) = used {
            match self.exchange(connection, &target, &request, bounds).await {
                // The other side closed a connection that was idle, and nothing has left: that is no failed request.
                // What may have been read is never repeated here, since the endpoint would see more requests than the
                // job has attempts.
                Err(NoAnswer { is_stale: true, .. }) => {}
                Err(NoAnswer { has_no_listeners: true, error, .. }) => return Err(error.on_used_connection()),
                other => return other.map_err(|no_answer| no_answer.error),
            }
        }
        let connection = self.open(&target, deadline).await?;
        self.exchange(connection, &target, &request, bounds).await.map_err(|no_answer| no_answer.error)
    }
}

fn post(target: &Target, request: &Outgoing) -> Request<Full<bytes::Bytes>> {
    let mut post = Request::new(Full::new(request.body.clone()));
    *post.method_mut() = Method::POST;
    *post.uri_mut() = target.path.clone();
    let headers = post.headers_mut();
    headers.clone_from(&request.headers);
    for name in &OURS {
        headers.remove(name);
    }
    headers.insert(HOST, target.authority.clone());
    headers.insert(ACCEPT_ENCODING, IDENTITY);
    headers.entry(USER_AGENT).or_insert(AGENT);
    post
}
