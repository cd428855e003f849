//! I-33: progress reported to one node is seen on the others, by those who ask and those who watch; without Redis a
//! little later, and whatever happens to Redis, never an error and never a stalled stream.

use std::time::Duration;

use outlast_tests::fault::FaultProxy;
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};
use outlast_tests::sse::{Frame, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};

use crate::api::{job, make_queue, publish, receive_one, settle, text};
use crate::cluster::{blocking, clients, three_deaf_nodes, three_nodes};

const DEADLINE: Duration = Duration::from_secs(40);
/// A second between messages, and a busy machine.
const LINKED_MAX: Duration = Duration::from_secs(4);
/// Progress that is persisted each second, and polled each second.
const DEAF_MAX: Duration = Duration::from_secs(8);
/// A poll that does not wait for a Redis that is away or slow.
const POLL_MAX: Duration = Duration::from_secs(2);

/// A job in the hands of a worker that speaks to the first node.
struct Shift {
    server: Server,
    nodes: Vec<Client>,
    id: String,
    lease: String,
}

impl Shift {
    async fn begin(launch: Launch) -> Shift {
        let server = launch.start().await;
        let nodes = clients(&server);
        // Changed progress is persisted every second.
        make_queue(&nodes[0], "work", json!({"visibilityTimeout": "1h", "stallTimeout": 8})).await;
        let id = publish(&nodes[0], "work", json!(1)).await;
        let lease = text(&receive_one(&nodes[0], "work").await["lease"]);
        Shift { server, nodes, id, lease }
    }

    async fn report(&self, node: usize, done: u64) -> Value {
        let body = json!({"itemsDone": done, "itemsTotal": 1000, "lease": self.lease});
        let path = format!("/v1/jobs/{}/progress", self.id);
        self.nodes[node].put(&path, body).await.unwrap().expect(200)["progress"].clone()
    }

    /// The progress that a poll of a node shows; it must not take long.
    async fn seen(&self, node: usize) -> Option<u64> {
        let asked = Stopwatch::start();
        let job = job(&self.nodes[node], &self.id).await;
        assert!(asked.charged() < POLL_MAX, "a poll took {}", asked.reading());
        job["progress"]["itemsDone"].as_u64()
    }

    /// Goes on reporting until all nodes show at least so much to those who ask. Tells how long that took.
    async fn until_all_see(&self, done: &mut u64, least: u64) -> Duration {
        let began = Stopwatch::start();
        wait::until("all nodes to show it", DEADLINE, async || {
            *done += 1;
            self.report(0, *done).await;
            for node in 1..self.nodes.len() {
                if self.seen(node).await.is_none_or(|seen| seen < least) {
                    return None;
                }
            }
            Some(())
        })
        .await;
        began.charged()
    }
}

