//! Redis killed, emptied, stopped in its tracks, slow: everything goes on, and wake-ups are as slow as the poll. (F20)

use std::time::Duration;

use outlast_tests::chance::seed;
use outlast_tests::fault::FaultProxy;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::accounting::Accounting;
use crate::api::{make_queue, publish, receive};
use crate::cluster::{blocking, clients};

/// A publish or a receive that has something to receive, on a busy machine. A Redis that is waited for would cost more.
const CALL_MAX: Duration = Duration::from_secs(2);
/// A wake-up without Redis: the poll floor of a second and some, below the floor with it.
const FLOOR_MAX: Duration = Duration::from_secs(4);
/// A wake-up with Redis, below half the floor, which is five seconds then.
const WAKE_MAX: Duration = Duration::from_secs(2);
const RECONNECT_DEADLINE: Duration = Duration::from_secs(20);

// F20: under load, with accounting.
#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_while_redis_is_killed_emptied_and_stopped() {
    let mut redis = blocking(Redis::start);
    let launch = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES);
    let mut accounting = Accounting::open_to_go_on(launch, seed("redis")).await;
    make_queue(&accounting.server().client(), "side", json!({})).await;
    assert!(subscribers(&redis) >= CLUSTER_NODES, "the nodes use it");
    accounting
        .during(async |server, _| {
            for _ in 0..2 {
                redis.pause();
                assert_calls_flow(server, "paused").await;
                redis.resume();
                redis.flush();
                assert_calls_flow(server, "emptied").await;
                blocking(|| redis.kill());
                assert!(!redis.is_running());
                assert_calls_flow(server, "dead").await;
                blocking(|| redis.restart());
                wait::until_now("all nodes to be back", RECONNECT_DEADLINE, || {
                    (subscribers(&redis) >= CLUSTER_NODES).then_some(())
                })
                .await;
            }
        })
        .await;

    accounting.assert_sound("redis").await;
}

// F20: a waiting receive is woken by the poll while Redis is away, and by Redis again when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn wake_ups_fall_back_to_the_poll_and_come_back() {
    let mut redis = blocking(Redis::start);
    let server = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES).start().await;
    make_queue(&server.client(), "side", json!({})).await;
    assert!(wake(&server).await < WAKE_MAX);

    blocking(|| redis.kill());
    for _ in 0..3 {
        let taken = wake(&server).await;
        println!("without Redis: woken after {taken:?}");
        assert!(taken < FLOOR_MAX, "{taken:?}");
    }
    blocking(|| redis.restart());
    wait::until_now("all nodes to be back", RECONNECT_DEADLINE, || {
        (subscribers(&redis) >= CLUSTER_NODES).then_some(())
    })
    .await;
    // A single quick one may be the poll's luck.
    wait::until("Redis to wake again, five times in a row", RECONNECT_DEADLINE, async || {
        for _ in 0..5 {
            if wake(&server).await >= WAKE_MAX {
                return None;
            }
        }
        Some(())
    })
    .await;
}

// F20: a Redis that answers two seconds late costs no request anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_redis_slows_no_request() {
    let redis = blocking(Redis::start);
    let proxy = FaultProxy::before(&redis.address()).await;
    let launch = Launch::on_database(Postgres::shared().database(), None, CLUSTER_NODES)
        .with_env("OUTLAST_REDIS_URL", &format!("redis://{}", proxy.address));
    let server = launch.start().await;
    make_queue(&server.client(), "side", json!({})).await;
    assert!(wake(&server).await < WAKE_MAX, "Redis is used through the proxy");

    proxy.delay(Duration::from_secs(2));

    assert_calls_flow(&server, "slow").await;
    let taken = wake(&server).await;
    assert!(taken < Duration::from_secs(8), "the poll floor with Redis is five seconds, this took {taken:?}");
}

/// Publishes on each node and receives on the next one, each call in good time.
async fn assert_calls_flow(server: &Server, state: &str) {
    let nodes = clients(server);
    for round in 0..10 {
        let publishing = Stopwatch::start();
        publish(&nodes[round % 3], "side", json!(round)).await;
        let published = publishing.charged();
        let receiving = Stopwatch::start();
        let jobs = receive(&nodes[(round + 1) % 3], "side", json!({})).await;
        assert_eq!(jobs.len(), 1);
        let slowest = published.max(receiving.charged());
        assert!(slowest < CALL_MAX, "Redis {state}: a call took {slowest:?}");
    }
}

/// How long after a publish on one node a receive that waits on another has the job.
async fn wake(server: &Server) -> Duration {
    let nodes = clients(server);
    let waiter = nodes[0].clone();
    let waiting = tokio::spawn(async move { receive(&waiter, "side", json!({"wait": 20})).await });
    // Time enough for the receive to have looked and found nothing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "an empty queue is waited on");
    let started = Stopwatch::start();
    publish(&nodes[1], "side", json!(1)).await;
    assert_eq!(waiting.await.unwrap().len(), 1);
    started.charged()
}

/// Connections that listen for messages.
fn subscribers(redis: &Redis) -> usize {
    let clients = redis.command_bulk("CLIENT LIST TYPE pubsub");
    clients.lines().filter(|line| line.contains("id=")).count()
}
