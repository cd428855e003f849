//! Decides which destinations may be called: names by their shape, addresses by the table and by the operator's settings. The same
//! predicate judges literals in URLs, answers of name servers and the far end of a connection that is open.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use super::RefusedUrl;
use super::addresses::{canonical, is_public};
use super::settings::EgressSettings;
use super::target::{Place, Target};

/// Names below these are private.
const INTERNAL_SUFFIXES: [&str; 7] =
    [".internal", ".local", ".localhost", ".localdomain", ".lan", ".home.arpa", ".in-addr.arpa"];

#[derive(Debug)]
pub(super) struct SsrfGuard {
    allowed: Vec<IpNet>,
    is_https_only: bool,
    ports: Vec<u16>,
    denied: Vec<Denied>,
    own: Vec<SocketAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum Denied {
    Name(String),
    /// With the dot in front.
    Below(String),
}

impl SsrfGuard {
    pub(super) fn new(settings: &EgressSettings) -> SsrfGuard {
        SsrfGuard {
            allowed: settings.allow_private_targets.iter().map(IpNet::trunc).collect(),
            is_https_only: settings.https_only,
            ports: settings.ports.clone(),
            denied: settings.denied_hosts.iter().map(|text| Denied::read(text)).collect(),
            own: settings.own.iter().map(|own| SocketAddr::new(canonical(own.ip()), own.port())).collect(),
        }
    }

    /// Judges what can be judged without asking a name server.
    pub(super) fn check_target(&self, target: &Target) -> Result<(), RefusedUrl> {
        if self.is_https_only && !target.origin.is_https {
            return Err(RefusedUrl::new("must be an https URL (egress.https_only)"));
        }
        let port = target.origin.port;
        let refused = match &target.origin.place {
            Place::Address(address) if self.allows(SocketAddr::new(*address, port)) => return Ok(()),
            Place::Address(address) if is_public(canonical(*address)) && !self.ports.contains(&port) => {
                self.wrong_port(port)
            }
            Place::Address(address) => private_host(address),
            Place::Name(name) if self.denies(name) => {
                format!("must not lead to \"{name}\", which the operator has denied (egress.denied_hosts)")
            }
            // With private targets allowed, only the address tells a public host from a private one.
            Place::Name(_) if self.allows_private() => return Ok(()),
            Place::Name(name) if is_internal(name) => private_host(name),
            Place::Name(_) if !self.ports.contains(&port) => self.wrong_port(port),
            Place::Name(_) => return Ok(()),
        };
        Err(RefusedUrl::new(refused))
    }

    /// May a connection go there?
    pub(super) fn allows(&self, to: SocketAddr) -> bool {
        let address = canonical(to.ip());
        if address.is_unspecified() || self.is_own(address, to.port()) {
            return false;
        }
        let is_allowed_private = self.allowed.iter().any(|block| block.contains(&address));
        is_allowed_private || (is_public(address) && self.ports.contains(&to.port()))
    }

    /// Names may be looked for in the system's search list only where they may lead into the operator's network.
    pub(super) fn allows_private(&self) -> bool {
        !self.allowed.is_empty()
    }

    fn denies(&self, name: &str) -> bool {
        self.denied.iter().any(|denied| match denied {
            Denied::Name(denied) => name == denied,
            Denied::Below(suffix) => name.ends_with(suffix.as_str()),
        })
    }

    /// Do we listen there ourselves? Listening on no address in particular is listening on every one of this machine.
    fn is_own(&self, address: IpAddr, port: u16) -> bool {
        let listening = self.own.iter().filter(|own| own.port() == port);
        listening.into_iter().any(|own| match own.ip().is_unspecified() {
            true => is_of_this_machine(address),
            false => own.ip() == address,
        })
    }

