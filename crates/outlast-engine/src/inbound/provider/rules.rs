//! Where each provider tells the type and the id of an event. An id must be the same when a webhook is sent again and
//! another one for anything else: two events under one id would lose one of them. Where in doubt there is none.

use http::HeaderMap;
use serde_json::Value;

use super::{TEXT_LENGTH_MAX, Unreadable};
use crate::inbound::verify::{Place, Scheme};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub event_type: Option<String>,
    pub id: Option<String>,
}

/// What there is to read from.
pub(super) struct Told<'a> {
    pub headers: &'a HeaderMap,
    pub value: &'a Value,
}

impl Told<'_> {
    /// `None` where the header is missing or empty.
    pub(super) fn header(&self, name: &str) -> Result<Option<String>, Unreadable> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let place = || format!("header \"{name}\"");
        if values.next().is_some() {
            return Err(Unreadable::Repeated(place()));
        }
        let text = str::from_utf8(value.as_bytes()).map_err(|_| Unreadable::Text(place()))?;
        bounded(text.to_owned(), place)
    }

    /// A string or a number at a JSON pointer; `None` for anything else.
    pub(super) fn field(&self, pointer: &str) -> Result<Option<String>, Unreadable> {
        let text = match self.value.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => return Ok(None),
        };
        bounded(text, || format!("field \"{pointer}\" of the body"))
    }

    /// The first of some headers that is there.
    fn first_header(&self, names: &[&str]) -> Result<Option<String>, Unreadable> {
        for name in names {
            if let Some(text) = self.header(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn first_field(&self, pointers: &[&str]) -> Result<Option<String>, Unreadable> {
        for pointer in pointers {
            if let Some(text) = self.field(pointer)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn at(&self, place: &Place) -> Result<Option<String>, Unreadable> {
        match place {
            Place::Header(name) => self.header(name.as_str()),
            Place::Field(pointer) => self.field(pointer),
        }
    }
}

fn bounded(text: String, place: impl Fn() -> String) -> Result<Option<String>, Unreadable> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.chars().count() > TEXT_LENGTH_MAX || text.chars().any(char::is_control) {
        return Err(Unreadable::Text(place()));
    }
    Ok(Some(text))
}

pub(super) fn names(scheme: &Scheme, told: &Told<'_>) -> Result<Names, Unreadable> {
    let (event_type, id) = match scheme {
        Scheme::Stripe => (told.field("/type")?, told.field("/id")?),
        Scheme::Github => {
            let action = told.field("/action")?;
            (joined(told.header("x-github-event")?, action, "."), told.header("x-github-delivery")?)
        }
        // The id of the event is the same for every subscription to it; the one of the webhook is not.
        Scheme::Shopify => {
            (told.header("x-shopify-topic")?, told.first_header(&["x-shopify-webhook-id", "x-shopify-event-id"])?)
        }
        Scheme::Slack => (told.first_field(&["/event/type", "/type", "/command"])?, told.field("/event_id")?),
        Scheme::Twilio => twilio(told)?,
        Scheme::StandardWebhooks => (told.field("/type")?, told.header("webhook-id")?),
        Scheme::Paddle => (told.field("/event_type")?, told.field("/event_id")?),
        // The UUID of an event is shared by the webhooks that it sets off in turn, so it comes last.
        Scheme::Gitlab => {
            let ids = ["webhook-id", "idempotency-key", "x-gitlab-event-uuid"];
            (told.header("x-gitlab-event")?, told.first_header(&ids)?)
        }
        Scheme::Linear => (joined(told.field("/type")?, told.field("/action")?, "."), told.header("linear-delivery")?),
        Scheme::Pagerduty => (told.field("/event/event_type")?, told.field("/event/id")?),
        // Grafana tells of a group of alerts again and again, and means it.
        Scheme::Grafana { .. } => (told.field("/status")?, None),
        Scheme::Terraform => terraform(told)?,
        Scheme::Hmac(form) => (told.at(&form.event_type)?, told.at(&form.event_id)?),
    };
    Ok(Names { event_type, id })
}

/// The members of a body that [`names`] reads, those of a CloudEvent among them; `None` where it may be any, or deeper ones.
pub(super) fn members(scheme: &Scheme) -> Option<&'static [&'static str]> {
    match scheme {
        Scheme::Stripe => Some(&["type", "id"]),
        Scheme::Github => Some(&["action"]),
        Scheme::Shopify | Scheme::Gitlab => Some(&[]),
        Scheme::StandardWebhooks => Some(&["type", "source", "id"]),
        Scheme::Paddle => Some(&["event_type", "event_id"]),
        Scheme::Linear => Some(&["type", "action"]),
        Scheme::Grafana { .. } => Some(&["status"]),
        Scheme::Slack | Scheme::Twilio | Scheme::Pagerduty | Scheme::Terraform | Scheme::Hmac(_) => None,
    }
}

/// `message.delivered`, `call.completed`, or the type that Conversations, TaskRouter and Video tell themselves. The token
/// is the same when Twilio tries again. Without it, a status of a message is told once, and what a call tells is numbered.
fn twilio(told: &Told<'_>) -> Result<(Option<String>, Option<String>), Unreadable> {
    let message = told.first_field(&["/MessageStatus", "/SmsStatus"])?;
    let call = told.field("/CallStatus")?;
    let mut event_type = told.first_field(&["/EventType", "/StatusCallbackEvent"])?;
    if event_type.is_none() {
        event_type = message.as_ref().map(|status| format!("message.{status}"));
    }
    if event_type.is_none() {
        event_type = call.as_ref().map(|status| format!("call.{status}"));
    }
    let mut id = told.header("i-twilio-idempotency-token")?;
    if id.is_none() {
        id = both(told.first_field(&["/MessageSid", "/SmsSid"])?, message);
    }
    if id.is_none() {
        id = both(told.field("/CallSid")?, told.field("/SequenceNumber")?);
    }
    // Event Streams sends CloudEvents in a list. Of several none speaks for the others.
    if told.value.as_array().is_some_and(|events| events.len() == 1) {
        event_type = told.field("/0/type")?;
        id = id.or(told.field("/0/id")?);
    }
    Ok((event_type, id))
}

/// A run tells of each of its states, so its id alone is not that of an event.
fn terraform(told: &Told<'_>) -> Result<(Option<String>, Option<String>), Unreadable> {
    let trigger = told.first_field(&["/notifications/0/trigger", "/trigger"])?;
    let state = both(trigger.clone(), told.field("/notifications/0/run_updated_at")?);
    Ok((trigger, both(told.field("/run_id")?, state)))
}

/// The first with the second behind it, if there is a second.
fn joined(first: Option<String>, second: Option<String>, joint: &str) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{first}{joint}{second}")),
        (first, _) => first,
    }
}

/// Both together, or nothing.
fn both(first: Option<String>, second: Option<String>) -> Option<String> {
    Some(format!("{} {}", first?, second?))
}
