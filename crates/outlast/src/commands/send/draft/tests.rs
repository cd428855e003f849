//! Drafts of every scheme pass the engine's own check once they are signed, and tell what was asked for.

use outlast_engine::inbound::verify::{Algorithm, Encoding, HmacForm, Outgoing, Request, TOLERANCE, Verifier};

use super::*;

fn now() -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000)
}
const URL: &str = "http://127.0.0.1:8080/webhooks/x";

fn wish<'a>(kind: &'a str, text: &str) -> Wish<'a> {
    Wish { kind, id: None, spare_id: "evt_spare", text: text.to_owned(), now: now() }
}

fn scheme(name: &str) -> Scheme {
    match name {
        "hmac" => Scheme::Hmac(HmacForm::new("x-signature", "", Encoding::Hex, Algorithm::Sha256).unwrap()),
        name => Scheme::named(name).unwrap(),
    }
}

/// Signs, checks and reads as sender and receiver do.
fn event_of(scheme: &Scheme, draft: Draft) -> Event {
    let verifier = Verifier::new(scheme.clone(), &["a secret of ours"], TOLERANCE).unwrap();
    let Draft { mut headers, body, content_type } = draft;
    let outgoing = Outgoing { url: URL, id: "evt_spare", content_type, body: body.as_bytes(), now: now() };
    let signed = verifier.sign(&outgoing).unwrap();
    headers.extend(signed.headers);
    let request = Request { url: &signed.url, headers: &headers, body: body.as_bytes(), now: now() };
    assert_eq!(verifier.check(&request), Ok(()), "{}", scheme.name());
    provider::read(scheme, &headers, body.as_bytes(), &Projection::everything()).unwrap()
}

#[test]
fn a_bare_file_gets_type_and_id_of_every_provider() {
    for (name, kind, has_id) in [
        ("stripe", "invoice.paid", true),
        ("github", "pull_request.opened", true),
        ("shopify", "orders/create", true),
        ("slack", "app_mention", true),
        ("twilio", "message.delivered", true),
        ("twilio", "call.completed", true),
        ("twilio", "onMessageAdded", true),
        ("standard-webhooks", "user.created", true),
        ("paddle", "transaction.paid", true),
        ("gitlab", "Push Hook", true),
        ("linear", "Issue.create", true),
        ("pagerduty", "incident.triggered", true),
        ("grafana", "firing", false),
        ("terraform", "run:completed", false),
        ("hmac", "order.placed", true),
    ] {
        let scheme = scheme(name);
        let event = event_of(&scheme, compose(&scheme, wish(kind, "{\"amount\": 1.10}")).unwrap());

        assert_eq!(event.event_type, kind, "{name}");
        assert_eq!(event.provider_event_id.as_deref(), has_id.then_some("evt_spare"), "{name}");
        assert!(event.payload.contains("1.10"), "{name}: {}", event.payload);
    }
}

#[test]
fn a_file_that_has_everything_is_sent_as_it_is() {
    for (name, kind, text, id) in [
        ("stripe", "invoice.paid", r#"{ "type": "invoice.paid",  "id":"evt_1"}"#, "evt_1"),
        (
            "slack",
            "app_mention",
            r#"{"type":"event_callback", "event": {"type":"app_mention"}, "event_id":"Ev1"}"#,
            "Ev1",
        ),
        ("slack", "/deploy", "command=%2Fdeploy&event_id=E7", "E7"),
        ("twilio", "message.sent", "MessageSid=SM1&MessageStatus=sent", "SM1 sent"),
        ("pagerduty", "incident.triggered", r#"{"event": {"event_type":"incident.triggered","id":"E1"}}"#, "E1"),
    ] {
        let scheme = scheme(name);
        let draft = compose(&scheme, wish(kind, text)).unwrap();

        assert_eq!(draft.body, text, "{name}");
        assert_eq!(event_of(&scheme, draft).provider_event_id.as_deref(), Some(id), "{name}");
    }
}

#[test]
fn a_file_that_tells_of_another_type_is_refused() {
    for (name, kind, text, found) in [
        ("stripe", "invoice.paid", r#"{"type":"charge.failed"}"#, "charge.failed"),
        ("github", "pull_request.opened", r#"{"action":"closed"}"#, "pull_request.closed"),
        ("linear", "Issue.create", r#"{"type":"Comment","action":"create"}"#, "Comment.create"),
        ("slack", "app_mention", r#"{"event":{"type":"message"}}"#, "message"),
        ("twilio", "message.sent", "MessageStatus=delivered", "message.delivered"),
        ("terraform", "run:completed", r#"{"notifications":[{"trigger":"run:errored"}]}"#, "run:errored"),
    ] {
        let failure = compose(&scheme(name), wish(kind, text)).unwrap_err();

        assert_eq!(failure.message, format!("the file tells of an event \"{found}\", not of \"{kind}\""), "{name}");
    }
}

#[test]
fn an_event_of_github_may_be_named_without_its_action() {
    let scheme = Scheme::Github;
    let draft = compose(&scheme, wish("pull_request", r#"{"action":"closed"}"#)).unwrap();

    assert_eq!(event_of(&scheme, draft).event_type, "pull_request.closed");
}

#[test]
fn an_id_that_is_given_wins_over_that_of_the_file() {
    for name in ["stripe", "github", "shopify", "paddle", "hmac"] {
        let scheme = scheme(name);
        let wish = Wish { id: Some("evt_given"), ..wish("a.b", r#"{"id":"evt_file","event_id":"evt_file"}"#) };
        let event = event_of(&scheme, compose(&scheme, wish).unwrap());

        assert_eq!(event.provider_event_id.as_deref(), Some("evt_given"), "{name}");
    }
    let failure = compose(&scheme("grafana"), Wish { id: Some("x"), ..wish("firing", "{}") }).unwrap_err();
    assert_eq!(failure.message, "events of grafana have no id of their own");
}

#[test]
fn the_time_of_linear_is_that_of_sending() {
    let draft = compose(&Scheme::Linear, wish("Issue", r#"{"webhookTimestamp":1,"type":"Issue"}"#)).unwrap();

    assert_eq!(draft.body, format!(r#"{{"webhookTimestamp":{},"type":"Issue"}}"#, now().as_millis()));
}

#[test]
fn an_event_that_cannot_be_sent_is_a_usage_error() {
    for (name, kind, text, said) in [
        ("stripe", "invoice.paid", "MessageStatus=x", "the file is not JSON: "),
        ("stripe", "invoice.paid", "[1]", "cannot put \"invoice.paid\" at $.type of the file: "),
        ("slack", "app_mention", r#"{"event":"text"}"#, "cannot put \"app_mention\" at $.event.type of the file: "),
        ("shopify", "orders\ncreate", "{}", "\"orders\ncreate\" cannot stand in the header x-shopify-topic"),
        ("twilio", "message.sent", "nonsense", "the file is not JSON: "),
    ] {
        let failure = compose(&scheme(name), wish(kind, text)).unwrap_err();

        assert!(failure.message.starts_with(said), "{name}: {}", failure.message);
    }
}
