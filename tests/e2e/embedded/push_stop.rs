//! SIGTERM while deliveries are under way: they finish or are released free, nothing is charged, and the exit code is 0.
//! (I-31, F02)

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::deliveries;
use outlast_tests::server::Launch;
use outlast_tests::sink::{Say, Sink};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::api::{make_queue, publish};
use crate::push_load::{ACK, Mood, PushLoad, assert_nothing_charged, drained, pushing};

const PROMPT: Duration = Duration::from_secs(20);

// I-31: twenty restarts under load, with deliveries under way at each of them.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_under_load_burn_no_attempt_and_lose_nothing() {
    let seed = seed("push stop");
    let mut chance = Chance::seeded(!seed);
    let launch = pushing(Launch::embedded());
    let mut server = launch.start().await;
    let mut load = PushLoad::open(server.client(), seed).await;
    server.client().patch(&format!("/v1/queues/{ACK}"), json!({"ackTimeout": 120})).await.unwrap().expect(200);
    load.set_mood(Mood::Slow);
    load.publish(6, Duration::from_millis(40));
    let mut busy = 0;
    for _ in 0..volume(20, 500) {
        // The moment of the stop is the random input of the rig.
        tokio::time::sleep(Duration::from_millis(chance.between(50, 300))).await;
        busy += usize::from(load.sink.open_now() > 0);
        let status = server.terminate().await;
        assert!(status.success(), "{status}");
        server = launch.start().await;
        load.speak_to(server.client());
    }
    let account = load.finish(&server.client()).await;

    assert_nothing_charged("push stop", &account);
    assert!(busy >= 5, "only {busy} stops while something was being delivered");
}

// I-31: what does not finish within the drain time is handed back, free, and delivered again by the next start.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_outlasts_the_drain_time_is_released_free() {
    let launch = pushing(Launch::embedded());
    let path = launch.scratch().join("outlast.yaml");
    std::fs::write(&path, "timeouts:\n  drain: 1s\n").unwrap();
    let launch = launch.with_env("OUTLAST_CONFIG", path.to_str().unwrap());
    let mut server = launch.start().await;
    let sink = Sink::open(|arrival| match arrival.number {
        0 => Say::Nothing,
        _ => Say::Status(200),
    })
    .await;
    make_queue(&server.client(), "work", json!({"webhookUrl": sink.url("/"), "webhookTimeout": 60})).await;
    let id = publish(&server.client(), "work", json!(1)).await;
    wait::until_now("the delivery", PROMPT, || (sink.count() == 1).then_some(())).await;

    let asked = Stopwatch::start();
    let status = server.terminate().await;
    let (taken, charged) = (asked.elapsed(), asked.charged());
    let server = launch.start().await;
    drained(&server.client(), "work", PROMPT).await;

    assert!(status.success(), "{status}");
    assert!(taken >= Duration::from_millis(990), "it had its time: {taken:?}");
    assert!(charged < PROMPT, "and no more: {charged:?}");
    let told = deliveries::read(&server.client(), &[id]).await.remove(0);
    assert_eq!((told.status(), &told.job["attempt"]), ("succeeded", &json!(1)), "{told:?}");
    assert_eq!((told.endings("released"), told.endings("acked")), (1, 1), "{told:?}");
    assert_eq!(sink.count(), 2);
    let leases: Vec<String> = sink.arrivals().into_iter().map(|arrival| arrival.lease).collect();
    assert_ne!(leases[0], leases[1], "a hand-out has a lease of its own");
}
