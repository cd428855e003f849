//! What the operator decides about requests that leave. Tenants decide none of it.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use rustls::pki_types::CertificateDer;

/// Ports of public addresses; private targets that are allowed may have any.
pub const PORTS: [u16; 4] = [80, 443, 8080, 8443];

#[derive(Debug, Clone)]
pub struct EgressSettings {
    /// Addresses that are not public and may be called all the same.
    pub allow_private_targets: Vec<IpNet>,
    pub https_only: bool,
    /// Allowed ports of public addresses.
    pub ports: Vec<u16>,
    /// `example.com` is that name alone, `*.example.com` everything below it. Refused also where private targets are
    /// allowed.
    pub denied_hosts: Vec<String>,
    /// Asked instead of the system's name servers.
    pub nameservers: Vec<SocketAddr>,
    /// Where this process listens itself; never called.
    pub own: Vec<SocketAddr>,
    /// Trusted beside the system's certificate authorities.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Requests to one host at once; more wait for their turn within their timeout.
    pub per_host_concurrency: usize,
    /// Requests to one host per second, evenly spaced; `None` is no limit.
    pub per_host_rate: Option<u32>,
    pub deadlines: Deadlines,
}

/// All of them end when the request's own timeout does.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    pub resolve: Duration,
    /// For all addresses of a name together.
    pub connect: Duration,
    pub tls: Duration,
    /// From the start of sending to the answer's head. `None`: an endpoint may take as long as its queue allows.
    pub first_byte: Option<Duration>,
}

impl Default for EgressSettings {
    fn default() -> EgressSettings {
        EgressSettings {
            allow_private_targets: Vec::new(),
            https_only: false,
            ports: PORTS.to_vec(),
            denied_hosts: Vec::new(),
            nameservers: Vec::new(),
            own: Vec::new(),
            extra_roots: Vec::new(),
            per_host_concurrency: 500,
            per_host_rate: None,
            deadlines: Deadlines::default(),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            resolve: Duration::from_secs(3),
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(5),
            first_byte: None,
        }
    }
}
