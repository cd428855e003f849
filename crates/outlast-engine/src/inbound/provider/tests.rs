//! What each provider's webhook is read as. The bodies have the form that the providers document.

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_core::filter::Projection;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Event, UNTYPED, Unreadable, challenge, looked_at, read};
use crate::inbound::verify::{Algorithm, Encoding, HmacForm, Place, Scheme};

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn scheme(name: &str) -> Scheme {
    match name {
        "hmac" => Scheme::Hmac(HmacForm::new("X-Signature", "", Encoding::Hex, Algorithm::Sha256).unwrap()),
        name => Scheme::named(name).unwrap(),
    }
}

fn event(name: &str, pairs: &[(&str, &str)], body: &str) -> Result<Event, Unreadable> {
    read(&scheme(name), &headers(pairs), body.as_bytes(), &Projection::everything())
}

/// Type and id of a webhook with a body of JSON, and some headers.
fn check(name: &str, pairs: &[(&str, &str)], body: &Value, expected: (&str, Option<&str>)) {
    // Also when nothing is kept but what the rules say that they look at.
    for projection in [Projection::everything(), looked_at(&scheme(name))] {
        let event = read(&scheme(name), &headers(pairs), body.to_string().as_bytes(), &projection).unwrap();
        assert_eq!((event.event_type.as_str(), event.provider_event_id.as_deref()), expected, "{name}: {body}");
    }
}

#[test]
fn each_provider_tells_type_and_id_in_its_own_place() {
    check("stripe", &[], &json!({"id": "evt_1", "type": "invoice.paid"}), ("invoice.paid", Some("evt_1")));
    let github = [("x-github-event", "issues"), ("x-github-delivery", "72d3162e")];
    check("github", &github, &json!({"action": "opened"}), ("issues.opened", Some("72d3162e")));
    let push = [("x-github-event", "push"), ("x-github-delivery", "72d3162f")];
    check("github", &push, &json!({"ref": "refs/heads/main"}), ("push", Some("72d3162f")));
    let shopify = [("x-shopify-topic", "orders/create"), ("x-shopify-webhook-id", "w1"), ("x-shopify-event-id", "e1")];
    check("shopify", &shopify, &json!({"id": 82_098_279}), ("orders/create", Some("w1")));
    check("shopify", &shopify[..1], &json!({"id": 82_098_279}), ("orders/create", None));
    let slack = json!({"type": "event_callback", "event_id": "Ev08MFMKH6", "event": {"type": "app_mention"}});
    check("slack", &[], &slack, ("app_mention", Some("Ev08MFMKH6")));
    check(
        "standard-webhooks",
        &[("webhook-id", "msg_1")],
        &json!({"type": "user.created"}),
        ("user.created", Some("msg_1")),
    );
    let paddle = json!({"event_id": "evt_01", "event_type": "transaction.paid"});
    check("paddle", &[], &paddle, ("transaction.paid", Some("evt_01")));
    let linear = json!({"action": "create", "type": "Issue"});
    check("linear", &[("linear-delivery", "234d1a4e")], &linear, ("Issue.create", Some("234d1a4e")));
    let pagerduty = json!({"event": {"id": "5ac64822", "event_type": "incident.triggered"}});
    check("pagerduty", &[], &pagerduty, ("incident.triggered", Some("5ac64822")));
    check("grafana", &[], &json!({"status": "firing", "groupKey": "g"}), ("firing", None));
    check("hmac", &[], &json!({"type": "done", "id": 17}), ("done", Some("17")));
}

#[test]
fn an_id_of_long_parts_stands_as_its_digest() {
    let id = |part: &str, length: usize| {
        let notification = json!({"trigger": "run:done", "run_updated_at": part.repeat(length)});
        let body = json!({"run_id": part.repeat(length), "notifications": [notification]});
        event("terraform", &[], &body.to_string()).unwrap().provider_event_id.unwrap()
    };

    assert_eq!(id("a", 255), format!("{} run:done {}", "a".repeat(255), "a".repeat(255)));
    assert_eq!(id("\u{20000}", 255).len(), 64);
    assert_ne!(id("\u{20000}", 255), id("\u{20001}", 255));
    assert_eq!(id("\u{20000}", 255), id("\u{20000}", 255));
}

