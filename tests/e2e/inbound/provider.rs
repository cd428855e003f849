//! A provider: it signs what it sends, as Stripe does by code of its own, as others do by the code that the vectors of
//! the schemes are checked against.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use outlast_engine::inbound::verify::{Algorithm, Encoding};
use outlast_engine::inbound::verify::{HmacForm, Outgoing, Scheme, TOLERANCE, Verifier};
use outlast_tests::http::{Client, Lost, Reply};
use outlast_tests::server::Server;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

pub(crate) const STRIPE_HEADER: &str = "stripe-signature";

/// Stripe, as far as a receiver can tell.
#[derive(Clone)]
pub(crate) struct Stripe {
    pub client: Client,
    pub path: String,
    pub secret: String,
}

impl Stripe {
    pub(crate) fn before(server: &Server, path: &str, secret: &str) -> Stripe {
        Stripe { client: server.client(), path: path.to_owned(), secret: secret.to_owned() }
    }

    pub(crate) fn at(&self, base: &str) -> Stripe {
        Stripe { client: self.client.at(base), ..self.clone() }
    }

    pub(crate) fn with_secret(&self, secret: &str) -> Stripe {
        Stripe { secret: secret.to_owned(), ..self.clone() }
    }

    pub(crate) fn signature(&self, seconds: i64, body: &str) -> String {
        format!("t={seconds},v1={}", digest(&self.secret, &format!("{seconds}.{body}")))
    }

    /// One webhook, signed at this moment.
    pub(crate) async fn send(&self, body: &str) -> Result<Reply, Lost> {
        let signature = self.signature(Timestamp::now().as_second(), body);
        self.send_with(&[(STRIPE_HEADER, &signature)], body).await
    }

    /// One webhook that must be taken.
    pub(crate) async fn tell(&self, body: &str) -> Value {
        self.send(body).await.expect("an answer").expect(200)
    }

    pub(crate) async fn send_with(&self, headers: &[(&str, &str)], body: &str) -> Result<Reply, Lost> {
        let mut request = self.client.keyless(Method::POST, &self.path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.send(request.body(body.to_owned())).await
    }
}

/// A body as Stripe's are.
pub(crate) fn event(id: &str, kind: &str, amount_due: i64) -> String {
    json!({"id": id, "type": kind, "data": {"object": {"amount_due": amount_due}}}).to_string()
}

fn digest(secret: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key has any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A scheme by its name in the file; `hmac` in its plainest form.
pub(crate) fn scheme(name: &str) -> Scheme {
    match name {
        "hmac" => {
            let form = HmacForm::new("x-signature", "", Encoding::Hex, Algorithm::Sha256);
            Scheme::Hmac(form.expect("the form is sound"))
        }
        name => Scheme::named(name).expect("a scheme"),
    }
}

/// A webhook of any provider: the headers of a good webhook, `seconds` after this moment, and where it goes.
pub(crate) fn signed(name: &str, secret: &str, url: &str, webhook: (&str, &str), seconds: i64) -> (HeaderMap, String) {
    let (content_type, body) = webhook;
    let verifier = Verifier::new(scheme(name), &[secret], TOLERANCE).expect("a sound secret");
    let now = outlast_core::Timestamp::from_millis((Timestamp::now().as_second() + seconds) * 1000);
    let outgoing = Outgoing { url, id: "msg_1", content_type, body: body.as_bytes(), now };
    let signed = verifier.sign(&outgoing).expect("signed");
    let mut headers: HeaderMap<HeaderValue> = signed.headers.into_iter().collect();
    headers.insert(HeaderName::from_static("content-type"), HeaderValue::from_str(content_type).expect("a type"));
    (headers, signed.url)
}
