//! CloudEvents over HTTP: attributes in headers (binary) or in the body (structured). The data stays where it is.

use super::Unreadable;
use super::rules::{Names, Told};
use crate::inbound::media;

const STRUCTURED: &str = "application/cloudevents+json";

/// `None` where the webhook is no CloudEvent. An id is unique within its source only, so both make the event's id.
pub(super) fn names(told: &Told<'_>) -> Result<Option<Names>, Unreadable> {
    let (event_type, source, id) = if media::essence(told.headers).as_deref() == Some(STRUCTURED) {
        (told.field("/type")?, told.field("/source")?, told.field("/id")?)
    } else {
        (told.header("ce-type")?, told.header("ce-source")?, told.header("ce-id")?)
    };
    if event_type.is_none() {
        return Ok(None);
    }
    let id = match (source, id) {
        (Some(source), Some(id)) => Some(format!("{source} {id}")),
        (_, id) => id,
    };
    Ok(Some(Names { event_type, id }))
}
