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
    if matches!(mode, Mode::Dev(_)) {
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

#[cfg(test)]
mod tests {
    use outlast_engine::egress::Egress as _;

    use super::super::DevClock;
    use super::*;
    use crate::config::{Config, Environment, Flags};

    fn takes(mode: Mode, own: &str, url: &str) -> bool {
        let config = Config::load(&Flags::default(), &Environment::default()).unwrap();
        open(&config.egress, mode, vec![own.parse().unwrap()]).unwrap().check(url).is_ok()
    }

    #[tokio::test]
    async fn dev_may_call_this_machine_and_serve_may_not() {
        for url in ["http://127.0.0.1:3000/", "http://[::1]:3000/", "http://localhost:3000/"] {
            assert!(takes(Mode::Dev(DevClock::System), "127.0.0.1:8080", url), "{url}");
            assert!(!takes(Mode::Serve, "127.0.0.1:8080", url), "{url}");
        }
        assert!(!takes(Mode::Dev(DevClock::System), "127.0.0.1:8080", "http://10.0.0.1/"));
        assert!(!takes(Mode::Dev(DevClock::System), "127.0.0.1:8080", "http://127.0.0.1:8080/v1/queues"), "ourselves");
    }

    #[tokio::test]
    async fn a_file_of_authorities_that_has_none_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, "nothing\n").unwrap();
        let mut config = Config::load(&Flags::default(), &Environment::default()).unwrap().egress;

        for file in [path, directory.path().join("missing.pem")] {
            config.ca_file = Some(file.clone());
            let error = open(&config, Mode::Serve, Vec::new()).err().expect("it cannot be used");
            assert!(format!("{error:#}").contains(&file.display().to_string()), "{error:#}");
        }
    }
}
