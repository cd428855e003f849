//! From the bytes of a body to JSON. JSON stays as it came; a form becomes an object; other text becomes a string.

use std::sync::Arc;

use http::HeaderMap;
use outlast_core::filter::Projection;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::Unreadable;
use crate::inbound::media;
use crate::inbound::verify::Scheme;

/// GitHub (if asked to) and Slack (for what people click) send JSON in the only field of a form.
const WRAPPER: &str = "payload";

pub(super) fn read(
    scheme: &Scheme,
    headers: &HeaderMap,
    body: &[u8],
    projection: &Projection,
) -> Result<(Arc<str>, Value), Unreadable> {
    let essence = media::essence(headers);
    if body.is_empty() {
        return Ok(("null".into(), Value::Null));
    }
    match essence.as_deref() {
        Some(media::FORM) => Ok(form(scheme, body)),
        Some(essence) if is_json(essence) => json(body, projection),
        Some(essence) => text(essence, body),
        None => json(body, projection).or_else(|_| text("", body)),
    }
}

fn is_json(essence: &str) -> bool {
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

/// The parser stops at 128 levels, so that no body can exhaust the stack. Copied once, into what is stored.
fn json(body: &[u8], projection: &Projection) -> Result<(Arc<str>, Value), Unreadable> {
    let text = str::from_utf8(body).map_err(|error| Unreadable::Json(error.to_string()))?;
    let value = projection.read(text).map_err(|error| Unreadable::Json(error.to_string()))?;
    Ok((text.into(), value))
}

fn text(essence: &str, body: &[u8]) -> Result<(Arc<str>, Value), Unreadable> {
    let text = str::from_utf8(body).map_err(|_| Unreadable::Media(essence.to_owned()))?;
    Ok(written(Value::String(text.to_owned())))
}

/// An object of strings in the order of the form; a name that comes again has a list.
fn form(scheme: &Scheme, body: &[u8]) -> (Arc<str>, Value) {
    let mut fields: Map<String, Value> = Map::new();
    for (name, value) in form_urlencoded::parse(body) {
        let value = Value::String(value.into_owned());
        match fields.get_mut(name.as_ref()) {
            None => _ = fields.insert(name.into_owned(), value),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    if matches!(scheme, Scheme::Github | Scheme::Slack)
        && fields.len() == 1
        && let Some(Value::String(inner)) = fields.get(WRAPPER)
        && let Ok(value) = serde_json::from_str(inner)
    {
        return (inner.as_str().into(), value);
    }
    written(Value::Object(fields))
}

fn written(value: Value) -> (Arc<str>, Value) {
    (value.to_string().into(), value)
}
