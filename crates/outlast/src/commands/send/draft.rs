//! A webhook before it is signed: the file, with type and id where the provider has them. Members of the file stay,
//! and must fit.

use outlast_core::Timestamp;
use outlast_core::filter::Projection;
use outlast_engine::inbound::provider::{self, Event};
use outlast_engine::inbound::verify::{Place, Scheme};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::members;
use super::provider_fields::{IdField, of_id, of_type};
use crate::failure::Failure;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// The event to compose.
pub(crate) struct Wish<'a> {
    pub kind: &'a str,
    pub id: Option<&'a str>,
    /// For an event that has no id otherwise.
    pub spare_id: &'a str,
    /// The content of the file.
    pub text: String,
    pub now: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Draft {
    pub headers: HeaderMap,
    pub body: String,
    pub content_type: &'static str,
}

pub(crate) fn compose(scheme: &Scheme, wish: Wish<'_>) -> Result<Draft, Failure> {
    let mut draft = Draft::of_file(scheme, wish.text)?;
    let placed = of_type(scheme, wish.kind);
    for placed in &placed {
        if matches!(placed.place, Place::Header(_)) {
            draft.put(&placed.place, &placed.text)?;
        }
    }
    if !is_kind(scheme, &draft.read(scheme)?.event_type, wish.kind) {
        for placed in placed.iter().filter(|placed| matches!(placed.place, Place::Field(_))) {
            draft.put_new(scheme, &placed.place, &placed.text)?;
        }
    }
    if *scheme == Scheme::Linear {
        // Receivers believe it for a short time only, so that of the file is of no use.
        draft.body = put_member(&draft.body, "/webhookTimestamp", &json!(wish.now.as_millis()))?;
    }
    let event = draft.read(scheme)?;
    if !is_kind(scheme, &event.event_type, wish.kind) {
        let message = format!("the file tells of an event \"{}\", not of \"{}\"", event.event_type, wish.kind);
        return Err(Failure::usage(message).with_hint("send it under its own type, or change the file"));
    }
    match (of_id(scheme), wish.id) {
        (IdField::Absent, Some(_)) => {
            let message = format!("events of {} have no id of their own", scheme.name());
            return Err(Failure::usage(message).with_hint("leave --id out"));
        }
        (IdField::Known(place), Some(id)) => draft.put(&place, id)?,
        (IdField::Known(place), None) if event.provider_event_id.is_none() => draft.put(&place, wish.spare_id)?,
        (IdField::Known(_) | IdField::Signed | IdField::Absent, _) => {}
    }
    Ok(draft)
}

/// A type without an action matches the event with any action.
fn is_kind(scheme: &Scheme, found: &str, kind: &str) -> bool {
    let has_actions = matches!(scheme, Scheme::Github | Scheme::Linear) && !kind.contains('.');
    found == kind || has_actions && found.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.'))
}

impl Draft {
    /// JSON, or the form that Twilio and Slack send.
    fn of_file(scheme: &Scheme, text: String) -> Result<Draft, Failure> {
        let (content_type, body) = match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => (JSON, text),
            Err(_) if matches!(scheme, Scheme::Twilio | Scheme::Slack) && text.contains('=') => {
                (FORM, text.trim().to_owned())
            }
            Err(error) => return Err(Failure::usage(format!("the file is not JSON: {error}"))),
        };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        Ok(Draft { headers, body, content_type })
    }

    /// As the server will read it.
    fn read(&self, scheme: &Scheme) -> Result<Event, Failure> {
        let read = provider::read(scheme, &self.headers, self.body.as_bytes(), &Projection::everything());
        read.map_err(|error| Failure::usage(error.to_string()))
    }

    /// Leaves a field of the body that is there.
    fn put_new(&mut self, scheme: &Scheme, place: &Place, text: &str) -> Result<(), Failure> {
        let value = self.read(scheme)?.value;
        match place {
            Place::Field(pointer) if value.pointer(pointer).is_some_and(|present| !present.is_null()) => Ok(()),
            place => self.put(place, text),
        }
    }

    fn put(&mut self, place: &Place, text: &str) -> Result<(), Failure> {
        match place {
            Place::Header(name) => {
                let refuse = |_| Failure::usage(format!("\"{text}\" cannot stand in the header {name}"));
                self.headers.insert(name, HeaderValue::try_from(text).map_err(refuse)?);
            }
            Place::Field(pointer) if self.content_type == FORM => {
                let mut form = form_urlencoded::Serializer::new(std::mem::take(&mut self.body));
                form.append_pair(pointer.trim_start_matches('/'), text);
                self.body = form.finish();
            }
            Place::Field(pointer) => self.body = put_member(&self.body, pointer, &json!(text))?,
        }
        Ok(())
    }
}

fn put_member(json: &str, pointer: &str, value: &Value) -> Result<String, Failure> {
    members::set(json, pointer, value).map_err(|error| {
        let path = pointer.replace('/', ".");
        Failure::usage(format!("cannot put {value} at ${path} of the file: {error}"))
    })
}

#[cfg(test)]
mod tests;
