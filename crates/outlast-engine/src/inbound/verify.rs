//! Checks that a webhook comes from its provider: one check for every scheme, over the bytes as received. A sender that fails
//! it does not learn why; secrets reach neither a log nor an error. A scheme without any check does not exist.

mod scheme;
mod key;
mod signature;
mod body_hmac;
mod timestamped_hmac;
mod twilio;
mod gitlab;
mod sender;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use outlast_core::Timestamp;
use tracing::debug;

pub use key::{Algorithm, BadSecret, Encoding};
pub use scheme::{BadForm, HmacForm, Place, Scheme};
pub use sender::{Outgoing, Signed, Unsignable};

use key::Key;
use signature::{Rejection, Window};

/// How far the time of a webhook may lie from ours, in both directions, where its scheme has a time.
pub const TOLERANCE: Duration = crate::sign::TOLERANCE;

/// A webhook as it came in.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The whole address as the provider knows it, with scheme, host and query; only Twilio signs it. Scheme and host come
    /// from settings: taken from the request they would let a webhook for one address be sent to another.
    pub url: &'a str,
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// Not from the provider, or not now. There is one answer for every reason, so that an attacker learns nothing from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not valid")]
pub struct Forged;

/// The scheme of a source with all its live secrets.
pub struct Verifier {
    scheme: Scheme,
    keys: Vec<Key>,
    tolerance: Duration,
}

impl Verifier {
    /// Every live secret is tried on each webhook, so that a rotation loses none. Refuses secrets that cannot be right,
    /// above all an empty one: anybody could sign with it.
    pub fn new<S: AsRef<str>>(scheme: Scheme, secrets: &[S], tolerance: Duration) -> Result<Verifier, BadSecret> {
        let keys = key::all(&scheme, secrets)?;
        Ok(Verifier { scheme, keys, tolerance })
    }

    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Accepts a webhook if one of its signatures is right under one of the secrets and its time, if the scheme has
    /// one, is near. All pairs are compared, each in constant time: neither the place nor the length of a match shows.
    pub fn check(&self, request: &Request<'_>) -> Result<(), Forged> {
        self.examine(request).map_err(|rejection| {
            debug!(scheme = self.scheme.name(), ?rejection, "webhook not believed");
            Forged
        })
    }

    fn examine(&self, request: &Request<'_>) -> Result<(), Rejection> {
        let window = Window { now: request.now, tolerance: self.tolerance };
        let message = match &self.scheme {
            Scheme::Stripe => timestamped_hmac::stripe(request, window)?,
            Scheme::Github => body_hmac::github(request)?,
            Scheme::Shopify => body_hmac::shopify(request)?,
            Scheme::Slack => timestamped_hmac::slack(request, window)?,
            Scheme::Twilio => twilio::signed_message(request)?,
            Scheme::StandardWebhooks => timestamped_hmac::standard(request, window)?,
            Scheme::Paddle => timestamped_hmac::paddle(request, window)?,
            Scheme::Gitlab => return gitlab::check(&self.keys, request, window),
            Scheme::Linear => body_hmac::linear(request)?,
            Scheme::Pagerduty => body_hmac::pagerduty(request)?,
            Scheme::Grafana { timestamp_header: None } => body_hmac::grafana(request)?,
            Scheme::Grafana { timestamp_header: Some(name) } => timestamped_hmac::grafana(request, name, window)?,
            Scheme::Terraform => body_hmac::terraform(request)?,
            Scheme::Hmac(form) => body_hmac::configured(request, form)?,
        };
        message.verify(&self.keys)?;
        match self.scheme {
            Scheme::Linear => body_hmac::linear_time(request.body, window),
            _ => Ok(()),
        }
    }

    /// What a provider would send: the headers that make a webhook pass [`Verifier::check`], under the first secret.
    pub fn sign(&self, outgoing: &Outgoing<'_>) -> Result<Signed, Unsignable> {
        sender::sign(&self.scheme, self.keys.first().ok_or(Unsignable::Secret)?, outgoing)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Verifier({}, {} keys)", self.scheme.name(), self.keys.len())
    }
}
