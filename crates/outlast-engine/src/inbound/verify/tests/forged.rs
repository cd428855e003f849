//! Forgeries that are tried on every scheme.

use http::HeaderValue;
use outlast_core::Timestamp;

use super::{OTHER_SECRET, Webhook, vectors};
use crate::inbound::media::FORM;
use crate::inbound::verify::{Forged, Outgoing, TOLERANCE, Verifier};

/// Nothing but the body of GitLab's secret token is unsigned: the token says who sent it, not what.
fn signs_its_body(webhook: &Webhook) -> bool {
    !webhook.headers.contains_key("x-gitlab-token")
}

fn assert_forged(webhook: &Webhook) {
    assert_eq!(webhook.check(&[&webhook.secret], 0), Err(Forged), "{webhook:?}");
    assert_eq!(webhook.check(&[OTHER_SECRET, &webhook.secret], 0), Err(Forged), "{webhook:?}");
}

// T08
#[test]
fn another_body_is_refused() {
    for webhook in vectors().into_iter().filter(signs_its_body) {
        let mut bodies =
            vec![Vec::new(), [webhook.body.as_slice(), b"\n"].concat(), [b" ", webhook.body.as_slice()].concat()];
        bodies.push(webhook.body[..webhook.body.len() - 1].to_vec());
        if let Ok(value) = serde_json::from_slice::<serde_json::Value>(&webhook.body) {
            let again = serde_json::to_vec(&value).unwrap();
            if again != webhook.body {
                bodies.push(again);
            }
        }
        for body in bodies {
            assert_forged(&Webhook { body, ..webhook.clone() });
        }
    }
}

// T08
#[test]
fn a_missing_or_a_repeated_header_is_refused() {
    for webhook in vectors() {
        let signed = webhook.headers.keys().filter(|name| *name != "content-type");
        for name in signed {
            let mut without = webhook.clone();
            without.headers.remove(name);
            assert_forged(&without);

            let mut empty = webhook.clone();
            empty.headers.insert(name, HeaderValue::from_static(""));
            assert_forged(&empty);

            let mut binary = webhook.clone();
            binary.headers.insert(name, HeaderValue::from_bytes(b"\xff\xfe").unwrap());
            assert_forged(&binary);

            let mut twice = webhook.clone();
            twice.headers.append(name, webhook.headers[name].clone());
            assert_forged(&twice);
        }
    }
}

// T08
#[test]
fn a_signature_that_is_cut_is_refused() {
    for webhook in vectors() {
        let signature = webhook.signature().to_owned();
        // Stripe's header ends with an entry that is passed over; cutting that one cuts nothing.
        let signature = signature.split(",v0=").next().unwrap();
        for length in 0..signature.len() {
            assert_forged(&webhook.with_signature(&signature[..length]));
        }
        for start in 1..signature.len() {
            // Entries of a list may be missing as long as a good one is left with its time.
            if matches!(webhook.scheme.name(), "standard-webhooks" | "pagerduty") {
                break;
            }
            assert_forged(&webhook.with_signature(&signature[start..]));
        }
    }
}

// T08
#[test]
fn a_signature_that_is_written_otherwise_is_refused() {
    for webhook in vectors() {
        let signature = webhook.signature();
        let (front, digest) = signature.split_at(signature.rfind(['=', ',']).map_or(0, |at| at + 1));
        for other in
            ["v1,", "v1=", "v0=", "sha256=", "sha1=", "t=", "ts=;h1=", "v1,v1,", "=", ",", ";", " ", "==", "0", "00"]
        {
            assert_forged(&webhook.with_signature(other));
        }
        // Base64 ends in `=`; there the digest is all before it.
        if digest.is_empty() || signature.contains(",v0=") {
            continue;
        }
        for digest in [
            format!(" {digest}"),
            format!("{digest}0"),
            format!("0{digest}"),
            format!("{digest}="),
            format!("0x{digest}"),
        ] {
            assert_forged(&webhook.with_signature(&format!("{front}{digest}")));
        }
    }
}

// T08
#[test]
fn base64_with_white_space_or_other_padding_is_refused() {
    for webhook in vectors().into_iter().filter(|webhook| webhook.signature().ends_with('=')) {
        let signature = webhook.signature().to_owned();
        let bare = signature.trim_end_matches('=');
        let urlsafe = signature.replace('+', "-").replace('/', "_");
        let cut = bare.len() - 4;
        let mut others = vec![bare.to_owned(), format!("{signature}="), format!("{bare}\t="), format!("{bare} =")];
        others.push(format!("{}\t{}", &signature[..cut], &signature[cut..]));
        if urlsafe != signature && !urlsafe.contains("v1") {
            others.push(urlsafe);
        }
        for other in others {
            assert_forged(&webhook.with_signature(&other));
        }
    }
}

// T08
#[test]
fn a_hundred_signatures_are_refused_even_if_one_is_right() {
    for webhook in vectors() {
        let signature = webhook.signature().to_owned();
        for separator in [",", ";", " "] {
            let many = vec![signature.as_str(); 100].join(separator);
            assert_forged(&webhook.with_signature(&many));
        }
    }
}

