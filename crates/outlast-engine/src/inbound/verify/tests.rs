//! Webhooks of every scheme, signed by a script that shares no code with this crate, and what forgers make of them.

mod forged;
mod random;
mod times;

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_core::Timestamp;
use serde_json::Value;

use super::{
    Algorithm, BadForm, BadSecret, Encoding, Forged, HmacForm, Outgoing, Place, Request, Scheme, TOLERANCE, Verifier,
};

const VECTORS: &str = include_str!("../../../tests/vectors/inbound.json");
const OTHER_SECRET: &str = "another-secret-that-signed-nothing";
const OTHER_MARKED_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==";

/// A webhook that is good as it is.
#[derive(Clone, Debug)]
struct Webhook {
    scheme: Scheme,
    secret: String,
    url: String,
    headers: HeaderMap,
    body: Vec<u8>,
    now: i64,
}

impl Webhook {
    /// What is said of it under some secrets, `after` seconds from when it was signed.
    fn check(&self, secrets: &[&str], after: i64) -> Result<(), Forged> {
        let verifier = Verifier::new(self.scheme.clone(), secrets, TOLERANCE).unwrap();
        let now = Timestamp::from_millis((self.now + after) * 1000);
        verifier.check(&Request { url: &self.url, headers: &self.headers, body: &self.body, now })
    }

    fn is_believed(&self) -> bool {
        self.check(&[&self.secret], 0).is_ok()
    }

    /// The header that carries its signature or its token.
    fn signature_header(&self) -> HeaderName {
        let mut names = self.headers.keys().filter(|name| {
            let name = name.as_str();
            name.ends_with("signature") || name.ends_with("-256") || name.ends_with("sha256") || name.ends_with("token")
        });
        names.next().unwrap().clone()
    }

    fn signature(&self) -> &str {
        self.headers[self.signature_header()].to_str().unwrap()
    }

    fn with_header(&self, name: &HeaderName, value: &str) -> Webhook {
        let mut other = self.clone();
        other.headers.insert(name, HeaderValue::from_str(value).unwrap());
        other
    }

    fn with_signature(&self, value: &str) -> Webhook {
        self.with_header(&self.signature_header(), value)
    }
}

fn vectors() -> Vec<Webhook> {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    vectors.iter().map(webhook).collect()
}

fn webhook(vector: &Value) -> Webhook {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in vector["headers"].as_object().unwrap() {
        headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_str(value.as_str().unwrap()).unwrap());
    }
    Webhook {
        scheme: scheme(vector),
        secret: text(&vector["secret"]),
        url: text(&vector["url"]),
        headers,
        body: text(&vector["body"]).into_bytes(),
        now: vector["now"].as_i64().unwrap(),
    }
}

fn scheme(vector: &Value) -> Scheme {
    if let Some(form) = vector["hmac"].as_object() {
        let setting = |name: &str| form[name].as_str().unwrap();
        let encoding = Encoding::named(setting("encoding")).unwrap();
        let algorithm = Algorithm::named(setting("algorithm")).unwrap();
        return Scheme::Hmac(HmacForm::new(setting("header"), setting("prefix"), encoding, algorithm).unwrap());
    }
    if let Some(name) = vector["timestamp_header"].as_str() {
        return Scheme::Grafana { timestamp_header: Some(HeaderName::try_from(name).unwrap()) };
    }
    Scheme::named(vector["scheme"].as_str().unwrap()).unwrap()
}

#[test]
fn what_the_providers_sign_is_believed() {
    let vectors = vectors();

    for webhook in &vectors {
        assert_eq!(webhook.check(&[&webhook.secret], 0), Ok(()), "{webhook:?}");
    }
    for name in Scheme::NAMES {
        assert!(vectors.iter().any(|webhook| webhook.scheme.name() == name), "{name} has no vector");
    }
}

#[test]
fn an_old_secret_is_believed_while_it_is_live() {
    for webhook in vectors() {
        for secrets in [[OTHER_SECRET, &webhook.secret], [&webhook.secret, OTHER_SECRET]] {
            assert_eq!(webhook.check(&secrets, 0), Ok(()), "{webhook:?}");
        }
        assert_eq!(webhook.check(&[OTHER_SECRET], 0), Err(Forged), "{webhook:?}");
        assert_eq!(webhook.check(&[OTHER_MARKED_SECRET], 0), Err(Forged), "{webhook:?}");
    }
}

