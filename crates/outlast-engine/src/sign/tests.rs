//! What is signed and what is believed, against vectors written down elsewhere. The independent implementations are run
//! against this code by the end-to-end suite.

use outlast_core::Timestamp;

use crate::ports::Counting;

use super::{Headers, Malformed, Secret, Unverified, plain, standard, verify, verify_plain};

const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const SENT: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
/// The example of the Standard Webhooks libraries.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn secret(text: &str) -> Secret {
    Secret::from_text(text).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// What `verify` says about the example with another signature header.
fn check(signature: &str) -> Result<(), Unverified> {
    let timestamp = SENT.to_string();
    verify(&[secret(SECRET)], Headers { id: ID, timestamp: &timestamp, signature }, BODY, at(SENT))
}

#[test]
fn the_published_example_is_signed_as_published() {
    assert_eq!(standard(&[secret(SECRET)], ID, SENT, BODY), SIGNATURE);
    assert_eq!(check(SIGNATURE), Ok(()));
}

// The figure is that of `openssl dgst -sha256 -hmac`.
#[test]
fn the_plain_header_is_the_hmac_of_the_body_under_the_whole_text() {
    let signed = plain(&secret("JefeJefeJefeJefe"), b"what do ya want for nothing?");

    assert_eq!(signed, "sha256=2ccd85dfc8d18cb5d84fef4b198554699fece6e8692c9147b0da983f5b7bd413");
}

#[test]
fn two_live_secrets_give_two_signatures_and_each_is_enough() {
    let (old, new) = (secret(SECRET), secret("another-secret-of-mine"));

    let signature = standard(&[new.clone(), old.clone()], ID, SENT, BODY);

    assert_eq!(signature.split(' ').count(), 2);
    let timestamp = SENT.to_string();
    let headers = Headers { id: ID, timestamp: &timestamp, signature: &signature };
    for knows in [vec![old.clone()], vec![new.clone()], vec![old, new]] {
        assert_eq!(verify(&knows, headers, BODY, at(SENT)), Ok(()));
    }
    let stranger = [secret("a-secret-nobody-signed-with")];
    assert_eq!(verify(&stranger, headers, BODY, at(SENT)), Err(Unverified::Mismatch));
    assert_eq!(verify(&[], headers, BODY, at(SENT)), Err(Unverified::Mismatch));
}

// T07
#[test]
fn a_forged_signature_header_is_refused() {
    let encoded = SIGNATURE.strip_prefix("v1,").unwrap();
    let flipped = SIGNATURE.replace("g0hM", "g0hN");
    let forged = [
        String::new(),
        " ".to_owned(),
        "v1".to_owned(),
        "v1,".to_owned(),
        "v1, v1,".to_owned(),
        "v1,AA==".to_owned(),
        encoded.to_owned(),
        format!(",{encoded}"),
        format!("v1{encoded}"),
        format!("v1 ,{encoded}"),
        format!("v1,,{encoded}"),
        format!("V1,{encoded}"),
        format!("v2,{encoded}"),
        format!("v1a,{encoded}"),
        format!("v0,{encoded} v2,{encoded} v11,{encoded}"),
        format!("v1,{encoded}="),
        format!("v1,{encoded}AAAA"),
        format!("v1,\t{encoded}"),
        format!("v1,{}", encoded.to_lowercase()),
        flipped,
        "v1,!!!not base64!!!".to_owned(),
    ];
    for header in forged {
        assert_eq!(check(&header), Err(Unverified::Mismatch), "{header:?}");
    }
    for length in 0..SIGNATURE.len() {
        assert_eq!(check(&SIGNATURE[..length]), Err(Unverified::Mismatch), "cut to {length}");
    }
}

// T07
#[test]
fn a_hundred_signatures_are_refused_even_if_one_is_right() {
    let mut many = vec!["v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="; 99];
    many.push(SIGNATURE);

    assert_eq!(check(&many.join(" ")), Err(Unverified::TooMany));
    assert_eq!(check(&many[90..].join(" ")), Ok(()));
}

// T07
#[test]
fn an_old_and_a_future_timestamp_are_refused() {
    let said = |now: i64| {
        let timestamp = SENT.to_string();
        verify(&[secret(SECRET)], Headers { id: ID, timestamp: &timestamp, signature: SIGNATURE }, BODY, at(now))
    };

    assert_eq!(said(SENT + 300), Ok(()));
    assert_eq!(said(SENT + 301), Err(Unverified::TooOld));
    assert_eq!(said(SENT - 300), Ok(()));
    assert_eq!(said(SENT - 301), Err(Unverified::TooNew));
}

// T07
#[test]
fn a_timestamp_that_is_no_plain_number_is_refused() {
    for timestamp in ["", "abc", "-5", "+1614265330", " 1614265330", "1614265330.0", "1e9", "99999999999999999999"] {
        let headers = Headers { id: ID, timestamp, signature: SIGNATURE };
        let said = verify(&[secret(SECRET)], headers, BODY, at(SENT));

        assert_eq!(said, Err(Unverified::Unreadable("webhook-timestamp")), "{timestamp:?}");
    }
    let headers = Headers { id: ID, timestamp: "9223372036854775807", signature: SIGNATURE };
    assert_eq!(verify(&[secret(SECRET)], headers, BODY, at(SENT)), Err(Unverified::TooNew));
}

