//! Publishers that hang up before their answer. Another tenant's waiting polls must neither be woken nor delayed by
//! them: the server finishes each publish and announces it by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::arena::{Arena, is_soak, text, volume};

/// Jobs of the victim that somebody watches.
const WATCHED: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);
/// Below this a difference says more about the machine than about the server.
const SLOW: Duration = Duration::from_millis(20);
const SLOW_IN_DEBUG: Duration = Duration::from_millis(400);

/// A publish of the attacker as it goes over the wire.
fn publish(arena: &Arena) -> Arc<[u8]> {
    let body = json!({"payload": "x"}).to_string();
    let request = format!(
        "POST /v1/queues/work/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        arena.attacker.key,
        body.len()
    );
    request.into_bytes().into()
}

#[derive(Clone, Copy)]
enum Manners {
    /// Some hang up before their publish begins, some in the middle of it, some after it.
    HangsUpAfter(Duration),
    WaitsForTheAnswer,
}

async fn publish_once(arena_address: std::net::SocketAddr, request: &[u8], manners: Manners) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(arena_address).await?;
    stream.write_all(request).await?;
    let mut answer = [0; 256];
    let patience = match manners {
        Manners::HangsUpAfter(patience) => patience,
        Manners::WaitsForTheAnswer => PATIENCE,
    };
    let _ = timeout(patience, stream.read(&mut answer)).await;
    Ok(())
}

fn hangs_up(number: usize) -> Manners {
    Manners::HangsUpAfter(Duration::from_micros(300 * u64::try_from(number % 20).unwrap()))
}

async fn stored(arena: &Arena) -> u64 {
    let queue = arena.attacker.get("/v1/queues/work").await.unwrap().expect(200);
    queue["counts"]["queued"].as_u64().unwrap()
}

/// The embedded store is not polled, so every read has a cause.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_that_hang_up_cause_no_read_of_another_tenants_watched_jobs() {
    let arena = Arena::open().await;
    let mut streams = Vec::new();
    for _ in 0..WATCHED {
        let job = arena.victim.post("/v1/queues/work/jobs", json!({"delay": 3600})).await.unwrap().expect(202);
        let path = format!("/v1/jobs/{}/stream", text(&job["id"]));
        let mut stream = arena.victim.request(Method::GET, &path).send().await.unwrap();
        // With its first events the log has been read as far as it goes.
        assert!(stream.chunk().await.unwrap().is_some());
        streams.push(stream);
    }
    let before = arena.metric("outlast_job_reads_total").await;
    let request = publish(&arena);

    let count = volume(300, 3000);
    for number in 0..count {
        publish_once(arena.address(), &request, hangs_up(number)).await.unwrap();
    }
    wait::until("some publishes to be stored", PATIENCE, async || (stored(&arena).await > 0).then_some(())).await;

    let after = arena.metric("outlast_job_reads_total").await;
    println!("{count} publishers hung up; {} of their jobs are stored, {} reads", stored(&arena).await, after - before);
    assert_eq!(after - before, 0, "watched jobs of another tenant were read");
    drop(streams);
}

/// How long a poll of the victim takes to learn of a change, again and again.
async fn poll_latencies(victim: &Client, rounds: usize) -> Vec<Duration> {
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let job = victim.post("/v1/queues/work/jobs", json!({"delay": 3600})).await.unwrap().expect(202);
        let id = text(&job["id"]);
        let (client, path) = (victim.clone(), format!("/v1/jobs/{id}?wait=30&version=1"));
        let poll = tokio::spawn(async move { client.get(&path).await.unwrap().expect(200) });
        let stopwatch = Stopwatch::start();
        victim.delete(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
        assert_eq!(poll.await.unwrap()["status"], "cancelled");
        took.push(stopwatch.charged());
    }
    took.sort_unstable();
    took
}

/// The victim's latencies while so many publishes a second come in.
async fn beside(arena: &Arena, manners: fn(usize) -> Manners, per_second: usize, rounds: usize) -> Vec<Duration> {
    let (address, request) = (arena.address(), publish(arena));
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (over, count) = (Arc::clone(&is_over), Arc::clone(&sent));
    let attack = tokio::spawn(async move {
        let mut publishers = JoinSet::new();
        let mut tick = interval(Duration::from_millis(10));
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while !over.load(Ordering::SeqCst) {
            tick.tick().await;
            for number in 0..per_second / 100 {
                let (request, count) = (Arc::clone(&request), Arc::clone(&count));
                publishers.spawn(async move {
                    if publish_once(address, &request, manners(number)).await.is_ok() {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while publishers.try_join_next().is_some() {}
        }
        publishers.shutdown().await;
    });
    let stopwatch = Stopwatch::start();
    let took = poll_latencies(&arena.victim, rounds).await;
    is_over.store(true, Ordering::SeqCst);
    attack.await.unwrap();
    println!("{} publishers in {:?}", sent.load(Ordering::SeqCst), stopwatch.elapsed());
    took
}

fn p99(took: &[Duration]) -> Duration {
    took[(took.len() * 99 / 100).min(took.len() - 1)]
}

/// The same number of publishers that wait for their answers is what the machine has to bear in any case.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_that_hang_up_do_not_delay_another_tenants_polls() {
    let arena = Arena::open().await;
    let (per_second, rounds) = (volume(100, 1000), volume(40, 3000));

    let at_rest = poll_latencies(&arena.victim, rounds).await;
    let polite = beside(&arena, |_| Manners::WaitsForTheAnswer, per_second, rounds).await;
    let hung_up = beside(&arena, hangs_up, per_second, rounds).await;

    println!(
        "p99 of a long poll: {:?} at rest, {:?} beside {per_second} publishers a second, {:?} beside as many that hang up",
        p99(&at_rest),
        p99(&polite),
        p99(&hung_up)
    );
    let floor = if is_soak() { SLOW } else { SLOW_IN_DEBUG };
    assert!(p99(&hung_up) <= (p99(&polite) * 3 / 2).max(floor));
}
