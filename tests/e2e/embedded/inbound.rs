//! I-05, I-30: the disk runs full under a provider. It gets a retryable answer, and its retry succeeds. Needs root.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use outlast_tests::image::Image;
use outlast_tests::server::Launch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::text;
use crate::inbound::provider::Stripe;
use crate::inbound::{PATH, SECRET, shop_on, stored, waiting};

const IMAGE_MEBIBYTES: u64 = 128;
/// The body of each event fills what is left of the disk in far fewer than this.
const EVENTS_MAX: usize = 500;
const BODY_BYTES: usize = 200_000;
/// From the return of the space to the next 200.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(10);
/// The server may tidy up at the first one.
const REFUSALS_IN_A_ROW: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_makes_providers_try_again() {
    if !Image::available("inbound disk full") {
        return;
    }
    let image = Image::new(IMAGE_MEBIBYTES);
    let launch = Launch::embedded().on(&image.path().join("data"));
    let mut server = shop_on(launch, "queues: {one: {source: shop}, two: {source: shop}}").start().await;
    let stripe = Stripe::before(&server, PATH, SECRET);
    let body =
        |number: usize| json!({"id": format!("evt_{number}"), "type": "t", "text": "x".repeat(BODY_BYTES)}).to_string();
    let ballast = image.put_ballast(3 << 20);

    let (mut taken, mut refused) = (BTreeSet::new(), Vec::new());
    for number in 0..EVENTS_MAX {
        let answer = stripe.send(&body(number)).await.expect("nothing was killed");
        if answer.status == 200 {
            taken.insert(text(&answer.body["event_id"]));
            refused.clear();
            continue;
        }
        assert!(matches!(answer.status, 503 | 507) && !answer.code().is_empty(), "{} {}", answer.status, answer.body);
        refused.push(number);
        if refused.len() == REFUSALS_IN_A_ROW {
            break;
        }
    }
    assert_eq!(refused.len(), REFUSALS_IN_A_ROW, "the disk is full");
    assert_eq!(stored(&server.client(), "").await.len(), taken.len(), "what was refused is not there");

    fs::remove_file(ballast).unwrap();
    for number in refused {
        let told = wait::until("a webhook after the space came back", RECOVERY_DEADLINE, async || {
            let answer = stripe.send(&body(number)).await.expect("an answer");
            (answer.status == 200).then_some(answer.body)
        })
        .await;
        assert_eq!(told["duplicate"], false, "what was refused was not done: {told}");
        taken.insert(text(&told["event_id"]));
    }
    server.crash_and_restart().await;

    let client = server.client();
    let found: BTreeSet<String> = stored(&client, "").await.iter().map(|event| text(&event["id"])).collect();
    assert_eq!(found, taken);
    let count = taken.len() as u64;
    assert_eq!((waiting(&client, "one").await, waiting(&client, "two").await), (count, count));
    server.kill9().await;
}
