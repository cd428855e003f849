//! One request as it came: what it is, what it carries, and whether its signature is right.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::http::request::Parts;
use outlast_core::Timestamp;
use outlast_engine::sign::{self, Secret, Unverified};
use serde_json::Value;
use serde_json::value::RawValue;

/// The name of the plain header where a queue does not say otherwise.
pub(crate) const PLAIN_HEADER: &str = "x-outlast-signature";

#[derive(Debug)]
pub(crate) struct Delivery {
    pub at: Timestamp,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// The fields of the body, where it is a JSON object; values as they were written.
    pub fields: BTreeMap<String, Box<RawValue>>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is no secret to check with.
    Unchecked,
    Right,
    /// By Standard Webhooks; the plain header is made with another secret, as the newer one during a rotation.
    RightButPlain,
    Wrong(String),
}

/// The secrets that signatures are verified with.
#[derive(Debug)]
pub(crate) struct Checker {
    pub secrets: Vec<Secret>,
    pub plain_header: String,
}

impl Delivery {
    pub(crate) fn read(parts: &Parts, body: Bytes, checker: &Checker, at: Timestamp) -> Delivery {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers =
            parts.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();
        Delivery {
            at,
            method: parts.method.as_str().to_owned(),
            path: path.to_owned(),
            headers,
            fields: serde_json::from_slice(&body).unwrap_or_default(),
            verdict: checker.check(parts, &body, at),
            body,
        }
    }

    /// A field of the body, for people.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let value: Value = serde_json::from_str(self.fields.get(name)?.get()).ok()?;
        (!value.is_null()).then(|| crate::output::show(&value))
    }

    /// The news of an end, and not a job to be done.
    pub(crate) fn is_callback(&self) -> bool {
        self.fields.contains_key("status") && !self.fields.contains_key("payload")
    }
}

impl Checker {
    fn check(&self, parts: &Parts, body: &[u8], now: Timestamp) -> Verdict {
        if self.secrets.is_empty() {
            return Verdict::Unchecked;
        }
        let all = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let standard = sign::Headers::find(all).and_then(|headers| sign::verify(&self.secrets, headers, body, now));
        match (standard, self.check_plain(parts, body)) {
            (Err(reason), _) => Verdict::Wrong(reason.to_string()),
            (Ok(()), Err(_)) => Verdict::RightButPlain,
            (Ok(()), Ok(())) => Verdict::Right,
        }
    }

    /// A plain header may be missing; if there is one, it must be right.
    fn check_plain(&self, parts: &Parts, body: &[u8]) -> Result<(), Unverified> {
        for value in parts.headers.get_all(&self.plain_header) {
            sign::verify_plain(&self.secrets, value.as_bytes(), body)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const SECRET: &str = "a-secret-for-this-test";
    const NOW: Timestamp = Timestamp::EPOCH;

    fn checker(secret: &str) -> Checker {
        Checker { secrets: vec![Secret::from_text(secret).unwrap()], plain_header: PLAIN_HEADER.to_owned() }
    }

    /// A signed request for this body, read with this checker.
    fn read(signed: &str, sent: &str, plain: Option<&str>, checker: &Checker) -> Delivery {
        let secret = Secret::from_text(SECRET).unwrap();
        let mut request = Request::post("/hook?x=1")
            .header("webhook-id", "j1")
            .header("webhook-timestamp", "0")
            .header("webhook-signature", sign::standard(std::slice::from_ref(&secret), "j1", 0, signed.as_bytes()));
        if let Some(plain) = plain {
            request = request.header(PLAIN_HEADER, plain);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Delivery::read(&parts, Bytes::from(sent.to_owned()), checker, NOW)
    }

    #[test]
    fn a_delivery_is_taken_apart() {
        let body = r#"{"id":"j1","queue":"mail","attempt":2,"payload":{"n":12345678901234567890.10}}"#;
        let plain = sign::plain(&Secret::from_text(SECRET).unwrap(), body.as_bytes());

        let delivery = read(body, body, Some(&plain), &checker(SECRET));

        assert_eq!((delivery.method.as_str(), delivery.path.as_str()), ("POST", "/hook?x=1"));
        assert_eq!(delivery.field("queue").as_deref(), Some("mail"));
        assert_eq!(delivery.field("attempt").as_deref(), Some("2"));
        assert_eq!(delivery.fields["payload"].get(), r#"{"n":12345678901234567890.10}"#);
        assert_eq!(delivery.verdict, Verdict::Right);
        assert!(!delivery.is_callback());
    }

    #[test]
    fn a_wrong_signature_is_shown_with_its_reason() {
        let unchecked = Checker { secrets: Vec::new(), plain_header: PLAIN_HEADER.to_owned() };
        let wrong = |reason: &str| Verdict::Wrong(reason.to_owned());

        assert_eq!(read("{}", "{}", None, &unchecked).verdict, Verdict::Unchecked);
        assert_eq!(read("{}", "{}", None, &checker(SECRET)).verdict, Verdict::Right);
        assert_eq!(read("{}", "{ }", None, &checker(SECRET)).verdict, wrong("no signature matches"));
        assert_eq!(read("{}", "{}", None, &checker("some-other-secret")).verdict, wrong("no signature matches"));
        assert_eq!(read("{}", "{}", Some("sha256=00"), &checker(SECRET)).verdict, Verdict::RightButPlain);
        assert_eq!(read("{}", "{ }", Some("sha256=00"), &checker(SECRET)).verdict, wrong("no signature matches"));
    }

    #[test]
    fn a_body_that_is_no_object_has_no_fields() {
        for body in ["", "[]", "not json", "\"text\""] {
            assert!(read(body, body, None, &checker(SECRET)).fields.is_empty());
        }
    }

    #[test]
    fn a_callback_differs_from_a_job() {
        let body = r#"{"id":"j1","queue":"mail","status":"succeeded","replays":0}"#;

        assert!(read(body, body, None, &checker(SECRET)).is_callback());
    }
}
