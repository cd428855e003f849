//! Where each provider puts the type and the id of an event. `send` writes them; the engine reads the draft back before it
//! is sent.

use outlast_engine::inbound::verify::{Place, Scheme};
use reqwest::header::HeaderName;

/// Part of the event type and the header or field that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeField {
    pub place: Place,
    pub text: String,
}

/// Where a provider puts the event id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IdField {
    Known(Place),
    /// The signing step writes it.
    Signed,
    /// The provider's events have no id.
    Absent,
}

/// The places that a type is written to: two where a provider splits it.
pub(crate) fn of_type(scheme: &Scheme, kind: &str) -> Vec<TypeField> {
    let (head, action) = kind.split_once('.').map_or((kind, None), |(head, action)| (head, Some(action)));
    let with_action = |place: Place| {
        let action = action.map(|action| TypeField { place: field("/action"), text: action.to_owned() });
        [Some(TypeField { place, text: head.to_owned() }), action].into_iter().flatten().collect()
    };
    let place = match scheme {
        Scheme::Github => return with_action(header("x-github-event")),
        Scheme::Linear => return with_action(field("/type")),
        Scheme::Twilio => return vec![twilio(head, action, kind)],
        Scheme::Stripe | Scheme::StandardWebhooks => field("/type"),
        Scheme::Shopify => header("x-shopify-topic"),
        Scheme::Slack => field("/event/type"),
        Scheme::Paddle => field("/event_type"),
        Scheme::Gitlab => header("x-gitlab-event"),
        Scheme::Pagerduty => field("/event/event_type"),
        Scheme::Grafana { .. } => field("/status"),
        Scheme::Terraform => field("/trigger"),
        Scheme::Hmac(form) => form.event_type().clone(),
    };
    vec![TypeField { place, text: kind.to_owned() }]
}

/// `message.delivered` and `call.completed` are the states of a message and a call; other types have a name of their own.
fn twilio(head: &str, action: Option<&str>, kind: &str) -> TypeField {
    let (name, text) = match (head, action) {
        ("message", Some(status)) => ("/MessageStatus", status),
        ("call", Some(status)) => ("/CallStatus", status),
        _ => ("/EventType", kind),
    };
    TypeField { place: field(name), text: text.to_owned() }
}

pub(crate) fn of_id(scheme: &Scheme) -> IdField {
    let place = match scheme {
        Scheme::StandardWebhooks => return IdField::Signed,
        Scheme::Grafana { .. } | Scheme::Terraform => return IdField::Absent,
        Scheme::Stripe => field("/id"),
        Scheme::Github => header("x-github-delivery"),
        Scheme::Shopify => header("x-shopify-webhook-id"),
        Scheme::Slack | Scheme::Paddle => field("/event_id"),
        Scheme::Twilio => header("i-twilio-idempotency-token"),
        Scheme::Gitlab => header("idempotency-key"),
        Scheme::Linear => header("linear-delivery"),
        Scheme::Pagerduty => field("/event/id"),
        Scheme::Hmac(form) => form.event_id().clone(),
    };
    IdField::Known(place)
}

fn header(name: &'static str) -> Place {
    Place::Header(HeaderName::from_static(name))
}

fn field(pointer: &str) -> Place {
    Place::Field(pointer.to_owned())
}
