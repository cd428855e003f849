//! Whatever comes, nothing panics and nothing passes. (T08)

use http::HeaderValue;
use outlast_core::Timestamp;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};
use proptest::sample::select;
use proptest::strategy::Union;

use super::vectors;
use crate::inbound::verify::{Forged, Request, TOLERANCE, Verifier};

/// Pieces that signatures are made of, so that parsing goes deeper than noise would.
fn value() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 16] =
        ["t=", "v1=", "v1,", "ts=", ";h1=", ",", ";", " ", "=", "sha256=", "v0=", "1700000000", "00", "AAAA", "+", "-"];
    let pieces = vec(select(PIECES.as_slice()), 0..40).prop_map(|pieces| pieces.concat().into_bytes());
    let noise = vec(any::<u8>(), 0..80);
    Union::new([pieces.boxed(), noise.boxed()])
}

proptest! {
    // Each case is tried on every vector: more than ten thousand forgeries in all.
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_webhooks_are_refused(
        values in vec(value(), 8),
        body in vec(any::<u8>(), 0..200),
        url in "(https?://)?[a-z:\\[\\]@#?&=.0-9/%]{0,40}",
        millis in any::<i64>(),
    ) {
        for webhook in vectors() {
            let verifier = Verifier::new(webhook.scheme.clone(), &[&webhook.secret], TOLERANCE).unwrap();
            let mut headers = webhook.headers.clone();
            for (name, value) in webhook.headers.keys().zip(&values) {
                let Ok(value) = HeaderValue::from_bytes(value) else { continue };
                headers.insert(name, value);
            }
            // Nothing of these headers was left as it was signed.
            for name in webhook.headers.keys() {
                if headers[name] == webhook.headers[name] {
                    headers.remove(name);
                }
            }
            let request = Request { url: &url, headers: &headers, body: &body, now: Timestamp::from_millis(millis) };

            prop_assert_eq!(verifier.check(&request), Err(Forged));
        }
    }
}