#[test]
fn gitlab_is_known_by_what_stays_the_same_on_a_retry_only() {
    let all =
        [("x-gitlab-event", "Push Hook"), ("webhook-id", "w"), ("idempotency-key", "k"), ("x-gitlab-event-uuid", "u")];
    let body = json!({"object_kind": "push"});

    check("gitlab", &all, &body, ("Push Hook", Some("w")));
    check("gitlab", &[all[0], all[2], all[3]], &body, ("Push Hook", Some("k")));
    check("gitlab", &[all[0], all[3]], &body, ("Push Hook", Some("u")));
}

#[test]
fn the_states_of_a_run_of_terraform_are_different_events() {
    let body = |trigger: &str, at: &str| json!({"payload_version": 1, "run_id": "run-1", "notifications": [{"trigger": trigger, "run_updated_at": at}]});

    check("terraform", &[], &body("run:created", "10:00"), ("run:created", Some("run-1 run:created 10:00")));
    check("terraform", &[], &body("run:applying", "10:01"), ("run:applying", Some("run-1 run:applying 10:01")));
    let verification = json!({"run_id": null, "notifications": [{"trigger": "verification"}]});
    check("terraform", &[], &verification, ("verification", None));
    check("terraform", &[], &json!({"trigger": "assessment:drifted"}), ("assessment:drifted", None));
}

