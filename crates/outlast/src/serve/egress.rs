//! The way out, as the configuration asks for it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use outlast_engine::egress::{EgressSettings, HttpEgress};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Mode;
use crate::config::egress::Egress;

const LOOPBACK_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);

/// `own` are the addresses this process listens on.
pub(super) fn open(config: &Egress, mode: Mode, own: Vec<SocketAddr>) -> anyhow::Result<Arc<HttpEgress>> {
    let mut allowed = config.allow_private_targets.clone();
    if mode == Mode::Dev {
        // A developer's endpoints are on the same machine.
        allowed.extend([IpNet::from(LOOPBACK_V4), IpNet::from(LOOPBACK_V6)]);
    }
    if !allowed.is_empty() {
        let blocks: Vec<String> = allowed.iter().map(IpNet::to_string).collect();
        tracing::info!(blocks = blocks.join(","), "deliveries to these private addresses are allowed");
    }
    let settings = EgressSettings {
        allow_private_targets: allowed,
        https_only: config.https_only,
        ports: config.ports.clone(),
        denied_hosts: config.denied_hosts.clone(),
        nameservers: config.nameservers.clone(),
        own,
        extra_roots: config.ca_file.as_deref().map(certificates).transpose()?.unwrap_or_default(),
        per_host_concurrency: config.per_host_concurrency,
        per_host_rate: config.per_host_rate,
        ..EgressSettings::default()
    };
    Ok(Arc::new(HttpEgress::new(settings)?))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("cannot use {} (egress.ca_file)", path.display());
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.with_context(context)?;
    anyhow::ensure!(!certificates.is_empty(), "{}: it has no certificates", context());
    Ok(certificates)
}
