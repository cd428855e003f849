//! The headers that stay with an event. A list of what is kept, not of what is dropped: signatures, tokens, cookies and
//! whatever a proxy adds never get into the store.

use http::{HeaderMap, HeaderName};

use crate::inbound::verify::{Place, Scheme};

/// Bounds of what is kept: more is left out, not refused.
const HEADERS_MAX: usize = 32;
const VALUE_LENGTH_MAX: usize = 1024;

const ALWAYS: [&str; 2] = ["content-type", "user-agent"];
/// The attributes of a CloudEvent.
const ATTRIBUTES: &str = "ce-";

/// In the order of their names. Of a header that comes again the first value.
pub(super) fn headers(scheme: &Scheme, headers: &HeaderMap) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for name in headers.keys().filter(|name| is_kept(scheme, name)) {
        let Some(text) = headers.get(name).and_then(|value| value.to_str().ok()) else { continue };
        if text.len() <= VALUE_LENGTH_MAX {
            kept.push((name.as_str().to_owned(), text.to_owned()));
        }
    }
    kept.sort();
    kept.truncate(HEADERS_MAX);
    kept
}

fn is_kept(scheme: &Scheme, name: &HeaderName) -> bool {
    if let Scheme::Hmac(form) = scheme {
        if form.header == *name {
            return false;
        }
        let places = [&form.event_type, &form.event_id];
        if places.into_iter().any(|place| *place == Place::Header(name.clone())) {
            return true;
        }
    }
    let text = name.as_str();
    ALWAYS.contains(&text) || text.starts_with(ATTRIBUTES) || of_provider(scheme).contains(&text)
}

fn of_provider(scheme: &Scheme) -> &'static [&'static str] {
    match scheme {
        Scheme::Github => &[
            "x-github-event",
            "x-github-delivery",
            "x-github-hook-id",
            "x-github-hook-installation-target-id",
            "x-github-hook-installation-target-type",
        ],
        Scheme::Shopify => &[
            "x-shopify-topic",
            "x-shopify-webhook-id",
            "x-shopify-event-id",
            "x-shopify-shop-domain",
            "x-shopify-api-version",
            "x-shopify-triggered-at",
        ],
        Scheme::Slack => &["x-slack-retry-num", "x-slack-retry-reason", "x-slack-request-timestamp"],
        Scheme::Twilio => &["i-twilio-idempotency-token"],
        Scheme::StandardWebhooks => &["webhook-id", "webhook-timestamp"],
        Scheme::Gitlab => &[
            "x-gitlab-event",
            "x-gitlab-event-uuid",
            "x-gitlab-webhook-uuid",
            "x-gitlab-instance",
            "idempotency-key",
            "webhook-id",
            "webhook-timestamp",
        ],
        Scheme::Linear => &["linear-event", "linear-delivery", "linear-timestamp"],
        Scheme::Pagerduty => &["x-webhook-id", "x-webhook-subscription"],
        Scheme::Stripe | Scheme::Paddle | Scheme::Grafana { .. } | Scheme::Terraform | Scheme::Hmac(_) => &[],
    }
}
