//! T08: the time of a refusal does not tell how much of a signature was right. Judged by rank, so that a busy machine,
//! which strikes all places alike, does not matter. Runs in this process: over HTTP nothing that small could be seen.

use std::hint::black_box;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue};
use outlast_engine::inbound::verify::{Request, TOLERANCE, Verifier};
use outlast_tests::chance::{Chance, seed, volume};

use super::{MARKED, Webhook, secret};
use crate::inbound::provider::scheme;

/// Letters of a signature that are tried as the first wrong one.
const PLACES: usize = 40;
/// The bound that a constant-time comparison stays far below and an early exit far above.
const CORRELATION_MAX: f64 = 0.1;
/// A comparison alone is too short for the clock.
const COMPARISONS: usize = 200;

#[test]
fn the_time_of_a_refusal_does_not_tell_the_first_wrong_letter() {
    let mut chance = Chance::seeded(seed("signature timing"));
    for name in ["stripe", "github", "standard-webhooks", "shopify"] {
        let refusals = Refusals::of(name);

        let correlation = measure(&mut chance, volume(20_000, 4_000_000), |place| refusals.time(place));

        println!("signature timing: {name}: rank correlation {correlation:+.4}");
        assert!(correlation.abs() < CORRELATION_MAX, "{name}: the time follows the place: {correlation:+.4}");
    }
}

// Negative control: the same measurement sees a comparison that ends at the first wrong letter.
#[test]
fn the_measurement_sees_an_early_exit() {
    let mut chance = Chance::seeded(seed("early exit"));
    let right = MARKED.as_bytes();
    let wrong: Vec<Vec<u8>> = (0..PLACES).map(|place| altered(right, place % right.len())).collect();

    let correlation = measure(&mut chance, volume(20_000, 100_000), |place| {
        let started = Instant::now();
        for _ in 0..COMPARISONS {
            let other = black_box(&wrong[place]);
            black_box(right.iter().zip(other).all(|(one, other)| one == other));
        }
        started.elapsed().as_nanos()
    });

    println!("early exit: rank correlation {correlation:+.4}");
    assert!(correlation > 3.0 * CORRELATION_MAX, "an early exit was not seen: {correlation:+.4}");
}

/// Webhooks of one scheme whose signature is wrong from one letter on.
struct Refusals {
    verifier: Verifier,
    body: String,
    headers: Vec<HeaderMap>,
    now: outlast_core::Timestamp,
}

impl Refusals {
    fn of(name: &'static str) -> Refusals {
        let good = Webhook::good(name);
        let header: HeaderName = super::forgeries::signature_header(&good.headers);
        let signature = good.headers[&header].as_bytes();
        // The last forty letters are all of the digest. The very last ones of base64 are padding.
        let first = signature.len() - PLACES - 4;
        let headers = (0..PLACES)
            .map(|place| {
                let mut headers = good.headers.clone();
                let wrong = altered(signature, first + place);
                headers.insert(&header, HeaderValue::from_bytes(&wrong).expect("a header"));
                headers
            })
            .collect();
        let verifier = Verifier::new(scheme(name), &[secret(name)], TOLERANCE).expect("a sound secret");
        let now = outlast_core::Timestamp::from_millis(jiff::Timestamp::now().as_millisecond());
        Refusals { verifier, body: good.body, headers, now }
    }

    fn time(&self, place: usize) -> u128 {
        let (headers, body) = (&self.headers[place], self.body.as_bytes());
        let started = Instant::now();
        let answer = self.verifier.check(&Request { url: "", headers, body, now: self.now });
        let taken = started.elapsed().as_nanos();
        assert!(answer.is_err(), "a wrong signature was believed");
        taken
    }
}

fn altered(text: &[u8], place: usize) -> Vec<u8> {
    let mut other = text.to_vec();
    other[place] = if other[place] == b'a' { b'b' } else { b'a' };
    other
}

/// The rank correlation of place and time over so many samples, in random order.
fn measure(chance: &mut Chance, samples: usize, mut time: impl FnMut(usize) -> u128) -> f64 {
    let mut places = Vec::with_capacity(samples);
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let place = chance.below(PLACES as u64) as usize;
        places.push(place as u128);
        times.push(time(place));
    }
    correlation(&ranks(&places), &ranks(&times))
}

/// Equal values share the middle of their ranks.
fn ranks(values: &[u128]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|index| values[*index]);
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for equal in order.chunk_by(|one, other| values[*one] == values[*other]) {
        let middle = start as f64 + (equal.len() - 1) as f64 / 2.0;
        for index in equal {
            ranks[*index] = middle;
        }
        start += equal.len();
    }
    ranks
}

fn correlation(ones: &[f64], others: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (one_mean, other_mean) = (mean(ones), mean(others));
    let (mut both, mut one_square, mut other_square) = (0.0, 0.0, 0.0);
    for (one, other) in ones.iter().zip(others) {
        let (one, other) = (one - one_mean, other - other_mean);
        both += one * other;
        one_square += one * one;
        other_square += other * other;
    }
    both / (one_square * other_square).sqrt()
}
