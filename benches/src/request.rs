//! Hand-built HTTP/1.1 requests. Building one costs a few copies, so that the generator leaves the cores to the server.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// The size of one job's payload as JSON text.
pub(crate) const PAYLOAD_BYTES: usize = 256;
/// The queue of a scenario that needs only one; each scenario has a server of its own.
pub(crate) const QUEUE: &str = "bench";

pub(crate) const SEQUENCE_DIGITS: usize = 16;
const PAYLOAD_START: &[u8] = b"{\"seq\":\"";
const PAYLOAD_MIDDLE: &[u8] = b"\",\"text\":\"";
const PAYLOAD_END: &[u8] = b"\"}";

/// Where requests go and which key they carry.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) key: Arc<str>,
}

impl Target {
    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        self.request("GET", path, b"")
    }

    pub(crate) fn put(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.request("PUT", path, body)
    }

    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Vec<u8> {
        self.request("POST", path, body)
    }

    pub(crate) fn receive(&self, batch: usize) -> Vec<u8> {
        let body = format!("{{\"batch\":{batch},\"wait\":\"5s\"}}");
        self.post(&format!("/v1/queues/{QUEUE}/receive"), body.as_bytes())
    }

    pub(crate) fn acknowledge(&self, id: &str, lease: &str) -> Vec<u8> {
        let body = format!("{{\"lease\":\"{lease}\"}}");
        self.post(&format!("/v1/jobs/{id}/ack"), body.as_bytes())
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256 + body.len());
        write!(
            bytes,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            self.key,
            body.len()
        )
        .expect("writing to memory does not fail");
        bytes.extend_from_slice(body);
        bytes
    }
}

/// A publish request that is built once per connection; only its sequence number is rewritten.
pub(crate) struct Publish {
    bytes: Vec<u8>,
    sequence_at: usize,
}

impl Publish {
    pub(crate) fn new(target: &Target) -> Self {
        Self::to(target, QUEUE)
    }

    pub(crate) fn to(target: &Target, queue: &str) -> Self {
        let mut body = b"{\"payload\":".to_vec();
        let sequence_in_body = body.len() + PAYLOAD_START.len();
        push_payload(&mut body, 0);
        body.push(b'}');
        let bytes = target.post(&format!("/v1/queues/{queue}/jobs"), &body);
        let sequence_at = bytes.len() - body.len() + sequence_in_body;
        Self { bytes, sequence_at }
    }

    pub(crate) fn numbered(&mut self, sequence: u64) -> &[u8] {
        let digits = self
            .bytes
            .get_mut(self.sequence_at..self.sequence_at + SEQUENCE_DIGITS)
            .expect("the request was built with its sequence number inside");
        digits.copy_from_slice(&hex(sequence));
        &self.bytes
    }
}

/// One batch publish of jobs numbered from `first`.
pub(crate) fn publish_batch(target: &Target, first: u64, count: u64) -> Vec<u8> {
    publish_batch_to(target, QUEUE, first, count)
}

pub(crate) fn publish_batch_to(target: &Target, queue: &str, first: u64, count: u64) -> Vec<u8> {
    let mut body = b"{\"jobs\":[".to_vec();
    for sequence in first..first + count {
        if sequence > first {
            body.push(b',');
        }
        body.extend_from_slice(b"{\"payload\":");
        push_payload(&mut body, sequence);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    target.post(&format!("/v1/queues/{queue}/jobs/batch"), &body)
}

/// The payload of one job, as text.
pub(crate) fn payload(sequence: u64) -> String {
    let mut bytes = Vec::with_capacity(PAYLOAD_BYTES);
    push_payload(&mut bytes, sequence);
    String::from_utf8(bytes).expect("a payload is ASCII")
}

/// The text differs from job to job and looks random, so that no layer below can fold payloads together.
fn push_payload(bytes: &mut Vec<u8>, sequence: u64) {
    let end = bytes.len() + PAYLOAD_BYTES;
    bytes.extend_from_slice(PAYLOAD_START);
    bytes.extend_from_slice(&hex(sequence));
    bytes.extend_from_slice(PAYLOAD_MIDDLE);
    let mut state = sequence;
    while bytes.len() < end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bytes.extend_from_slice(&hex(mix(state)));
    }
    bytes.truncate(end - PAYLOAD_END.len());
    bytes.extend_from_slice(PAYLOAD_END);
}

/// The finaliser of SplitMix64.
pub(crate) fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

pub(crate) fn hex(number: u64) -> [u8; SEQUENCE_DIGITS] {
    let mut digits = [0; SEQUENCE_DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair.copy_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
    }
    digits
}

fn hex_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target { address: "127.0.0.1:80".parse().unwrap(), key: "ol_test".into() }
    }

    fn body_of(request: &[u8]) -> serde_json::Value {
        let text = std::str::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn a_published_payload_has_the_promised_size_and_number() {
        let mut publish = Publish::new(&target());

        let body = body_of(publish.numbered(0xbeef));

        let payload = body.get("payload").unwrap();
        assert_eq!(payload.to_string().len(), PAYLOAD_BYTES);
        assert_eq!(payload.get("seq").unwrap(), "000000000000beef");
    }

    #[test]
    fn a_batch_holds_every_number_once() {
        let body = body_of(&publish_batch(&target(), 7, 3));

        let jobs = body.get("jobs").unwrap().as_array().unwrap();
        let numbers: Vec<_> = jobs.iter().map(|job| job.pointer("/payload/seq").unwrap().as_str().unwrap()).collect();
        assert_eq!(numbers, ["0000000000000007", "0000000000000008", "0000000000000009"]);
    }
}
