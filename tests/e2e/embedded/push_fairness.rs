//! Failing endpoints do not affect others: dead endpoints with thousands of waiting jobs beside one that works, and
//! hundreds of queues at once. (I-25, F24)

use std::time::{Duration, Instant};

use outlast_tests::server::Launch;
use outlast_tests::sink::{Say, Sink};
use outlast_tests::wait;
use serde_json::json;

use crate::api::{make_queue, publish, publish_many};
use crate::push_load::{drained, pushing};

const DEADLINE: Duration = Duration::from_secs(60);
const DEAD_QUEUES: usize = 3;
const WAITING_JOBS: usize = 2000;
/// From publish to receiver, on a busy machine; a delivery to the dead ones takes a minute.
const PROMPT: Duration = Duration::from_secs(5);

// I-25, F24: endpoints that accept and never answer do not hold up the deliveries of another queue.
#[tokio::test(flavor = "multi_thread")]
async fn dead_endpoints_with_thousands_of_waiting_jobs_delay_no_other_queue() {
    let server = pushing(Launch::embedded()).start().await;
    let client = server.client();
    let mut dead = Vec::new();
    for number in 0..DEAD_QUEUES {
        let sink = Sink::open_on(&format!("127.0.0.{}", 2 + number), |_| Say::Nothing).await;
        let name = format!("dead-{number}");
        let settings = json!({"webhookUrl": sink.url("/"), "webhookTimeout": 60, "concurrency": 1000});
        make_queue(&client, &name, settings).await;
        publish_many(&client, &name, WAITING_JOBS).await;
        dead.push(sink);
    }
    let live = Sink::open(|_| Say::Status(200)).await;
    make_queue(&client, "live", json!({"webhookUrl": live.url("/")})).await;
    wait::until_now("deliveries to every dead endpoint", DEADLINE, || {
        dead.iter().all(|sink| sink.open_now() >= 50).then_some(())
    })
    .await;

    let mut slowest = Duration::ZERO;
    for number in 0..100 {
        let started = Instant::now();
        publish(&client, "live", json!(number)).await;
        wait::until_now("the delivery", PROMPT, || (live.count() > number).then_some(())).await;
        slowest = slowest.max(started.elapsed());
    }

    let open: Vec<usize> = dead.iter().map(Sink::open_now).collect();
    println!("fairness: the slowest of 100 took {slowest:?} beside {open:?} that hang");
    assert!(open.iter().all(|open| *open >= 50), "the dead endpoints were dead all the time: {open:?}");
}

// I-25: every queue gets its turn, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_queues_are_served_at_once() {
    const QUEUES: usize = 200;
    let server = pushing(Launch::embedded()).start().await;
    let client = server.client();
    let sink = Sink::open(|_| Say::Slowly(Duration::from_millis(20), 200)).await;
    for number in 0..QUEUES {
        make_queue(&client, &format!("q{number}"), json!({"webhookUrl": sink.url(&format!("/{number}"))})).await;
    }

    let started = Instant::now();
    for number in 0..QUEUES {
        publish_many(&client, &format!("q{number}"), 5).await;
    }
    for number in 0..QUEUES {
        drained(&client, &format!("q{number}"), DEADLINE).await;
    }

    println!("fairness: {} deliveries of {QUEUES} queues in {:?}", sink.count(), started.elapsed());
    assert_eq!(sink.count(), 5 * QUEUES);
    for number in 0..QUEUES {
        assert_eq!(sink.arrivals_at(&format!("/{number}")).len(), 5);
    }
}
