//! Forgeries of one scheme, some of them with a place chosen by chance. None of them is ever good.

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_engine::inbound::verify::Scheme;
use outlast_tests::chance::Chance;

use super::{Webhook, secret};

/// A secret that no source has.
const OTHER: &str = "another-secret-that-nobody-knows";
const OTHER_MARKED: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==";
/// Beginnings without a signature behind them.
const BARE: [&str; 9] = ["", "v1,", "v1=", "v0=", "sha256=", "t=1,v1=", "ts=1;h1=", "v1a,", "="];
/// They differ in the name of their header only.
const SAME: [&str; 3] = ["linear", "grafana", "hmac"];
/// More seconds than a signature is good for.
const TOO_FAR: i64 = 330;

/// Schemes that sign a time in a header. Linear has it in the body.
fn is_timed(name: &str) -> bool {
    matches!(name, "stripe" | "slack" | "standard-webhooks" | "paddle" | "gitlab")
}

pub(super) fn forgeries(name: &'static str, chance: &mut Chance) -> Vec<(&'static str, Webhook)> {
    let good = Webhook::good(name);
    let other = if secret(name).starts_with("whsec_") { OTHER_MARKED } else { OTHER };
    let mut all = vec![
        ("another secret", Webhook::signed(name, other, 0)),
        ("no headers at all", Webhook { headers: HeaderMap::new(), ..good.clone() }),
    ];
    if is_timed(name) {
        all.push(("an old time", Webhook::signed(name, secret(name), -TOO_FAR)));
        all.push(("a time to come", Webhook::signed(name, secret(name), TOO_FAR)));
    }
    all.extend(signatures(&good, chance).into_iter().map(|(what, text)| (what, with_signature(&good, &text))));
    all.extend(bodies(&good, chance).into_iter().map(|(what, body)| (what, Webhook { body, ..good.clone() })));
    all.extend(repeated(&good));
    all.extend(foreign(&good));
    all
}

/// Texts in place of the signature.
fn signatures(good: &Webhook, chance: &mut Chance) -> Vec<(&'static str, String)> {
    let signature = good.headers[signature_header(&good.headers)].to_str().expect("text").to_owned();
    let length = signature.len();
    let mut all: Vec<(&'static str, String)> = BARE.iter().map(|bare| ("no signature", (*bare).to_owned())).collect();
    // Padding at the end is not part of what is signed.
    all.push(("a cut signature", signature[..length - 5].to_owned()));
    all.push(("a cut signature", signature[..chance.between(0, length as u64 - 5) as usize].to_owned()));
    all.push(("one letter more", format!("{signature}0")));
    all.push(("another letter", replaced(&signature, length - 5 - chance.below(24) as usize)));
    for separator in [",", ";", " "] {
        let wrong = replaced(&signature, length - 8);
        let many = vec![wrong; 99].join(separator);
        all.push(("a hundred signatures, the last one good", format!("{many}{separator}{signature}")));
    }
    all
}

/// Another letter of the same alphabet.
fn replaced(text: &str, place: usize) -> String {
    let letter = if text.as_bytes()[place] == b'a' { "b" } else { "a" };
    format!("{}{letter}{}", &text[..place], &text[place + 1..])
}

/// Other bytes that mean the same or nearly so.
fn bodies(good: &Webhook, chance: &mut Chance) -> Vec<(&'static str, String)> {
    let body = &good.body;
    if good.name == "twilio" {
        // It signs names and values, not how they are written.
        return vec![("another value", body.replace("sent", "read")), ("one value more", format!("{body}&More=1"))];
    }
    let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let digits: Vec<usize> =
        body.char_indices().filter(|(_, letter)| letter.is_ascii_digit()).map(|(at, _)| at).collect();
    let mut digit = digits[chance.below(digits.len() as u64) as usize];
    while body.as_bytes()[digit] == b'9' {
        digit = digits[chance.below(digits.len() as u64) as usize];
    }
    let one_digit = format!("{}9{}", &body[..digit], &body[digit + 1..]);
    vec![
        ("re-encoded", value.to_string()),
        ("escaped", body.replace('é', "\\u00e9")),
        ("a line more", format!("{body}\n")),
        ("a mark before it", format!("\u{feff}{body}")),
        ("nothing", String::new()),
        ("another digit", one_digit),
    ]
}

/// Headers that come twice: two readers could take different ones.
fn repeated(good: &Webhook) -> Vec<(&'static str, Webhook)> {
    let name = signature_header(&good.headers);
    let signature = good.headers[&name].to_str().expect("text").to_owned();
    let wrong = replaced(&signature, signature.len() - 8);
    [(signature.clone(), signature.clone()), (wrong.clone(), signature.clone()), (signature, wrong)]
        .into_iter()
        .map(|(first, second)| {
            let mut webhook = with_signature(good, &first);
            webhook.headers.append(&name, HeaderValue::from_str(&second).expect("a header"));
            ("the header twice", webhook)
        })
        .collect()
}

/// Signatures of the other schemes with the secret of this one, in their headers and in ours.
fn foreign(good: &Webhook) -> Vec<(&'static str, Webhook)> {
    let mut all = Vec::new();
    for name in Scheme::NAMES {
        let other = Webhook::good(name);
        let header = signature_header(&other.headers);
        if header == signature_header(&good.headers) {
            continue;
        }
        let text = other.headers[header].to_str().expect("text").to_owned();
        all.push(("another scheme's headers", Webhook { headers: other.headers, ..good.clone() }));
        if !(SAME.contains(&name) && SAME.contains(&good.name)) {
            all.push(("another scheme's text", with_signature(&Webhook { body: other.body, ..good.clone() }, &text)));
        }
    }
    all
}

fn with_signature(webhook: &Webhook, text: &str) -> Webhook {
    let mut headers = webhook.headers.clone();
    headers.insert(signature_header(&headers), HeaderValue::from_str(text).expect("a header"));
    Webhook { headers, ..webhook.clone() }
}

/// The header that carries the signature.
pub(super) fn signature_header(headers: &HeaderMap) -> HeaderName {
    let mut names = headers.keys().filter(|name| {
        let name = name.as_str();
        name.ends_with("signature") || name.ends_with("-256") || name.ends_with("sha256") || name.ends_with("token")
    });
    names.next().expect("a signed webhook has one").clone()
}