#[test]
fn twilio_tells_of_messages_and_calls() {
    let form = ("content-type", "application/x-www-form-urlencoded; charset=UTF-8");
    let check = |pairs: &[(&str, &str)], body: &str, expected: (&str, Option<&str>)| {
        let event = event("twilio", pairs, body).unwrap();
        assert_eq!((event.event_type.as_str(), event.provider_event_id.as_deref()), expected, "{body}");
    };

    check(&[form], "MessageSid=SM1&MessageStatus=sent", ("message.sent", Some("SM1 sent")));
    check(&[form], "MessageSid=SM1&MessageStatus=delivered", ("message.delivered", Some("SM1 delivered")));
    let token = ("i-twilio-idempotency-token", "tok");
    check(&[form, token], "MessageSid=SM1&SmsStatus=received&Body=hi", ("message.received", Some("tok")));
    check(&[form], "CallSid=CA1&CallStatus=completed&SequenceNumber=3", ("call.completed", Some("CA1 3")));
    check(&[form], "CallSid=CA1&CallStatus=in-progress&Digits=1", ("call.in-progress", None));
    check(&[form], "EventType=onMessageAdded", ("onMessageAdded", None));
    let streamed = r#"[{"type":"com.twilio.messaging.message.sent","id":"EZ1"}]"#;
    check(&[("content-type", "application/json")], streamed, ("com.twilio.messaging.message.sent", Some("EZ1")));
    check(&[], r#"[{"type":"a","id":"1"},{"type":"b","id":"2"}]"#, (UNTYPED, None));
}

#[test]
fn a_webhook_that_tells_no_type_has_the_type_untyped() {
    for name in Scheme::NAMES {
        for body in [json!({}), json!(null), json!("type"), json!({"type": null, "id": {}}), json!({"type": ""})] {
            check(name, &[], &body, (UNTYPED, None));
        }
    }
}

#[test]
fn slack_is_given_its_challenge_back() {
    let body = json!({"type": "url_verification", "challenge": "3eZbrw1aB", "token": "t"}).to_string();
    let asked = event("slack", &[], &body).unwrap();
    let other = event("slack", &[], r#"{"type":"event_callback","challenge":"x"}"#).unwrap();

    assert_eq!(challenge(&Scheme::Slack, &asked), Some("3eZbrw1aB"));
    assert_eq!(challenge(&Scheme::Stripe, &asked), None);
    assert_eq!(challenge(&Scheme::Slack, &other), None);
}

#[test]
fn a_binary_cloudevent_wins_on_the_schemes_of_own_senders() {
    let pairs = [
        ("ce-specversion", "1.0"),
        ("ce-type", "com.example.done"),
        ("ce-source", "/jobs"),
        ("ce-id", "A-1"),
        ("ce-tenant", "blue"),
        ("webhook-id", "msg_1"),
    ];
    let body = json!({"type": "other", "id": "other"});

    for name in ["standard-webhooks", "hmac"] {
        check(name, &pairs, &body, ("com.example.done", Some("/jobs A-1")));
    }
    check("stripe", &pairs, &body, ("other", Some("other")));
    // Without an id of its own it has that of the provider.
    check("standard-webhooks", &[pairs[1], pairs[5]], &body, ("com.example.done", Some("msg_1")));
    let kept = event("hmac", &pairs, "{}").unwrap().headers;
    assert_eq!(kept.iter().filter(|(name, _)| name.starts_with("ce-")).count(), 5);
}

#[test]
fn a_structured_cloudevent_keeps_its_data_inside() {
    let body = json!({"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data": {"type": "inner"}});
    let pairs = [("content-type", "application/cloudevents+json; charset=utf-8"), ("ce-type", "from a header")];

    for name in ["standard-webhooks", "hmac"] {
        check(name, &pairs, &body, ("t", Some("s 1")));
    }
    let event = event("hmac", &pairs, &body.to_string()).unwrap();
    assert_eq!(event.value["data"]["type"], "inner");
}

#[test]
fn the_places_of_hmac_can_be_chosen() {
    let form = HmacForm::new("X-Signature", "", Encoding::Hex, Algorithm::Sha256).unwrap();
    let places = (Place::parse("X-Event").unwrap(), Place::parse("$.meta.id").unwrap());
    let scheme = Scheme::Hmac(form.with_places(places.0, places.1).unwrap());
    let headers = headers(&[("x-event", "built"), ("x-signature", "00")]);

    let event =
        read(&scheme, &headers, br#"{"meta":{"id":"7"},"type":"no","id":"no"}"#, &Projection::everything()).unwrap();

    assert_eq!((event.event_type.as_str(), event.provider_event_id.as_deref()), ("built", Some("7")));
    assert_eq!(event.headers, [("x-event".to_owned(), "built".to_owned())]);
}

#[test]
fn json_is_kept_byte_for_byte() {
    let body = "{ \"b\":1.50,\n\"a\":12345678901234567890123, \"b\":\"\\u00e9\"}";

    for pairs in
        [vec![], vec![("content-type", "application/json")], vec![("content-type", "Application/Vnd.X+JSON;v=1")]]
    {
        assert_eq!(&*event("stripe", &pairs, body).unwrap().payload, body);
    }
}

#[test]
fn a_form_becomes_an_object() {
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let read = |name: &str, body: &str| event(name, &form, body).unwrap().value;

    assert_eq!(read("twilio", "b=1&a=x+y%26&b=2&b=&c"), json!({"b": ["1", "2", ""], "a": "x y&", "c": ""}));
    let wrapped = "payload=%7B%22action%22%3A%22opened%22%7D";
    for name in ["github", "slack"] {
        assert_eq!(read(name, wrapped), json!({"action": "opened"}));
    }
    assert_eq!(read("twilio", wrapped), json!({"payload": "{\"action\":\"opened\"}"}));
    assert_eq!(read("github", "payload=no+json"), json!({"payload": "no json"}));
}

#[test]
fn other_bodies_are_text_or_refused() {
    let text = [("content-type", "text/xml")];

    assert_eq!(&*event("hmac", &text, "<a/>").unwrap().payload, "\"<a/>\"");
    assert_eq!(event("hmac", &[], "plain").unwrap().value, json!("plain"));
    assert_eq!(&*event("hmac", &text, "").unwrap().payload, "null");
    let binary =
        read(&scheme("hmac"), &headers(&[("content-type", "image/png")]), b"\x89PNG\xff", &Projection::everything());
    assert_eq!(binary, Err(Unreadable::Media("image/png".to_owned())));
    let nameless = read(&scheme("hmac"), &headers(&[]), b"\xff", &Projection::everything());
    assert_eq!(nameless, Err(Unreadable::Media(String::new())));
    for body in ["{", "{}x", &"[".repeat(10_000), "\u{feff}{}"] {
        let said = event("hmac", &[("content-type", "application/json")], body);
        assert!(matches!(said, Err(Unreadable::Json(_))), "{said:?}");
    }
}

#[test]
fn names_that_are_too_long_unclear_or_repeated_are_refused() {
    let long = "x".repeat(256);
    let refused = |place: &str| Err(Unreadable::Text(place.to_owned()));

    let body = json!({"type": long, "id": "1"}).to_string();
    assert_eq!(event("stripe", &[], &body), refused("field \"/type\" of the body"));
    let body = json!({"type": "a\u{0}b", "id": "1"}).to_string();
    assert_eq!(event("stripe", &[], &body), refused("field \"/type\" of the body"));
    assert_eq!(event("github", &[("x-github-event", &long)], "{}"), refused("header \"x-github-event\""));
    let twice = [("x-github-event", "push"), ("x-github-event", "ping")];
    assert_eq!(event("github", &twice, "{}"), Err(Unreadable::Repeated("header \"x-github-event\"".to_owned())));
}

#[test]
fn only_headers_of_the_list_are_kept() {
    let mut pairs = vec![
        ("authorization", "Bearer x"),
        ("cookie", "a=b"),
        ("proxy-authorization", "x"),
        ("x-forwarded-for", "192.0.2.1"),
        ("stripe-signature", "t=1,v1=00"),
        ("x-hub-signature-256", "sha256=00"),
        ("x-shopify-hmac-sha256", "AA=="),
        ("x-slack-signature", "v0=00"),
        ("x-twilio-signature", "AA=="),
        ("webhook-signature", "v1,AA=="),
        ("paddle-signature", "ts=1;h1=00"),
        ("x-gitlab-token", "secret"),
        ("linear-signature", "00"),
        ("x-pagerduty-signature", "v1=00"),
        ("x-grafana-alerting-signature", "00"),
        ("x-tfe-notification-signature", "00"),
        ("x-signature", "00"),
    ];
    for name in Scheme::NAMES {
        assert_eq!(event(name, &pairs, "{}").unwrap().headers, [], "{name}");
    }
    pairs.extend([("user-agent", "a"), ("content-type", "application/json"), ("x-github-event", "push")]);
    let long = "x".repeat(1025);
    pairs.push(("x-github-hook-id", &long));

    let kept = event("github", &pairs, "{}").unwrap().headers;

    let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["content-type", "user-agent", "x-github-event"]);
}

#[test]
fn a_signature_is_not_kept_even_under_the_name_of_an_attribute() {
    let scheme = Scheme::Hmac(HmacForm::new("ce-signature", "", Encoding::Hex, Algorithm::Sha256).unwrap());
    let headers = headers(&[("ce-signature", "00"), ("ce-id", "1")]);

    let kept = read(&scheme, &headers, b"{}", &Projection::everything()).unwrap().headers;

    assert_eq!(kept, [("ce-id".to_owned(), "1".to_owned())]);
}

#[test]
fn at_most_thirty_two_headers_are_kept() {
    let names: Vec<String> = (0..100).map(|number| format!("ce-x{number:03}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();

    assert_eq!(event("hmac", &pairs, "{}").unwrap().headers.len(), 32);
}

/// Bodies that begin like something.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let starts = select(["", "{\"type\":\"a\",\"id\":", "[{\"type\":", "payload=%7B%7D&", "a=b&a=%ff&"].as_slice());
    (starts, vec(any::<u8>(), 0..100)).prop_map(|(start, rest)| [start.as_bytes(), &rest].concat())
}

proptest! {
    #[test]
    fn whatever_is_read_is_json_and_named(
        value in vec(any::<u8>(), 0..300),
        body in body(),
        media in select(["application/json", "application/x-www-form-urlencoded", "text/plain", "", "a;b"].as_slice()),
    ) {
        for name in Scheme::NAMES {
            let mut headers = headers(&[("content-type", media)]);
            for header in ["ce-type", "ce-id", "webhook-id", "x-github-event", "x-gitlab-event", "x-shopify-topic"] {
                headers.extend(HeaderValue::from_bytes(&value).map(|value| (HeaderName::from_static(header), value)));
            }
            let Ok(event) = read(&scheme(name), &headers, &body, &Projection::everything()) else { continue };

            prop_assert_eq!(serde_json::from_str::<Value>(&event.payload).unwrap(), event.value);
            prop_assert!(!event.event_type.is_empty());
        }
    }
}
