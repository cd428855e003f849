//! Shared by the tests: a connector with few settings, and one request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use outlast_engine::egress::{Egress, EgressSettings, HttpEgress, Incoming, Outgoing, SendError};

/// Long against everything that happens on one machine, short against a test's patience.
pub const TIMEOUT: Duration = Duration::from_secs(5);
pub const BODY_MAX: usize = 64 * 1024;
pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

pub const OK_AND_CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";

/// Lets these addresses be called and no other.
pub fn allowing(addresses: &[&str]) -> EgressSettings {
    let blocks = addresses.iter().map(|address| address.parse::<IpAddr>().expect(address).into());
    EgressSettings { allow_private_targets: blocks.collect(), ..EgressSettings::default() }
}

pub fn egress(settings: EgressSettings) -> HttpEgress {
    HttpEgress::new(settings).expect("the settings can be used")
}

pub fn request(url: &str) -> Outgoing {
    Outgoing {
        url: Arc::from(url),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::from_static(b"{\"hello\":\"world\"}"),
        timeout: TIMEOUT,
        fresh: false,
        body_max: BODY_MAX,
        json_max: BODY_MAX,
    }
}

pub async fn send(egress: &HttpEgress, url: &str) -> Result<Incoming, SendError> {
    egress.send(request(url)).await
}
