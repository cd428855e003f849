//! Names to addresses, within the connector, so that what was checked is what is dialled. Asks the name servers itself,
//! after the hosts file; both and the system's configuration are read once, at start.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::Name;
use tokio::time::{Instant, timeout_at};

use super::ssrf_guard::SsrfGuard;
use super::target::{Origin, Place};
use super::{SendError, SendPhase};

/// One question and one repetition of it fit into the resolve deadline of three seconds.
const QUESTION: Duration = Duration::from_millis(1200);
const REPETITIONS: usize = 1;
/// Answers are kept as long as they say, but no longer than a connection lives.
const KEPT_MAX: Duration = Duration::from_secs(60);
/// A name that was just set up should not be missing for long.
const MISSING_KEPT_MAX: Duration = Duration::from_secs(5);
const CACHE_ENTRIES_MAX: u64 = 4096;
/// The system's library asks here where nothing is configured.
const LAST_RESORT: ([u8; 4], u16) = ([127, 0, 0, 1], 53);

pub(super) struct Resolver {
    inner: TokioResolver,
    uses_search_list: bool,
}

impl Resolver {
    pub(super) fn new(nameservers: &[SocketAddr], uses_search_list: bool) -> Result<Resolver, NetError> {
        let (config, mut options) = match nameservers {
            [] => system_configuration(),
            given => (configuration(given), ResolverOpts::default()),
        };
        options.timeout = QUESTION;
        options.attempts = REPETITIONS;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        options.positive_max_ttl = Some(KEPT_MAX);
        options.negative_max_ttl = Some(MISSING_KEPT_MAX);
        options.cache_size = CACHE_ENTRIES_MAX;
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        Ok(Resolver { inner: builder.build()?, uses_search_list })
    }

    /// All addresses of the origin, each of them allowed. If one is not, none is given: an answer that mixes public and
    /// private addresses was made by somebody who hopes that the wrong one is tried.
    pub(super) async fn addresses(
        &self,
        origin: &Origin,
        guard: &SsrfGuard,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, SendError> {
        let addresses = match &origin.place {
            Place::Address(address) => vec![SocketAddr::new(*address, origin.port)],
            Place::Name(name) => self.look_up(name, origin.port, deadline).await?,
        };
        if addresses.iter().all(|address| guard.allows(*address)) { Ok(addresses) } else { Err(SendError::blocked()) }
    }

    async fn look_up(&self, name: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, SendError> {
        let mut name = Name::from_ascii(name).map_err(|_| not_found())?;
        name.set_fqdn(!self.uses_search_list);
        let found = match timeout_at(deadline, self.inner.lookup_ip(name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(explain(&error)),
            Err(_) => return Err(SendError::resolver_outage("no answer from the name server in time")),
        };
        let addresses: Vec<SocketAddr> =
            found.iter().map(|address| SocketAddr::new(address.to_canonical(), port)).collect();
        if addresses.is_empty() { Err(not_found()) } else { Ok(addresses) }
    }
}

fn system_configuration() -> (ResolverConfig, ResolverOpts) {
    match hickory_resolver::system_conf::read_system_conf() {
        Ok((config, options)) if !config.name_servers().is_empty() => (config, options),
        other => {
            let why = other.err().map(|error| error.to_string()).unwrap_or_default();
            tracing::warn!(why, "the system names no name server; asking this machine");
            (configuration(&[LAST_RESORT.into()]), ResolverOpts::default())
        }
    }
}

fn configuration(nameservers: &[SocketAddr]) -> ResolverConfig {
    let server = |address: &SocketAddr| {
        let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = address.port();
        }
        NameServerConfig::new(address.ip(), true, connections)
    };
    ResolverConfig::from_parts(None, Vec::new(), nameservers.iter().map(server).collect())
}

fn not_found() -> SendError {
    SendError::new(SendPhase::Resolve, "the host name was not found")
}

/// An answer of any kind is the name's own fault; no answer is the resolver's.
fn explain(error: &NetError) -> SendError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => not_found(),
        NetError::Dns(_) | NetError::Proto(_) | NetError::Truncated | NetError::ForeignClassRecord { .. } => {
            SendError::new(SendPhase::Resolve, "the name server could not answer for the host name")
        }
        _ => SendError::resolver_outage("no answer from the name server"),
    }
}