#[test]
fn a_few_signatures_are_looked_at_and_a_hundred_are_not() {
    for webhook in vectors() {
        let (separator, wrong) = match webhook.scheme.name() {
            "stripe" => (",", format!("v1={}", "0".repeat(64))),
            "paddle" => (";", format!("h1={}", "0".repeat(64))),
            "pagerduty" => (",", format!("v1={}", "0".repeat(64))),
            "standard-webhooks" => (" ", format!("v1,{}=", "A".repeat(43))),
            _ => continue,
        };
        let good = webhook.signature().to_owned();
        for (front, back) in [(0, 8), (8, 0), (4, 4)] {
            let mut entries = vec![wrong.clone(); front];
            entries.push(good.clone());
            entries.extend(vec![wrong.clone(); back]);
            assert!(webhook.with_signature(&entries.join(separator)).is_believed(), "{webhook:?}");
        }
        let mut hundred = vec![good.clone()];
        hundred.extend(vec![wrong.clone(); 99]);
        assert_forged(&webhook.with_signature(&hundred.join(separator)));
        hundred.reverse();
        assert_forged(&webhook.with_signature(&hundred.join(separator)));
    }
}

// T08
#[test]
fn a_signature_of_another_scheme_is_refused() {
    let vectors = vectors();
    for webhook in &vectors {
        for other in &vectors {
            if other.scheme == webhook.scheme {
                continue;
            }
            let mut stranger = other.clone();
            stranger.scheme = webhook.scheme.clone();
            // Linear and Grafana sign alike, under headers of their own.
            assert_eq!(stranger.check(&[&webhook.secret, OTHER_SECRET], 0), Err(Forged), "{webhook:?} {other:?}");
            let transplanted = webhook.with_signature(other.signature());
            assert_forged(&transplanted);
        }
    }
}

// T08
#[test]
fn a_signing_token_of_gitlab_is_not_taken_as_a_secret_token() {
    let webhook =
        vectors().into_iter().find(|webhook| webhook.scheme.name() == "gitlab" && signs_its_body(webhook)).unwrap();
    let mut sent = webhook.clone();
    sent.headers.remove("webhook-signature");
    sent.headers.insert("x-gitlab-token", HeaderValue::from_str(&webhook.secret).unwrap());

    assert_forged(&sent);
}

// T08
#[test]
fn twilio_does_not_believe_a_body_that_nothing_signs() {
    let vectors = vectors();
    let by_form = vectors.iter().find(|webhook| webhook.url.contains("myapp.php")).unwrap();
    let by_digest = vectors.iter().find(|webhook| webhook.url.contains("bodySHA256")).unwrap();

    // The address alone is signed, and the body is said to be something else than a form.
    let mut bare = by_form.clone();
    bare.headers.insert("content-type", HeaderValue::from_static("application/json"));
    assert_forged(&bare);
    bare.headers.remove("content-type");
    assert_forged(&bare);
    // The digest is that of another body, is there twice, is cut, or the body is said to be a form.
    let mut another = by_digest.clone();
    another.body = b"{}".to_vec();
    assert_forged(&another);
    let digest = by_digest.url.split("bodySHA256=").nth(1).unwrap();
    for url in [
        format!("{}&bodySHA256={digest}", by_digest.url),
        by_digest.url.replace(&digest[2..], ""),
        by_digest.url.replace("bodySHA256", "bodysha256"),
    ] {
        assert_forged(&Webhook { url, ..by_digest.clone() });
    }
    let mut form = by_digest.clone();
    form.headers.insert("content-type", HeaderValue::from_static("application/x-www-form-urlencoded"));
    assert_forged(&form);
    form.body = Vec::new();
    assert_forged(&form);
    // The address is another one.
    for url in [
        "https://mycompany.com/myapp.php?foo=1",
        "https://mycompany.org/myapp.php?foo=1&bar=2",
        "http://mycompany.com/myapp.php?foo=1&bar=2",
        "",
        "mycompany.com",
        "https://",
        "://",
        "https://:443",
    ] {
        assert_forged(&Webhook { url: url.to_owned(), ..by_form.clone() });
    }
}

// T08
#[test]
fn a_signed_address_of_twilio_vouches_for_no_body() {
    let webhook = vectors().into_iter().find(|webhook| webhook.scheme.name() == "twilio").unwrap();
    let digest = "bodySHA256=44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let signed_alone = |url: String| {
        let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], TOLERANCE).unwrap();
        let outgoing = Outgoing { url: &url, id: "", content_type: FORM, body: b"", now: Timestamp::EPOCH };
        let (name, value) = verifier.sign(&outgoing).unwrap().headers.remove(0);
        let mut other = webhook.with_header(&name, value.to_str().unwrap());
        other.headers.insert("content-type", HeaderValue::from_static("application/json"));
        Webhook { url, body: b"{}".to_vec(), ..other }
    };

    assert!(signed_alone(format!("https://example.com/?{digest}")).is_believed());
    assert_forged(&signed_alone("https://example.com/".to_owned()));
    assert_forged(&signed_alone(format!("https://example.com/?{digest}&{digest}")));
    assert_forged(&signed_alone(format!("https://example.com/#?{digest}")));
}

// Twilio leaves the port of an address out, even an unusual one, or writes the usual one.
#[test]
fn twilio_may_write_the_port_or_not() {
    let with_port = |webhook: &Webhook, port: &str| {
        let url = webhook.url.replace("mycompany.com", &format!("mycompany.com:{port}"));
        Webhook { url, ..webhook.clone() }.is_believed()
    };
    let vectors: Vec<_> = vectors().into_iter().filter(|webhook| webhook.url.contains("mycompany.com")).collect();

    assert!(vectors.iter().all(|webhook| with_port(webhook, "443")));
    assert!(with_port(&vectors[0], "8443"));
}