    fn wrong_port(&self, port: u16) -> String {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        format!("must use one of the ports {}, not {port} (egress.ports)", ports.join(", "))
    }
}

/// Judged by the URL and the settings alone, so it tells nothing about what is there.
fn private_host(host: &dyn fmt::Display) -> String {
    format!(
        "must lead to a public host: \"{host}\" is not one, nor a private one that is allowed (egress.allow_private_targets)"
    )
}

impl Denied {
    fn read(text: &str) -> Denied {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        match text.strip_prefix('*') {
            Some(suffix) => Denied::Below(suffix.to_owned()),
            None => Denied::Name(text),
        }
    }
}

fn is_internal(name: &str) -> bool {
    let is_below = |suffix: &&str| name.ends_with(*suffix) || suffix.strip_prefix('.') == Some(name);
    !name.contains('.') || INTERNAL_SUFFIXES.iter().any(is_below)
}

/// A socket can be bound to an address of this machine and to no other. Nothing is sent.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(change: impl FnOnce(&mut EgressSettings)) -> SsrfGuard {
        let mut settings = EgressSettings::default();
        change(&mut settings);
        SsrfGuard::new(&settings)
    }

    fn takes(guard: &SsrfGuard, url: &str) -> bool {
        guard.check_target(&Target::parse(url).unwrap_or_else(|refused| panic!("{url}: {refused}"))).is_ok()
    }

    fn allows(guard: &SsrfGuard, address: &str) -> bool {
        guard.allows(address.parse().unwrap())
    }

    // (T01)
    #[test]
    fn by_default_only_public_hosts_on_web_ports_are_taken() {
        let guard = guard(|_| {});
        for url in
            ["https://example.com/", "http://example.com:8080/", "http://8.8.8.8/", "https://[2606:4700::1]:8443/"]
        {
            assert!(takes(&guard, url), "{url}");
        }
        for url in [
            "http://localhost/",
            "http://LOCALHOST./",
            "http://app.localhost/",
            "http://intranet/",
            "http://db.internal/",
            "http://printer.local./",
            "http://router.home.arpa/",
            "http://home.arpa/",
            "http://nas.lan/",
            "http://example.com:22/",
            "http://8.8.8.8:25/",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://0/",
        ] {
            assert!(!takes(&guard, url), "{url}");
        }
    }

    #[test]
    fn allowed_private_targets_may_have_any_port_and_names_are_left_to_the_connector() {
        let guard = guard(|settings| settings.allow_private_targets = vec!["10.1.0.0/16".parse().unwrap()]);

        assert!(allows(&guard, "10.1.2.3:5000") && allows(&guard, "[::ffff:10.1.2.3]:5000"));
        assert!(!allows(&guard, "10.2.0.1:80") && !allows(&guard, "8.8.8.8:5000") && allows(&guard, "8.8.8.8:443"));
        assert!(takes(&guard, "http://worker:3000/") && takes(&guard, "http://db.internal/"));
    }

    #[test]
    fn denied_hosts_are_refused_whatever_else_is_allowed() {
        let guard = guard(|settings| {
            settings.allow_private_targets = vec!["0.0.0.0/0".parse().unwrap()];
            settings.denied_hosts = vec!["Bad.example.".to_owned(), "*.evil.example".to_owned()];
        });

        for url in ["http://bad.example/", "http://BAD.example./", "http://a.evil.example/", "http://a.b.evil.example/"]
        {
            assert!(!takes(&guard, url), "{url}");
        }
        for url in ["http://a.bad.example/", "http://evil.example/", "http://notevil.example/"] {
            assert!(takes(&guard, url), "{url}");
        }
    }

    #[test]
    fn https_only_is_for_everybody() {
        let guard = guard(|settings| {
            settings.https_only = true;
            settings.allow_private_targets = vec!["127.0.0.0/8".parse().unwrap()];
        });

        assert!(!takes(&guard, "http://127.0.0.1/") && !takes(&guard, "http://example.com/"));
        assert!(takes(&guard, "https://127.0.0.1/") && takes(&guard, "https://example.com/"));
    }

    #[test]
    fn our_own_listeners_are_refused_also_where_everything_is_allowed() {
        let all = |own: &str| {
            guard(|settings| {
                settings.allow_private_targets = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
                settings.own = vec![own.parse().unwrap()];
            })
        };

        let one = all("127.0.0.1:8080");
        assert!(!allows(&one, "127.0.0.1:8080") && !allows(&one, "[::ffff:127.0.0.1]:8080"));
        assert!(allows(&one, "127.0.0.1:8081") && allows(&one, "127.0.0.2:8080"));
        for every in [all("0.0.0.0:8080"), all("[::]:8080")] {
            assert!(
                !allows(&every, "127.0.0.1:8080") && !allows(&every, "127.9.9.9:8080") && !allows(&every, "[::1]:8080")
            );
            assert!(allows(&every, "203.0.113.7:8080"), "an address that is not of this machine");
            assert!(allows(&every, "127.0.0.1:8081"));
        }
        assert!(!allows(&one, "0.0.0.0:80") && !allows(&one, "[::]:80"));
    }
}
