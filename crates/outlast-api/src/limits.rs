//! The bounds of what a request may ask for. All of them are configuration.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Limits {
    pub payload_bytes: usize,
    pub batch_jobs: usize,
    pub batch_bytes: usize,
    /// Requests being worked on at once; those that wait for something to happen are not.
    pub in_flight_requests: usize,
    /// Bytes of request bodies held at once.
    pub in_flight_bytes: usize,
    /// The most of slots and bytes that one key may hold, in percent. 100: no shares.
    pub key_share_percent: usize,
    /// Long polls that wait at once.
    pub waiting_requests: usize,
    pub waiting_requests_per_key: usize,
    /// By tokens to one job.
    pub waiting_requests_per_token: usize,
    /// Bytes of answers held until they are sent.
    pub answer_bytes: usize,
    pub url_bytes: usize,
    /// Streams open at once.
    pub streams: usize,
    pub streams_per_key: usize,
    /// Wrong keys from one address, before it is slowed down to two a second.
    pub failed_keys_per_address: usize,
    pub body_idle: Duration,
    pub body_total: Duration,
    /// For so long a body may be slower than the least rate.
    pub body_grace: Duration,
    /// The least rate of a body over its life.
    pub body_bytes_per_second: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: 256 << 10,
            batch_jobs: 1000,
            batch_bytes: 8 << 20,
            in_flight_requests: 5000,
            in_flight_bytes: 256 << 20,
            key_share_percent: 50,
            waiting_requests: 20_000,
            waiting_requests_per_key: 12_000,
            waiting_requests_per_token: 100,
            answer_bytes: 64 << 20,
            url_bytes: 4 << 10,
            streams: 12_000,
            streams_per_key: 100,
            failed_keys_per_address: 100,
            body_idle: Duration::from_secs(10),
            body_total: Duration::from_secs(60),
            body_grace: Duration::from_secs(5),
            body_bytes_per_second: 1 << 10,
        }
    }
}
