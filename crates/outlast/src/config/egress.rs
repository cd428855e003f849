//! The section `egress`: where requests may go that leave this server. Only the operator writes it, never a tenant.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::reader::Section;

/// Of a name server whose port is not given.
const DNS_PORT: u16 = 53;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Egress {
    pub allow_private_targets: Vec<IpNet>,
    pub https_only: bool,
    pub ports: Vec<u16>,
    pub denied_hosts: Vec<String>,
    pub nameservers: Vec<SocketAddr>,
    pub ca_file: Option<PathBuf>,
    pub per_host_concurrency: usize,
    pub per_host_rate: Option<u32>,
}

impl Egress {
    pub(crate) fn read(section: &mut Section) -> Egress {
        let blocks = "address blocks such as 10.0.0.0/8 or fd00::/8";
        let names = "host names such as example.com or *.example.com";
        let servers = "addresses such as 10.0.0.53 or 10.0.0.53:5353";
        Egress {
            allow_private_targets: section.list("allow_private_targets", blocks, block),
            https_only: section.switch("https_only"),
            ports: section.list("ports", "ports from 1 to 65535", |text| text.parse().ok().filter(|port| *port > 0)),
            denied_hosts: section.list("denied_hosts", names, host),
            nameservers: section.list("nameservers", servers, server),
            ca_file: section.optional_text("ca_file").map(PathBuf::from),
            per_host_concurrency: section.count("per_host_concurrency", 1..=100_000),
            per_host_rate: section
                .optional_count("per_host_rate", 1..=1_000_000)
                .and_then(|rate| u32::try_from(rate).ok()),
        }
    }
}

/// A block, or one address.
pub(crate) fn block(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn server(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DNS_PORT)))
}

fn host(text: &str) -> Option<String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (!name.is_empty() && name.bytes().all(is_name_byte)).then(|| text.to_owned())
}