/// The next frame of progress, past whatever else comes.
async fn next_progress(stream: &mut Sse) -> Frame {
    loop {
        let frame = stream.frame().await;
        if frame.event == "progress" {
            return frame;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reported_to_one_node_is_seen_on_the_others_through_redis() {
    let shift = Shift::begin(three_nodes()).await;
    let mut stream = Sse::open(&shift.nodes[1], &shift.id, Some(2)).await;
    let mut done = 10;
    shift.report(0, 10).await;

    let first = next_progress(&mut stream).await;
    for number in 11..=60 {
        shift.report(0, number).await;
    }
    let told = Stopwatch::start();
    wait::until("the other nodes to show the last report", DEADLINE, async || {
        (shift.seen(1).await == Some(60) && shift.seen(2).await == Some(60)).then_some(())
    })
    .await;
    let polled = told.charged();
    while next_progress(&mut stream).await.data["itemsDone"] != 60 {}
    let watched = told.charged();
    done += 60;
    let lag = shift.until_all_see(&mut done, 72).await;

    println!("polls after {polled:?}, a frame after {watched:?}; steadily after {lag:?}");
    assert_eq!(first.data["itemsDone"], json!(10));
    for taken in [polled, watched, lag] {
        assert!(taken < LINKED_MAX, "{taken:?}");
    }
    settle(&shift.nodes[0], &shift.id, "ack", json!({"lease": shift.lease})).await;
    let end = stream.rest().await;
    assert_eq!(end.last().map(|frame| text(&frame.data["to"])), Some("succeeded".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_the_others_see_what_is_written_down() {
    let shift = Shift::begin(three_deaf_nodes()).await;
    let mut stream = Sse::open(&shift.nodes[1], &shift.id, Some(2)).await;
    let mut done = 0;

    let first = shift.until_all_see(&mut done, 1).await;
    let later = shift.until_all_see(&mut done, 100).await;
    let heartbeat = json!({"lease": shift.lease, "progress": {"itemsDone": 900}});
    shift.nodes[0].post(&format!("/v1/jobs/{}/heartbeat", shift.id), heartbeat).await.unwrap().expect(200);
    let beaten = (shift.seen(1).await, shift.seen(2).await);
    let told = Stopwatch::start();
    while next_progress(&mut stream).await.data["itemsDone"] != 900 {}
    let watched = told.charged();

    println!("the first after {first:?}, a later one after {later:?}, a frame after {watched:?}");
    assert_eq!(beaten, (Some(900), Some(900)), "what came with a heartbeat is written down at once");
    assert!(first < DEAF_MAX && watched < DEAF_MAX, "{first:?} {watched:?}");
    settle(&shift.nodes[0], &shift.id, "ack", json!({"lease": shift.lease})).await;
    stream.rest().await;
}

// A worker behind a balancer reports to all nodes in turn: no viewer sees its progress decrease.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_speaks_to_all_nodes_in_turn_is_never_seen_going_back() {
    let shift = Shift::begin(three_nodes()).await;
    let streams: Vec<_> = (0..3)
        .map(|node| {
            let (client, id) = (shift.nodes[node].clone(), shift.id.clone());
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for frame in Sse::open(&client, &id, Some(2)).await.rest().await {
                    seen.extend(frame.data["itemsDone"].as_u64());
                }
                seen
            })
        })
        .collect();

    let began = Stopwatch::start();
    let mut done = 0;
    wait::until("five seconds of reports", DEADLINE, async || {
        for node in 0..3 {
            done += 1;
            shift.report(node, done).await;
        }
        (began.elapsed() > Duration::from_secs(5)).then_some(())
    })
    .await;
    settle(&shift.nodes[0], &shift.id, "ack", json!({"lease": shift.lease})).await;

    for stream in streams {
        let seen = stream.await.unwrap();
        assert!(seen.len() >= 4, "{seen:?}");
        assert!(seen.is_sorted(), "{seen:?}");
    }
}

// I-33, F20
#[tokio::test(flavor = "multi_thread")]
async fn progress_goes_on_while_redis_is_emptied_stopped_and_killed() {
    let mut redis = blocking(Redis::start);
    let launch = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES);
    let shift = Shift::begin(launch).await;
    let mut stream = Sse::open(&shift.nodes[2], &shift.id, Some(2)).await;
    let mut done = 0;
    shift.until_all_see(&mut done, 1).await;

    for _ in 0..2 {
        redis.flush();
        goes_on(&shift, &mut stream, &mut done, "emptied").await;
        redis.pause();
        goes_on(&shift, &mut stream, &mut done, "paused").await;
        redis.resume();
        blocking(|| redis.kill());
        assert!(!redis.is_running());
        goes_on(&shift, &mut stream, &mut done, "dead").await;
        blocking(|| redis.restart());
        goes_on(&shift, &mut stream, &mut done, "back").await;
    }

    settle(&shift.nodes[1], &shift.id, "ack", json!({"lease": shift.lease})).await;
    let end = stream.rest().await;
    assert_eq!(end.last().map(|frame| text(&frame.data["to"])), Some("succeeded".to_owned()));
    let panicked = shift.server.log().contains("panicked");
    assert!(!panicked, "a panic is in the log");
}

// A Redis two seconds away costs a poll no more than its patience.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_redis_makes_no_poll_slow() {
    let redis = blocking(Redis::start);
    let proxy = FaultProxy::before(&redis.address()).await;
    let launch = Launch::on_database(Postgres::shared().database(), None, CLUSTER_NODES)
        .with_env("OUTLAST_REDIS_URL", &format!("redis://{}", proxy.address));
    let shift = Shift::begin(launch).await;
    let mut stream = Sse::open(&shift.nodes[2], &shift.id, Some(2)).await;
    let mut done = 0;
    shift.until_all_see(&mut done, 1).await;

    proxy.delay(Duration::from_secs(2));
    goes_on(&shift, &mut stream, &mut done, "slow").await;
    proxy.heal();
    goes_on(&shift, &mut stream, &mut done, "healed").await;
}

/// Reports from here on reach readers and viewers on the other nodes.
async fn goes_on(shift: &Shift, stream: &mut Sse, done: &mut u64, when: &str) {
    let least = *done + 1;
    let polled = shift.until_all_see(done, least).await;
    let began = Stopwatch::start();
    let reporting = async {
        loop {
            *done += 1;
            shift.report(0, *done).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let watching = async { while next_progress(stream).await.data["itemsDone"].as_u64() < Some(least) {} };
    tokio::select! {
        () = reporting => {}
        () = watching => {}
    }
    println!("{when}: polls after {polled:?}, a frame after {}", began.reading());
    assert!(began.charged() < 2 * DEAF_MAX, "{when}: {}", began.reading());
}
