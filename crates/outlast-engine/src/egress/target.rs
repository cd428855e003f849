//! A destination, read from its URL once, by one parser. What is dialled, asked for and named in the handshake all comes
//! from here; the text of the URL is not looked at again.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use url::{Host, Position, Url};

use super::RefusedUrl;

/// Longer ones do not survive the intermediaries of the web.
const URL_BYTES_MAX: usize = 2048;
/// Of the domain name system.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

#[derive(Debug)]
pub(super) struct Target {
    pub origin: Arc<Origin>,
    /// Path and query, as the request line has them.
    pub path: Uri,
    /// The `host` header.
    pub authority: HeaderValue,
    /// Whom the certificate must be for; `None` without TLS.
    pub server_name: Option<ServerName<'static>>,
}

/// Whom a connection can be used for again.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub is_https: bool,
    pub place: Place,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Lower case, without a dot at the end, international names in their ASCII form.
    Name(Box<str>),
    Address(IpAddr),
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Target, RefusedUrl> {
        let too_long = || RefusedUrl::new(format!("must be at most {URL_BYTES_MAX} bytes long"));
        let not_a_url = || RefusedUrl::new("must be a complete http or https URL");
        if text.len() > URL_BYTES_MAX {
            return Err(too_long());
        }
        // The parser would drop some of them without a word.
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(RefusedUrl::new("must not contain spaces or control characters"));
        }
        let url = Url::parse(text).map_err(|_| not_a_url())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(not_a_url());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RefusedUrl::new("must not contain a user name or password; set a header instead"));
        }
        if url.fragment().is_some() {
            return Err(RefusedUrl::new("must not contain a fragment"));
        }
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(too_long());
        }
        let is_https = url.scheme() == "https";
        let place = place(&url).ok_or_else(not_a_url)?;
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or_else(not_a_url)?;
        let path = url[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| not_a_url())?;
        let authority = authority(&place, url.port()).ok_or_else(not_a_url)?;
        let server_name = if is_https { Some(server_name(&place).ok_or_else(not_a_url)?) } else { None };
        Ok(Target { origin: Arc::new(Origin { is_https, place, port }), path, authority, server_name })
    }
}

fn place(url: &Url) -> Option<Place> {
    match url.host()? {
        Host::Ipv4(address) => Some(Place::Address(address.into())),
        Host::Ipv6(address) => Some(Place::Address(IpAddr::from(address).to_canonical())),
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let is_label = |label: &str| !label.is_empty() && label.len() <= LABEL_BYTES_MAX;
            let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label);
            is_name.then(|| Place::Name(name.to_ascii_lowercase().into()))
        }
    }
}

fn authority(place: &Place, port: Option<u16>) -> Option<HeaderValue> {
    let host = match place {
        Place::Name(name) => name.to_string(),
        Place::Address(IpAddr::V4(address)) => address.to_string(),
        Place::Address(IpAddr::V6(address)) => format!("[{address}]"),
    };
    let text = match port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    };
    HeaderValue::try_from(text).ok()
}

fn server_name(place: &Place) -> Option<ServerName<'static>> {
    match place {
        Place::Name(name) => ServerName::try_from(name.to_string()).ok(),
        Place::Address(address) => Some(ServerName::from(*address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        let target = Target::parse(url).unwrap_or_else(|refused| panic!("{url}: {refused}"));
        let place = match &target.origin.place {
            Place::Name(name) => name.to_string(),
            Place::Address(address) => format!("<{address}>"),
        };
        let scheme = if target.origin.is_https { "https" } else { "http" };
        format!("{scheme} {place} {} {} {}", target.origin.port, target.path, target.authority.to_str().unwrap())
    }

    #[test]
    fn a_url_is_read_into_what_will_be_dialled_and_sent() {
        for (url, wanted) in [
            ("https://example.com", "https example.com 443 / example.com"),
            ("http://EXAMPLE.com.:8080/a/../b?x=1#", ""),
            ("http://EXAMPLE.com.:8080/a/../b?x=1", "http example.com 8080 /b?x=1 example.com:8080"),
            ("https://example.com:443/", "https example.com 443 / example.com"),
            ("http://[2606:4700::1]/x", "http <2606:4700::1> 80 /x [2606:4700::1]"),
            ("http://[::ffff:127.0.0.1]/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://2130706433/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://0x7f.1/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://0177.0.0.01/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://%31%32%37.0.0.1/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://①②⑦.⓪.⓪.①/", "http <127.0.0.1> 80 / 127.0.0.1"),
            ("http://bücher.example/ü?ü", "http xn--bcher-kva.example 80 /%C3%BC?%C3%BC xn--bcher-kva.example"),
            ("http:\\\\example.com\\a", "http example.com 80 /a example.com"),
        ] {
            if wanted.is_empty() {
                assert!(Target::parse(url).is_err(), "{url}");
                continue;
            }
            assert_eq!(shown(url), wanted, "{url}");
        }
    }

    #[test]
    fn what_is_not_a_plain_web_address_is_refused() {
        let long = format!("http://example.com/{}", "a".repeat(2048));
        let grows = format!("http://example.com/{}", "ü".repeat(900));
        let label = format!("http://{}.com/", "a".repeat(64));
        for url in [
            "",
            "/path",
            "//example.com/",
            "example.com",
            "http://",
            "http:///",
            "https://:443/",
            "http://:80",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "data:text/plain,x",
            "unix:/run/x.sock",
            "javascript:alert(1)",
            "ws://example.com/",
            "http+unix://%2Frun%2Fx/",
            "http://user@example.com/",
            "http://user:secret@example.com/",
            "http://:secret@example.com/",
            "http://example.com/#part",
            "http://example.com/#",
            "http://exa mple.com/",
            " http://example.com/",
            "http://example.com/\r\nx: y",
            "http://example.com/\n",
            "http://exam\tple.com/",
            "http://example.com:0/",
            "http://example.com:65536/",
            "http://example.com:-1/",
            "http://[::1",
            "http://[fe80::1%25eth0]/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://a..b/",
            "http://.com/",
            "http://example.com../",
            "http://exa%00mple.com/",
            "http://exa<mple.com/",
            &long,
            &grows,
            &label,
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
