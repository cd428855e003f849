//! Signed events as Stripe sends them, built once per connection: only id and signature are rewritten. The id stands at
//! the end of the body, so that the digest of all before it is worked out once and the generator leaves the cores to
//! the server; for the server nothing is cheaper by that.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use crate::clock;
use crate::request::{SEQUENCE_DIGITS, Target, hex, mix};

/// Where the source of the scenario is.
pub(crate) const PATH: &str = "/webhook/stripe";

const SECRET: &str = "whsec_of_the_benchmark_and_of_nothing_else";
const EVENT: &str = include_str!("../filter/event.json");
/// 2 KiB, give or take.
const EVENT_BYTES: std::ops::RangeInclusive<usize> = 2_000..=2_200;
const SIGNATURE_DIGITS: usize = 64;
const BODY_END: &[u8] = b"\"}";

/// A source and a queue whose filter takes every event.
pub(crate) fn config(queue: &str) -> String {
    format!(
        "sources:\n  stripe: {{path: {PATH}, verify: stripe, secret: {SECRET}}}\n\
         queues:\n  {queue}:\n    source: stripe\n    events: [invoice.*]\n\
         \x20   filter: \"$.data.object.amount_due >= 1000\"\n    visibility_timeout: 600s\n"
    )
}

/// The events of one connection, each under an id of its own.
pub(crate) struct Events {
    bytes: Vec<u8>,
    /// The HMAC over the time and the body as far as the id.
    begun: Hmac<Sha256>,
    signature_at: usize,
    connection: u64,
    sequence: u64,
}

impl Events {
    /// The time of the signatures is that of this call: use it within the tolerance of the source.
    pub(crate) fn new(target: &Target, connection: u32) -> Result<Self> {
        let body = body()?;
        let time = clock::unix_seconds().to_string();
        let mut bytes = Vec::with_capacity(512 + body.len());
        write!(
            bytes,
            "POST {PATH} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json; charset=utf-8\r\n\
             user-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\ncontent-length: {}\r\n\
             stripe-signature: t={time},v1=",
            target.address,
            body.len(),
        )?;
        let signature_at = bytes.len();
        bytes.resize(signature_at + SIGNATURE_DIGITS, b'0');
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(&body);

        let (fixed, _) = body.split_at(body.len() - SEQUENCE_DIGITS - BODY_END.len());
        let mut begun: Hmac<Sha256> = Hmac::new_from_slice(SECRET.as_bytes())?;
        begun.update(time.as_bytes());
        begun.update(b".");
        begun.update(fixed);
        Ok(Self { bytes, begun, signature_at, connection: u64::from(connection), sequence: 0 })
    }

    /// The next event, as a whole request.
    pub(crate) fn next(&mut self) -> &[u8] {
        // Ids of Stripe are in no order either.
        let id = hex(mix((self.connection << 32) | self.sequence));
        self.sequence += 1;
        let mut mac = self.begun.clone();
        mac.update(&id);
        mac.update(BODY_END);
        let signature = mac.finalize().into_bytes();

        let id_at = self.bytes.len() - SEQUENCE_DIGITS - BODY_END.len();
        put(&mut self.bytes, id_at, &id);
        for (place, word) in signature.chunks_exact(8).enumerate() {
            let number = word.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
            put(&mut self.bytes, self.signature_at + place * SEQUENCE_DIGITS, &hex(number));
        }
        &self.bytes
    }
}

/// The event with its id at the end, which is to be rewritten.
fn body() -> Result<Vec<u8>> {
    let mut event: Value = serde_json::from_str(EVENT).context("the event is JSON")?;
    event.as_object_mut().context("the event is an object")?.remove("id");
    let mut text = event.to_string();
    text.pop();
    text.push_str(",\"id\":\"evt_");
    let mut body = text.into_bytes();
    body.extend_from_slice(&hex(0));
    body.extend_from_slice(BODY_END);
    ensure!(EVENT_BYTES.contains(&body.len()), "the event has {} bytes", body.len());
    Ok(body)
}

fn put(bytes: &mut [u8], at: usize, digits: &[u8; SEQUENCE_DIGITS]) {
    let place = bytes.get_mut(at..at + SEQUENCE_DIGITS).expect("the request was built with this place inside");
    place.copy_from_slice(digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        let target = Target { address: "127.0.0.1:80".parse().unwrap(), key: "ol_test".into() };
        Events::new(&target, 3).unwrap()
    }

    fn parts(request: &[u8]) -> (String, String) {
        let text = std::str::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn an_event_carries_the_digest_of_its_whole_body() {
        let mut events = events();
        events.next();

        let (head, body) = parts(events.next());

        let (_, signed) = head.split_once("stripe-signature: t=").unwrap();
        let (time, signature) = signed.split_once(",v1=").unwrap();
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(format!("{time}.{body}").as_bytes());
        let expected: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(signature, expected);
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    }

    #[test]
    fn every_event_has_an_id_of_its_own() {
        let mut events = events();
        let mut id = || -> Value { serde_json::from_str::<Value>(&parts(events.next()).1).unwrap()["id"].clone() };

        assert_ne!(id(), id());
    }
}
