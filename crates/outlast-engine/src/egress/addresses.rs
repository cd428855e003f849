//! Which addresses are public. An explicit table of everything that is not, from the registries of special-purpose
//! addresses (IPv4 and IPv6); IPv6 must besides be in the one block from which global unicast addresses are given out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Is it an address of the public internet? Expects what [`canonical`] gives.
pub(super) fn is_public(address: IpAddr) -> bool {
    let is_special = SPECIAL.iter().any(|(block, _)| block.contains(&address));
    match address {
        IpAddr::V4(_) => !is_special,
        IpAddr::V6(address) => GLOBAL_UNICAST.contains(&address) && !is_special,
    }
}

/// An IPv4 address that is written as IPv6 reaches the same host as itself, so it is judged as itself.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

const GLOBAL_UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const SPECIAL: [(IpNet, &str); 34] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private use"),
    (v4([100, 64, 0, 0], 10), "shared by carriers (CGNAT)"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local, with the metadata services of clouds"),
    (v4([172, 16, 0, 0], 12), "private use"),
    (v4([192, 0, 0, 0], 24), "protocol assignments"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 31, 196, 0], 24), "AS112"),
    (v4([192, 52, 193, 0], 24), "AMT"),
    (v4([192, 88, 99, 0], 24), "6to4 relays"),
    (v4([192, 168, 0, 0], 16), "private use"),
    (v4([192, 175, 48, 0], 24), "AS112"),
    (v4([198, 18, 0, 0], 15), "benchmarks"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved, with the broadcast address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "unspecified, loopback, IPv4-compatible"),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), "IPv4-mapped; `canonical` leaves none"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "NAT64, with an IPv4 address inside"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "NAT64 of local use"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard only"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "dummy prefix"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignments: Teredo, ORCHID and others"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4, with an IPv4 address inside"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), "AS112"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "segment routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local, deprecated"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix))
}

#[cfg(test)]
mod tests;
