//! Schemes that sign a time with the body: Stripe, Slack, Paddle, Standard Webhooks, Grafana with a time. The time is
//! checked as the text that was signed, and a webhook from another time is a replayed one.

use std::borrow::Cow;

use http::HeaderName;

use super::Request;
use super::body_hmac::GRAFANA;
use super::key::{Encoding, Message};
use super::signature::{Rejection, SignedMessage, Window, entries, only, only_entry};
use crate::sign;

pub(super) const STRIPE: HeaderName = HeaderName::from_static("stripe-signature");
pub(super) const SLACK: HeaderName = HeaderName::from_static("x-slack-signature");
pub(super) const SLACK_TIME: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
pub(super) const SLACK_PREFIX: &str = "v0=";
pub(super) const PADDLE: HeaderName = HeaderName::from_static("paddle-signature");
pub(super) const STANDARD_ID: HeaderName = HeaderName::from_static(sign::ID_HEADER);
pub(super) const STANDARD_TIME: HeaderName = HeaderName::from_static(sign::TIMESTAMP_HEADER);
pub(super) const STANDARD: HeaderName = HeaderName::from_static(sign::SIGNATURE_HEADER);
pub(super) const STANDARD_PREFIX: &str = "v1,";

pub(super) fn stripe<'a>(request: &Request<'a>, window: Window) -> Result<SignedMessage<'a>, Rejection> {
    listed(request, window, Listed { header: STRIPE, separator: ',', time: "t=", signature: "v1=", joint: "." })
}

pub(super) fn paddle<'a>(request: &Request<'a>, window: Window) -> Result<SignedMessage<'a>, Rejection> {
    listed(request, window, Listed { header: PADDLE, separator: ';', time: "ts=", signature: "h1=", joint: ":" })
}

pub(super) fn slack<'a>(request: &Request<'a>, window: Window) -> Result<SignedMessage<'a>, Rejection> {
    let time = only(request.headers, &SLACK_TIME)?;
    window.check_seconds(time)?;
    let encoded = only(request.headers, &SLACK)?.strip_prefix(SLACK_PREFIX).ok_or(Rejection::Unreadable)?;
    let signature = Encoding::Hex.decode(encoded).ok_or(Rejection::Unreadable)?;
    Ok(SignedMessage { messages: vec![slack_message(time, request.body)], signatures: vec![signature] })
}

pub(super) fn grafana<'a>(
    request: &Request<'a>,
    header: &HeaderName,
    window: Window,
) -> Result<SignedMessage<'a>, Rejection> {
    let time = only(request.headers, header)?;
    window.check_seconds(time)?;
    let signature = Encoding::Hex.decode(only(request.headers, &GRAFANA)?).ok_or(Rejection::Unreadable)?;
    Ok(SignedMessage { messages: vec![joined(&[time, ":"], request.body)], signatures: vec![signature] })
}

/// Signatures of other versions are passed over, as Standard Webhooks asks. An id with a full stop is refused: id, time and
/// body could be cut apart in another way than they were joined.
pub(super) fn standard<'a>(request: &Request<'a>, window: Window) -> Result<SignedMessage<'a>, Rejection> {
    let id = only(request.headers, &STANDARD_ID)?;
    if id.contains('.') {
        return Err(Rejection::Unreadable);
    }
    let time = only(request.headers, &STANDARD_TIME)?;
    window.check_seconds(time)?;
    let mut signatures = Vec::new();
    for entry in entries(only(request.headers, &STANDARD)?, ' ')? {
        let encoded = entry.strip_prefix(STANDARD_PREFIX);
        signatures.extend(encoded.and_then(|encoded| Encoding::Base64.decode(encoded)));
    }
    Ok(SignedMessage { messages: vec![standard_message(id, time, request.body)], signatures })
}

pub(super) fn slack_message<'a>(time: &'a str, body: &'a [u8]) -> Message<'a> {
    joined(&["v0:", time, ":"], body)
}

pub(super) fn standard_message<'a>(id: &'a str, time: &'a str, body: &'a [u8]) -> Message<'a> {
    joined(&[id, ".", time, "."], body)
}

/// The body after some texts.
pub(super) fn joined<'a>(texts: &[&'a str], body: &'a [u8]) -> Message<'a> {
    let texts = texts.iter().map(|text| text.as_bytes());
    texts.chain([body]).map(Cow::Borrowed).collect()
}

/// A header that lists its time and its signatures.
struct Listed {
    header: HeaderName,
    separator: char,
    time: &'static str,
    signature: &'static str,
    /// Between the time and the body in what is signed.
    joint: &'static str,
}

/// Entries of other kinds are passed over: Stripe sends `v0` for events that are not live.
fn listed<'a>(request: &Request<'a>, window: Window, form: Listed) -> Result<SignedMessage<'a>, Rejection> {
    let mut entries = entries(only(request.headers, &form.header)?, form.separator)?;
    for entry in &mut entries {
        *entry = entry.trim_start_matches(' ');
    }
    let time = only_entry(&entries, form.time)?;
    window.check_seconds(time)?;
    let mut signatures = Vec::new();
    for entry in entries {
        let encoded = entry.strip_prefix(form.signature);
        signatures.extend(encoded.and_then(|encoded| Encoding::Hex.decode(encoded)));
    }
    Ok(SignedMessage { messages: vec![joined(&[time, form.joint], request.body)], signatures })
}