#[test]
fn what_we_sign_is_believed() {
    for webhook in vectors() {
        let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], TOLERANCE).unwrap();
        let now = Timestamp::from_millis(webhook.now * 1000);
        let content_type = webhook.headers["content-type"].to_str().unwrap();
        let url = webhook.url.split("&bodySHA256").next().unwrap();

        let signed = verifier.sign(&Outgoing { url, id: "event-1", content_type, body: &webhook.body, now }).unwrap();

        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
        headers.extend(signed.headers);
        let request = Request { url: &signed.url, headers: &headers, body: &webhook.body, now };
        assert_eq!(verifier.check(&request), Ok(()), "{webhook:?}");
    }
}

#[test]
fn a_name_leads_to_its_scheme_and_none_is_no_scheme() {
    for name in Scheme::NAMES.into_iter().filter(|name| *name != "hmac") {
        assert_eq!(Scheme::named(name).map(|scheme| scheme.name()), Some(name));
    }
    for name in ["none", "", "Stripe", "hmac", "github "] {
        assert_eq!(Scheme::named(name), None, "{name:?}");
    }
}

#[test]
fn secrets_that_cannot_be_right_are_refused() {
    let said = |scheme: Scheme, secrets: &[&str]| Verifier::new(scheme, secrets, TOLERANCE).map(|_| ());

    for scheme in vectors().into_iter().map(|webhook| webhook.scheme) {
        assert_eq!(said(scheme.clone(), &[]), Err(BadSecret::Missing));
        assert_eq!(said(scheme.clone(), &[""]), Err(BadSecret::Empty(1)));
        assert_eq!(said(scheme.clone(), &["fine", " \t"]), Err(BadSecret::Empty(2)));
        assert_eq!(said(scheme.clone(), &["fine\n"]), Err(BadSecret::Spaced(1)));
        assert_eq!(said(scheme, &["fine"; 9]), Err(BadSecret::TooMany));
    }
    for scheme in [Scheme::StandardWebhooks, Scheme::Gitlab] {
        assert_eq!(said(scheme.clone(), &["whsec_"]), Err(BadSecret::Empty(1)));
        assert_eq!(said(scheme.clone(), &["whsec_!!"]), Err(BadSecret::Base64(1)));
        assert_eq!(said(scheme, &["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg"]), Ok(()), "without padding");
    }
    assert_eq!(said(Scheme::Gitlab, &["caf\u{e9}"]), Err(BadSecret::Header(1)));
    assert_eq!(said(Scheme::Github, &["caf\u{e9}"]), Ok(()));
}

#[test]
fn settings_of_hmac_are_refused_by_name() {
    let form = |header: &str, prefix: &str| HmacForm::new(header, prefix, Encoding::Hex, Algorithm::Sha256);
    let place = |text: &str| Place::parse(text);

    assert_eq!(form("X Signature", ""), Err(BadForm::Header("X Signature".to_owned())));
    assert_eq!(form("", ""), Err(BadForm::Header(String::new())));
    assert_eq!(form("X-Signature", "sha256 "), Err(BadForm::Prefix));
    assert_eq!(place("$.data.a/b"), Ok(Place::Field("/data/a~1b".to_owned())));
    assert_eq!(place("X-Event"), Ok(Place::Header(HeaderName::from_static("x-event"))));
    for text in ["", "$", "$.", "$.a..b", "$type", "$.a[0]", "$..a", "$.*", "X Event"] {
        assert_eq!(place(text), Err(BadForm::Place(text.to_owned())));
    }
    for header in ["Authorization", "cookie", "X-Signature"] {
        let placed = form("X-Signature", "").unwrap().with_places(place("$.type").unwrap(), place(header).unwrap());
        assert_eq!(placed, Err(BadForm::Private(header.to_ascii_lowercase())));
    }
}

#[test]
fn a_verifier_shows_no_secret() {
    let shown = format!("{:?}", Verifier::new(Scheme::Gitlab, &["the-secret"], TOLERANCE).unwrap());

    assert_eq!(shown, "Verifier(gitlab, 1 keys)");
}
