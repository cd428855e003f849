//! The schemes by name, and the settings of the two that have some.

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};

use super::key::{Algorithm, Encoding};

/// How a provider signs. The names are those of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    Stripe,
    Github,
    Shopify,
    Slack,
    Twilio,
    StandardWebhooks,
    Paddle,
    Gitlab,
    Linear,
    Pagerduty,
    /// A contact point may name a header for the time, and then signs the time too. Where it is named here, a webhook
    /// without it is not believed: else leaving it out would turn the check of the time off.
    Grafana {
        timestamp_header: Option<HeaderName>,
    },
    Terraform,
    Hmac(HmacForm),
}

impl Scheme {
    pub const NAMES: [&'static str; 13] = [
        "stripe",
        "github",
        "shopify",
        "slack",
        "twilio",
        "standard-webhooks",
        "paddle",
        "gitlab",
        "linear",
        "pagerduty",
        "grafana",
        "terraform",
        "hmac",
    ];

    /// The scheme of a provider that needs no settings. `None` for an unknown name and for `hmac`, which is nothing
    /// without a [`HmacForm`].
    pub fn named(name: &str) -> Option<Scheme> {
        let scheme = match name {
            "stripe" => Scheme::Stripe,
            "github" => Scheme::Github,
            "shopify" => Scheme::Shopify,
            "slack" => Scheme::Slack,
            "twilio" => Scheme::Twilio,
            "standard-webhooks" => Scheme::StandardWebhooks,
            "paddle" => Scheme::Paddle,
            "gitlab" => Scheme::Gitlab,
            "linear" => Scheme::Linear,
            "pagerduty" => Scheme::Pagerduty,
            "grafana" => Scheme::Grafana { timestamp_header: None },
            "terraform" => Scheme::Terraform,
            _ => return None,
        };
        Some(scheme)
    }

    pub fn name(&self) -> &'static str {
        match self {
            Scheme::Stripe => "stripe",
            Scheme::Github => "github",
            Scheme::Shopify => "shopify",
            Scheme::Slack => "slack",
            Scheme::Twilio => "twilio",
            Scheme::StandardWebhooks => "standard-webhooks",
            Scheme::Paddle => "paddle",
            Scheme::Gitlab => "gitlab",
            Scheme::Linear => "linear",
            Scheme::Pagerduty => "pagerduty",
            Scheme::Grafana { .. } => "grafana",
            Scheme::Terraform => "terraform",
            Scheme::Hmac(_) => "hmac",
        }
    }
}

/// Refused as settings of `hmac`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadForm {
    #[error("\"{0}\" is not the name of a header")]
    Header(String),
    #[error("header \"{0}\" carries a secret or a signature and is never read for anything else")]
    Private(String),
    #[error("a prefix has at most 64 visible ASCII characters, without spaces")]
    Prefix,
    #[error("\"{0}\" is neither a header nor a path like \"$.data.type\"")]
    Place(String),
}

/// Where a text is found in a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Header(HeaderName),
    /// A JSON pointer (RFC 6901).
    Field(String),
}

impl Place {
    /// `$.data.type` is a field of the body, anything else the name of a header. Paths have names only: the one place of
    /// an event's type is never found by searching.
    pub fn parse(text: &str) -> Result<Place, BadForm> {
        let bad = || BadForm::Place(text.to_owned());
        let Some(path) = text.strip_prefix('$') else {
            return HeaderName::try_from(text).map(Place::Header).map_err(|_| bad());
        };
        let names = path.strip_prefix('.').ok_or_else(bad)?;
        let mut pointer = String::new();
        for name in names.split('.') {
            if name.is_empty() || name.contains(['[', ']', '*', ' ']) {
                return Err(bad());
            }
            pointer.push('/');
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        Ok(Place::Field(pointer))
    }
}

const PREFIX_BYTES_MAX: usize = 64;

/// A sender of one's own: an HMAC of the body in one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacForm {
    pub(in crate::inbound) header: HeaderName,
    pub(super) prefix: String,
    pub(super) encoding: Encoding,
    pub(super) algorithm: Algorithm,
    pub(in crate::inbound) event_type: Place,
    pub(in crate::inbound) event_id: Place,
}

impl HmacForm {
    /// The event's type is `$.type` and its id `$.id`, unless [`HmacForm::with_places`] says otherwise.
    pub fn new(header: &str, prefix: &str, encoding: Encoding, algorithm: Algorithm) -> Result<HmacForm, BadForm> {
        let header = HeaderName::try_from(header).map_err(|_| BadForm::Header(header.to_owned()))?;
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadForm::Prefix);
        }
        Ok(HmacForm {
            header,
            prefix: prefix.to_owned(),
            encoding,
            algorithm,
            event_type: Place::Field("/type".to_owned()),
            event_id: Place::Field("/id".to_owned()),
        })
    }

    /// Where the type of an event stands.
    pub fn event_type(&self) -> &Place {
        &self.event_type
    }

    /// Where the id of an event stands.
    pub fn event_id(&self) -> &Place {
        &self.event_id
    }

    pub fn with_places(self, event_type: Place, event_id: Place) -> Result<HmacForm, BadForm> {
        for place in [&event_type, &event_id] {
            let Place::Header(name) = place else { continue };
            if [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name) || *name == self.header {
                return Err(BadForm::Private(name.to_string()));
            }
        }
        Ok(HmacForm { event_type, event_id, ..self })
    }
}
