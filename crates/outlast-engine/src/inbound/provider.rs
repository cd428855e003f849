//! What a verified webhook tells: the type of its event, the id by which a repeated one is known, its payload as JSON, and
//! the few headers that are kept. Call it only after [`super::verify::Verifier::check`]; where a provider tells the type
//! in a header, that header is not under the signature.

mod body;
mod cloudevents;
mod kept_headers;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderMap;
use outlast_core::filter::Projection;
use outlast_core::object::digest_text;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::verify::Scheme;
use rules::{Names, Told};

/// The type of an event whose webhook does not tell one. It can be subscribed to by this name or by `*`.
pub const UNTYPED: &str = "untyped";

/// Longest text that a name is made of, in characters. A type has two such parts at most, an id three.
const TEXT_LENGTH_MAX: usize = 255;

/// Longest id as it is, in bytes: more than any one text has. A database finds no key again that is much longer.
const ID_BYTES_MAX: usize = 1024;

/// One event from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub event_type: String,
    /// Two webhooks of a source with the same id tell of the same event. One of several parts that is too long stands as its
    /// digest. `None` where the provider has nothing of the kind: then each webhook counts.
    pub provider_event_id: Option<String>,
    /// JSON. A body that was JSON is kept as it came, byte for byte.
    pub payload: Arc<str>,
    /// The same, parsed, as far as somebody looks at it.
    pub value: Value,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
}

/// Verified, but of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// To be answered with 400.
    #[error("the body is said to be JSON and is not: {0}")]
    Json(String),
    /// To be answered with 415.
    #[error("a body of type \"{0}\" must be UTF-8; JSON, forms and text are taken")]
    Media(String),
    /// To be answered with 400.
    #[error("{0} must come once")]
    Repeated(String),
    /// To be answered with 400.
    #[error("{0} must be at most {TEXT_LENGTH_MAX} characters, without control characters")]
    Text(String),
}

/// Reads a verified webhook. CloudEvents win over the rule of the provider on `standard-webhooks` and `hmac`, the schemes
/// of senders that may well speak it. The projection begins with [`looked_at`].
pub fn read(scheme: &Scheme, headers: &HeaderMap, body: &[u8], projection: &Projection) -> Result<Event, Unreadable> {
    let (payload, value) = body::read(scheme, headers, body, projection)?;
    let told = Told { headers, value: &value };
    let cloudevent = match scheme {
        Scheme::StandardWebhooks | Scheme::Hmac(_) => cloudevents::names(&told)?,
        _ => None,
    };
    let names = match cloudevent {
        Some(names) if names.id.is_some() => names,
        Some(names) => Names { id: rules::names(scheme, &told)?.id, ..names },
        None => rules::names(scheme, &told)?,
    };
    Ok(Event {
        event_type: names.event_type.unwrap_or_else(|| UNTYPED.to_owned()),
        provider_event_id: names.id.map(bounded),
        headers: kept_headers::headers(scheme, headers),
        payload,
        value,
    })
}

/// What the rules of a scheme read of a body.
pub fn looked_at(scheme: &Scheme) -> Projection {
    rules::members(scheme).map_or_else(Projection::everything, Projection::members)
}

fn bounded(id: String) -> String {
    if id.len() <= ID_BYTES_MAX {
        return id;
    }
    digest_text(&Sha256::digest(id.as_bytes()))
}

/// What Slack wants back, as it is, when somebody enters the address of a source there. Such a webhook tells no event.
pub fn challenge<'a>(scheme: &Scheme, event: &'a Event) -> Option<&'a str> {
    let asks = *scheme == Scheme::Slack && event.value.get("type")? == "url_verification";
    event.value.get("challenge").filter(|_| asks)?.as_str()
}
