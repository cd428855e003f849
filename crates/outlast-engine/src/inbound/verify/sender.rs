//! The other side: what a provider adds to a webhook. For `outlast send` and for tests; the server never calls it.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};
use outlast_core::Timestamp;
use sha2::{Digest, Sha256};

use super::key::{Encoding, Key, Message};
use super::scheme::Scheme;
use super::{body_hmac, gitlab, timestamped_hmac, twilio};
use crate::inbound::media;

/// A webhook before it is signed.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where it goes, as the receiver will be told.
    pub url: &'a str,
    /// The id of the event, for the schemes that sign it.
    pub id: &'a str,
    pub content_type: &'a str,
    /// Sent as it is. Linear's receivers look for `webhookTimestamp` in it.
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// What signing adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where to send it. Only Twilio's differs from what was given: it carries the digest of a body that is no form.
    pub url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsignable {
    #[error("there is no secret to sign with")]
    Secret,
    #[error("an event id is visible ASCII, without full stops")]
    Id,
}

pub(super) fn sign(scheme: &Scheme, key: &Key, outgoing: &Outgoing<'_>) -> Result<Signed, Unsignable> {
    let time = (outgoing.now.as_millis() / 1000).to_string();
    let body = outgoing.body;
    let hex =
        |message: Message<'_>| key.digest(&message).map(|digest| Encoding::Hex.encode(&digest)).unwrap_or_default();
    let over_body = |header, prefix: &str| vec![(header, format!("{prefix}{}", hex(body_hmac::message(body))))];
    let headers = match scheme {
        Scheme::Stripe => vec![(
            timestamped_hmac::STRIPE,
            format!("t={time},v1={}", hex(timestamped_hmac::joined(&[&time, "."], body))),
        )],
        Scheme::Paddle => vec![(
            timestamped_hmac::PADDLE,
            format!("ts={time};h1={}", hex(timestamped_hmac::joined(&[&time, ":"], body))),
        )],
        Scheme::Slack => {
            let signature =
                format!("{}{}", timestamped_hmac::SLACK_PREFIX, hex(timestamped_hmac::slack_message(&time, body)));
            vec![(timestamped_hmac::SLACK, signature), (timestamped_hmac::SLACK_TIME, time)]
        }
        Scheme::Grafana { timestamp_header: Some(name) } => {
            let signature = hex(timestamped_hmac::joined(&[&time, ":"], body));
            vec![(body_hmac::GRAFANA, signature), (name.clone(), time)]
        }
        Scheme::StandardWebhooks => standard(key, outgoing, time)?,
        Scheme::Gitlab => match key {
            Key::Token(token) => vec![(gitlab::TOKEN, String::from_utf8_lossy(token).into_owned())],
            _ => standard(key, outgoing, time)?,
        },
        Scheme::Twilio => return twilio(key, outgoing),
        Scheme::Github => over_body(body_hmac::GITHUB, body_hmac::GITHUB_PREFIX),
        Scheme::Linear => over_body(body_hmac::LINEAR, ""),
        Scheme::Pagerduty => over_body(body_hmac::PAGERDUTY, body_hmac::PAGERDUTY_PREFIX),
        Scheme::Grafana { timestamp_header: None } => over_body(body_hmac::GRAFANA, ""),
        Scheme::Terraform => over_body(body_hmac::TERRAFORM, ""),
        Scheme::Shopify => vec![(body_hmac::SHOPIFY, base64(key, body_hmac::message(body)))],
        Scheme::Hmac(form) => {
            let digest = key.digest(&body_hmac::message(body)).unwrap_or_default();
            vec![(form.header.clone(), format!("{}{}", form.prefix, form.encoding.encode(&digest)))]
        }
    };
    finish(headers, outgoing.url.to_owned())
}

fn standard(key: &Key, outgoing: &Outgoing<'_>, time: String) -> Result<Vec<(HeaderName, String)>, Unsignable> {
    if outgoing.id.is_empty() || outgoing.id.contains('.') {
        return Err(Unsignable::Id);
    }
    let signature = base64(key, timestamped_hmac::standard_message(outgoing.id, &time, outgoing.body));
    Ok(vec![
        (timestamped_hmac::STANDARD_ID, outgoing.id.to_owned()),
        (timestamped_hmac::STANDARD_TIME, time),
        (timestamped_hmac::STANDARD, format!("{}{signature}", timestamped_hmac::STANDARD_PREFIX)),
    ])
}

fn twilio(key: &Key, outgoing: &Outgoing<'_>) -> Result<Signed, Unsignable> {
    let is_form =
        outgoing.content_type.split(';').next().is_some_and(|text| text.trim().eq_ignore_ascii_case(media::FORM));
    let (url, parameters) = if is_form {
        (outgoing.url.to_owned(), twilio::sorted_parameters(outgoing.body))
    } else {
        let joint = if outgoing.url.contains('?') { '&' } else { '?' };
        let digest = Encoding::Hex.encode(&Sha256::digest(outgoing.body));
        (format!("{}{joint}{}={digest}", outgoing.url, twilio::BODY_DIGEST), String::new())
    };
    let signature = base64(key, twilio::message(Cow::Borrowed(&url), parameters));
    finish(vec![(twilio::SIGNATURE, signature)], url)
}

fn base64(key: &Key, message: Message<'_>) -> String {
    key.digest(&message).map(|digest| Encoding::Base64.encode(&digest)).unwrap_or_default()
}

/// Everything but the id is ours and can stand in a header.
fn finish(texts: Vec<(HeaderName, String)>, url: String) -> Result<Signed, Unsignable> {
    let mut headers = Vec::with_capacity(texts.len());
    for (name, text) in texts {
        headers.push((name, HeaderValue::try_from(text).map_err(|_| Unsignable::Id)?));
    }
    Ok(Signed { headers, url })
}
