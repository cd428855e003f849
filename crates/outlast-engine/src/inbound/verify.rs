//! Whether a webhook really comes from its provider: one check for every scheme, over the bytes as they came. Whoever
//! fails it learns nothing of why; secrets reach neither a log nor an error. A scheme without any check does not exist.

mod scheme;
mod key;
mod claim;
mod plain;
mod timed;
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

use claim::{Doubt, Window};
use key::Key;

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

/// Not from the provider, or not now. There is one answer for every reason, so that nobody can feel their way forward.
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

    /// Believes a webhook if one of its signatures is right under one of the secrets and its time, if the scheme has
    /// one, is near. All pairs are compared, each in constant time: neither the place nor the length of a match shows.
    pub fn check(&self, request: &Request<'_>) -> Result<(), Forged> {
        self.examine(request).map_err(|doubt| {
            debug!(scheme = self.scheme.name(), ?doubt, "webhook not believed");
            Forged
        })
    }

    fn examine(&self, request: &Request<'_>) -> Result<(), Doubt> {
        let window = Window { now: request.now, tolerance: self.tolerance };
        let claim = match &self.scheme {
            Scheme::Stripe => timed::stripe(request, window)?,
            Scheme::Github => plain::github(request)?,
            Scheme::Shopify => plain::shopify(request)?,
            Scheme::Slack => timed::slack(request, window)?,
            Scheme::Twilio => twilio::claim(request)?,
            Scheme::StandardWebhooks => timed::standard(request, window)?,
            Scheme::Paddle => timed::paddle(request, window)?,
            Scheme::Gitlab => return gitlab::check(&self.keys, request, window),
            Scheme::Linear => plain::linear(request)?,
            Scheme::Pagerduty => plain::pagerduty(request)?,
            Scheme::Grafana { timestamp_header: None } => plain::grafana(request)?,
            Scheme::Grafana { timestamp_header: Some(name) } => timed::grafana(request, name, window)?,
            Scheme::Terraform => plain::terraform(request)?,
            Scheme::Hmac(form) => plain::configured(request, form)?,
        };
        claim.believe(&self.keys)?;
        match self.scheme {
            Scheme::Linear => plain::linear_time(request.body, window),
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
