//! The time of a webhook, where its scheme has one.

use std::time::Duration;

use http::HeaderName;
use outlast_core::Timestamp;

use super::{Webhook, vectors};
use crate::inbound::verify::{Forged, Outgoing, Request, Verifier};

fn has_time(webhook: &Webhook) -> bool {
    let by_header = webhook.headers.keys().any(|name| name.as_str().ends_with("timestamp"));
    by_header || matches!(webhook.scheme.name(), "stripe" | "paddle" | "linear")
}

// T08
#[test]
fn an_old_and_a_future_time_are_refused() {
    let (timed, timeless): (Vec<_>, Vec<_>) = vectors().into_iter().partition(has_time);

    assert_eq!(timed.len(), 8, "stripe, slack, two of standard-webhooks, paddle, gitlab, linear, grafana");
    for webhook in timed {
        // Linear's time has a fraction of a second.
        for near in [-299, 0, 299] {
            assert_eq!(webhook.check(&[&webhook.secret], near), Ok(()), "{webhook:?}");
        }
        for far in [-302, 302, -webhook.now, 1_000_000_000] {
            assert_eq!(webhook.check(&[&webhook.secret], far), Err(Forged), "{webhook:?}");
        }
    }
    for webhook in timeless {
        assert_eq!(webhook.check(&[&webhook.secret], 1_000_000_000), Ok(()), "{webhook:?}");
    }
}

#[test]
fn the_tolerance_is_that_of_the_source() {
    for webhook in vectors().into_iter().filter(has_time) {
        let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], Duration::from_secs(10)).unwrap();
        let said = |after: i64| {
            let now = Timestamp::from_millis((webhook.now + after) * 1000);
            verifier.check(&Request { url: &webhook.url, headers: &webhook.headers, body: &webhook.body, now })
        };

        assert_eq!(said(10), Ok(()));
        assert_eq!(said(12), Err(Forged));
        assert_eq!(said(-12), Err(Forged));
    }
}

// T08
#[test]
fn a_time_that_is_no_number_of_seconds_is_refused() {
    let times =
        ["", "0", "-1", "+1700000000", " 1700000000", "1700000000 ", "1700000000.0", "0x6553f100", "1e9", "now"];
    let huge = ["9223372036854775807", "9223372036854775808", "99999999999999999999999999", "-9223372036854775808"];
    for webhook in vectors().into_iter().filter(has_time) {
        for time in times.into_iter().chain(huge) {
            let forged = with_time(&webhook, time);
            assert_eq!(forged.check(&[&webhook.secret], 0), Err(Forged), "{time:?} {webhook:?}");
        }
    }
}

/// With another time. Linear's is signed anew, so that only the time is in doubt; of the others `claim.rs` tests it alone.
fn with_time(webhook: &Webhook, time: &str) -> Webhook {
    let now = webhook.now.to_string();
    let name = webhook.headers.keys().find(|name| name.as_str().ends_with("timestamp")).cloned();
    match name {
        Some(name) => webhook.with_header(&name, time),
        None if webhook.scheme.name() == "linear" => resigned(webhook, format!("{{\"webhookTimestamp\":{time}}}")),
        None => webhook.with_signature(&webhook.signature().replace(&now, time)),
    }
}

fn resigned(webhook: &Webhook, body: String) -> Webhook {
    let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], Duration::ZERO).unwrap();
    let now = Timestamp::from_millis(webhook.now * 1000);
    let outgoing = Outgoing { url: "", id: "", content_type: "application/json", body: body.as_bytes(), now };
    let (name, value) = verifier.sign(&outgoing).unwrap().headers.remove(0);
    let other = webhook.with_header(&name, value.to_str().unwrap());
    Webhook { body: body.into_bytes(), ..other }
}

// T08
#[test]
fn a_body_of_linear_needs_its_time_in_milliseconds() {
    let webhook = vectors().into_iter().find(|webhook| webhook.scheme.name() == "linear").unwrap();
    let good = format!("{{\"webhookTimestamp\":{}}}", webhook.now * 1000);

    assert_eq!(resigned(&webhook, good).check(&[&webhook.secret], 0), Ok(()));
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "{\"webhookTimestamp\":null}",
        "{\"webhookTimestamp\":\"1700000000000\"}",
        "{\"webhookTimestamp\":1700000000}",
        "{\"webhookTimestamp\":1.7e12}",
        "{\"data\":{\"webhookTimestamp\":1700000000000}}",
    ] {
        assert_eq!(resigned(&webhook, body.to_owned()).check(&[&webhook.secret], 0), Err(Forged), "{body}");
    }
}

// T08
#[test]
fn a_time_is_told_once() {
    for webhook in vectors().into_iter().filter(|webhook| matches!(webhook.scheme.name(), "stripe" | "paddle")) {
        let time = webhook.signature().split([',', ';']).next().unwrap().to_owned();
        for separator in [",", ";"] {
            let twice = webhook.with_signature(&format!("{time}{separator}{}", webhook.signature()));
            assert_eq!(twice.check(&[&webhook.secret], 0), Err(Forged), "{webhook:?}");
        }
    }
}

// T08
#[test]
fn leaving_the_time_out_does_not_turn_its_check_off() {
    let vectors = vectors();
    let timed = vectors.iter().find(|webhook| webhook.scheme.name() == "grafana" && has_time(webhook)).unwrap();
    let timeless = vectors.iter().find(|webhook| webhook.scheme.name() == "grafana" && !has_time(webhook)).unwrap();

    let stripped = Webhook { scheme: timed.scheme.clone(), ..timeless.clone() };

    assert_eq!(stripped.check(&[&timed.secret], 0), Err(Forged));
}

// T08
#[test]
fn an_id_that_could_be_cut_apart_otherwise_is_refused() {
    let webhook = vectors().into_iter().find(|webhook| webhook.scheme.name() == "standard-webhooks").unwrap();
    let time = webhook.now.to_string();
    // The same bytes are signed: the time moves to the id, and the digits that begin the body become the time.
    let moved = format!("{time}.{}", String::from_utf8(webhook.body.clone()).unwrap());
    let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], Duration::from_secs(300)).unwrap();
    let now = Timestamp::from_millis(webhook.now * 1000);
    let signed = verifier
        .sign(&Outgoing { url: "", id: "a", content_type: "application/json", body: moved.as_bytes(), now })
        .unwrap();
    let mut forged = webhook.clone();
    for (name, value) in signed.headers {
        forged.headers.insert(name, value);
    }
    let forged = forged.with_header(&HeaderName::from_static("webhook-id"), &format!("a.{time}"));

    assert_eq!(forged.check(&[&webhook.secret], 0), Err(Forged));
}
