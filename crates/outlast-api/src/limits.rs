//! The bounds of what a request may ask for. All of them are configuration.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Limits {
    pub payload_bytes: usize,
    pub batch_jobs: usize,
    pub batch_bytes: usize,
    /// Requests being answered at once, waiting ones included.
    pub in_flight_requests: usize,
    /// Bytes of request bodies held at once.
    pub in_flight_bytes: usize,
    pub url_bytes: usize,
    /// Streams open at once.
    pub streams: usize,
    pub streams_per_key: usize,
    /// Wrong keys from one address, before it is slowed down to two a second.
    pub failed_keys_per_address: usize,
    pub body_idle: Duration,
    pub body_total: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: 256 << 10,
            batch_jobs: 1000,
            batch_bytes: 8 << 20,
            in_flight_requests: 5000,
            in_flight_bytes: 256 << 20,
            url_bytes: 4 << 10,
            streams: 10_000,
            streams_per_key: 100,
            failed_keys_per_address: 100,
            body_idle: Duration::from_secs(10),
            body_total: Duration::from_secs(60),
        }
    }
}