// I-29: id, time and body are all covered.
#[test]
fn a_change_of_id_time_or_body_is_refused() {
    let timestamp = SENT.to_string();
    let good = Headers { id: ID, timestamp: &timestamp, signature: SIGNATURE };
    let later = (SENT + 1).to_string();
    let cases: [(Headers<'_>, &[u8]); 4] = [
        (Headers { id: "msg_other", ..good }, BODY),
        (Headers { timestamp: &later, ..good }, BODY),
        (good, br#"{"test":2432232314}"#),
        (good, b""),
    ];
    for (headers, body) in cases {
        assert_eq!(verify(&[secret(SECRET)], headers, body, at(SENT)), Err(Unverified::Mismatch));
    }
    let nameless = Headers { id: "", ..good };
    assert_eq!(verify(&[secret(SECRET)], nameless, BODY, at(SENT)), Err(Unverified::Missing("webhook-id")));
}

// T07
#[test]
fn missing_and_repeated_headers_are_refused() {
    let all: [(&str, &[u8]); 4] =
        [("Webhook-Id", b"a"), ("content-type", b"x"), ("WEBHOOK-TIMESTAMP", b"1"), ("webhook-signature", b"v1,")];

    assert_eq!(Headers::find(all), Ok(Headers { id: "a", timestamp: "1", signature: "v1," }));
    for (place, name) in [(0, "webhook-id"), (2, "webhook-timestamp"), (3, "webhook-signature")] {
        let mut without = all.to_vec();
        let dropped = without.remove(place);
        assert_eq!(Headers::find(without.clone()), Err(Unverified::Missing(name)));
        without.extend([dropped, dropped]);
        assert_eq!(Headers::find(without), Err(Unverified::Repeated(name)));
        let mut unreadable = all;
        unreadable[place].1 = b"\xff";
        assert_eq!(Headers::find(unreadable), Err(Unverified::Unreadable(name)));
    }
}

#[test]
fn a_plain_header_is_believed_as_a_whole_or_not_at_all() {
    let secrets = [secret("another-secret-of-mine"), secret(SECRET)];
    let right = plain(&secrets[1], BODY);

    assert_eq!(verify_plain(&secrets, right.as_bytes(), BODY), Ok(()));
    assert_eq!(verify_plain(&secrets[..1], right.as_bytes(), BODY), Err(Unverified::Mismatch));
    assert_eq!(verify_plain(&secrets, right.as_bytes(), b"other"), Err(Unverified::Mismatch));
    let hex = right.strip_prefix("sha256=").unwrap();
    for wrong in ["", "sha256=", hex, &right[..right.len() - 1], &format!("{right}0"), &format!("sha1={hex}")] {
        assert_eq!(verify_plain(&secrets, wrong.as_bytes(), BODY), Err(Unverified::Mismatch), "{wrong:?}");
    }
}

#[test]
fn a_secret_is_base64_behind_its_mark_or_a_fair_text() {
    let encoded = |bytes: usize| format!("whsec_{}", "AAAA".repeat(bytes / 3));
    for good in [encoded(24), encoded(63), "x".repeat(16), "~".repeat(255), "WHSEC_is-no-mark!".to_owned()] {
        assert_eq!(secret(&good).expose(), good);
    }
    let bad_base64 =
        [encoded(21), encoded(66), "whsec_".to_owned(), format!("{} ", encoded(24)), format!("{}A", encoded(24))];
    for bad in bad_base64 {
        assert_eq!(Secret::from_text(&bad).unwrap_err(), Malformed::Base64, "{bad:?}");
    }
    for bad in [
        "",
        "short",
        &"x".repeat(15),
        &"x".repeat(256),
        "with a space in it",
        "line\nbreak-in-it-12",
        "ümläute-are-no-ascii",
    ] {
        assert_eq!(Secret::from_text(bad).unwrap_err(), Malformed::Text, "{bad:?}");
    }
}

#[test]
fn a_generated_secret_is_read_back_and_no_two_are_alike() {
    let mut entropy = Counting(0);
    let (first, second) = (Secret::generate(&mut entropy), Secret::generate(&mut entropy));

    assert_ne!(first.expose(), second.expose());
    assert_eq!(first.expose().len(), "whsec_".len() + 44);
    let read = secret(first.expose());
    assert_eq!(
        standard(std::slice::from_ref(&read), ID, SENT, BODY),
        standard(std::slice::from_ref(&first), ID, SENT, BODY)
    );
    assert_eq!(plain(&read, BODY), plain(&first, BODY));
}

#[test]
fn a_secret_does_not_show_itself() {
    let secret = secret(SECRET);

    for shown in [format!("{secret}"), format!("{secret:?}"), format!("{secret:#?}")] {
        assert!(shown.contains("hidden") && !shown.contains("MfKQ"), "{shown}");
    }
    let refused = Secret::from_text("whsec_MfKQ9r8G").unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("MfKQ"));
}
