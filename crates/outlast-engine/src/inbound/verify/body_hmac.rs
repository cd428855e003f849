//! Schemes that sign the body alone: GitHub, Shopify, Linear, PagerDuty, Grafana without a time, Terraform, and `hmac`. A
//! captured webhook of these can be sent again at any time; only its event id tells. Linear has its time in the body.

use std::borrow::Cow;

use http::HeaderName;

use super::key::Encoding;
use super::scheme::HmacForm;
use super::signature::{Rejection, SignedMessage, Window, entries, only};
use super::{Request, key};

pub(super) const GITHUB: HeaderName = HeaderName::from_static("x-hub-signature-256");
pub(super) const GITHUB_PREFIX: &str = "sha256=";
pub(super) const SHOPIFY: HeaderName = HeaderName::from_static("x-shopify-hmac-sha256");
pub(super) const LINEAR: HeaderName = HeaderName::from_static("linear-signature");
pub(super) const PAGERDUTY: HeaderName = HeaderName::from_static("x-pagerduty-signature");
pub(super) const PAGERDUTY_PREFIX: &str = "v1=";
pub(super) const GRAFANA: HeaderName = HeaderName::from_static("x-grafana-alerting-signature");
pub(super) const TERRAFORM: HeaderName = HeaderName::from_static("x-tfe-notification-signature");

pub(super) fn github<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &GITHUB, GITHUB_PREFIX, Encoding::Hex)
}

pub(super) fn shopify<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &SHOPIFY, "", Encoding::Base64)
}

pub(super) fn linear<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &LINEAR, "", Encoding::Hex)
}

/// Linear's time is a field of the body, in milliseconds. The body is parsed only after its signature was right.
pub(super) fn linear_time(body: &[u8], window: Window) -> Result<(), Rejection> {
    let value: serde_json::Value = serde_json::from_slice(body).map_err(|_| Rejection::Unreadable)?;
    let millis = value.get("webhookTimestamp").ok_or(Rejection::Missing)?;
    window.check_millis(millis.as_i64().ok_or(Rejection::Unreadable)?)
}

pub(super) fn pagerduty<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    let mut signatures = Vec::new();
    for entry in entries(only(request.headers, &PAGERDUTY)?, ',')? {
        let signature = entry.trim_start_matches(' ').strip_prefix(PAGERDUTY_PREFIX);
        signatures.extend(signature.and_then(|text| Encoding::Hex.decode(text)));
    }
    Ok(SignedMessage { messages: vec![message(request.body)], signatures })
}

pub(super) fn grafana<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &GRAFANA, "", Encoding::Hex)
}

pub(super) fn terraform<'a>(request: &Request<'a>) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &TERRAFORM, "", Encoding::Hex)
}

pub(super) fn configured<'a>(request: &Request<'a>, form: &HmacForm) -> Result<SignedMessage<'a>, Rejection> {
    one(request, &form.header, &form.prefix, form.encoding)
}

pub(super) fn message(body: &[u8]) -> key::Message<'_> {
    vec![Cow::Borrowed(body)]
}

fn one<'a>(
    request: &Request<'a>,
    name: &HeaderName,
    prefix: &str,
    encoding: Encoding,
) -> Result<SignedMessage<'a>, Rejection> {
    let text = only(request.headers, name)?;
    let encoded = text.strip_prefix(prefix).ok_or(Rejection::Unreadable)?;
    let signature = encoding.decode(encoded).ok_or(Rejection::Unreadable)?;
    Ok(SignedMessage { messages: vec![message(request.body)], signatures: vec![signature] })
}
