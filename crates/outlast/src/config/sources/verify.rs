//! How a source proves where its events come from: the options `verify` and those of a plain HMAC.

use super::super::expressions::check_path;
use super::super::reader::Section;

/// How the sender signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verify {
    Stripe,
    Github,
    Shopify,
    Slack,
    Twilio,
    StandardWebhooks,
    Paddle,
    Gitlab,
    Linear,
    Pagerduty,
    Grafana,
    Terraform,
    Hmac(Hmac),
}

/// A plain HMAC over the body, in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hmac {
    /// In lower case.
    pub header: String,
    /// What stands in front of the digest, such as `sha256=`; may be empty.
    pub prefix: String,
    pub encoding: Encoding,
    pub algorithm: Algorithm,
    /// Where the type of the event stands; unset means where most senders have it.
    pub event_type: Option<EventType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Hex,
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventType {
    /// A JSONPath into the body.
    Path(String),
    /// A header, in lower case.
    Header(String),
}

/// The schemes by the names they have in the file; `hmac` stands beside them, since it has options.
static SCHEMES: &[(&str, Verify)] = &[
    ("stripe", Verify::Stripe),
    ("github", Verify::Github),
    ("shopify", Verify::Shopify),
    ("slack", Verify::Slack),
    ("twilio", Verify::Twilio),
    ("standard-webhooks", Verify::StandardWebhooks),
    ("paddle", Verify::Paddle),
    ("gitlab", Verify::Gitlab),
    ("linear", Verify::Linear),
    ("pagerduty", Verify::Pagerduty),
    ("grafana", Verify::Grafana),
    ("terraform", Verify::Terraform),
];
const HMAC: &str = "hmac";
const ENCODINGS: &[(&str, Encoding)] = &[("hex", Encoding::Hex), ("base64", Encoding::Base64)];
const ALGORITHMS: &[(&str, Algorithm)] =
    &[("sha1", Algorithm::Sha1), ("sha256", Algorithm::Sha256), ("sha512", Algorithm::Sha512)];

impl Verify {
    /// The name it has in the file.
    pub(crate) fn name(&self) -> &'static str {
        SCHEMES.iter().find(|(_, scheme)| scheme == self).map_or(HMAC, |(name, _)| name)
    }
}

/// What `verify` says.
#[derive(Clone, Copy)]
enum Asked {
    Scheme(&'static Verify),
    Hmac,
    /// Nothing, or nothing that we know.
    Unclear,
}

/// Reads `verify` and the options that belong to it.
pub(crate) fn read(section: &mut Section) -> Verify {
    let mut words: Vec<(&str, Asked)> = SCHEMES.iter().map(|(name, scheme)| (*name, Asked::Scheme(scheme))).collect();
    words.push((HMAC, Asked::Hmac));
    let asked = section.choice("verify", &words, Asked::Unclear);
    let HmacOptions { hmac, given } = hmac_options(section);
    match asked {
        Asked::Scheme(scheme) => {
            for name in given {
                section.complain(name, "has a meaning with verify: hmac only");
            }
            return scheme.clone();
        }
        Asked::Hmac if hmac.header.is_empty() => {
            section.complain("header", "is required with verify: hmac; it names the header with the signature");
        }
        Asked::Hmac | Asked::Unclear => {}
    }
    Verify::Hmac(hmac)
}

struct HmacOptions {
    hmac: Hmac,
    given: Vec<&'static str>,
}

fn hmac_options(section: &mut Section) -> HmacOptions {
    let names = ["header", "prefix", "encoding", "algorithm", "type_path", "type_header"];
    let given: Vec<&str> = names.into_iter().filter(|name| section.is_set(name)).collect();
    let header = header_name(section, "header").unwrap_or_default();
    let prefix = section.optional_text("prefix").unwrap_or_default();
    if prefix.len() > 64 || prefix.bytes().any(|byte| !(0x20..0x7f).contains(&byte)) {
        section.complain("prefix", "must be at most 64 visible ASCII characters such as sha256=");
    }
    let encoding = section.optional("encoding", |section| section.choice("encoding", ENCODINGS, Encoding::Hex));
    let algorithm = section.optional("algorithm", |section| section.choice("algorithm", ALGORITHMS, Algorithm::Sha256));
    let type_path = section.optional_text("type_path");
    if let Some(Err(message)) = type_path.as_deref().map(check_path) {
        section.complain("type_path", &message);
    }
    let type_header = header_name(section, "type_header");
    if type_path.is_some() && type_header.is_some() {
        section.complain("type_header", "cannot stand beside type_path: the type of an event has one place");
    }
    let hmac = Hmac {
        header,
        prefix,
        encoding: encoding.unwrap_or(Encoding::Hex),
        algorithm: algorithm.unwrap_or(Algorithm::Sha256),
        event_type: type_path.map(EventType::Path).or(type_header.map(EventType::Header)),
    };
    HmacOptions { hmac, given }
}

fn header_name(section: &mut Section, name: &'static str) -> Option<String> {
    let text = section.optional_text(name)?;
    match hyper::header::HeaderName::try_from(text.as_str()) {
        Ok(header) => Some(header.as_str().to_owned()),
        Err(_) => {
            section.complain(name, "must be the name of a header such as x-signature");
            Some(text)
        }
    }
}
