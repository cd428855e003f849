//! The link between nodes over a real Redis: signals arrive, in few messages; a Redis that dies, is paused or is
//! full of other people's messages costs nothing but time.

mod progress;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{JobId, NamespaceId, Timestamp};
use outlast_store::peer_bus::codec::{BYTES_MAX, encode};
use outlast_store::peer_bus::redis::BusOptions;
use outlast_store::peer_bus::redis::inspect::inspect;
use outlast_store::peer_bus::{POLL_INTERVAL_LINKED, POLL_INTERVAL_UNLINKED, PeerBus, RedisBus, Signal, SignalSet};
use outlast_tests::redis::Redis;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait::{until_now, within};
use tokio::time::timeout;

const STORE: u64 = 0xfeed;
const NAMESPACE: NamespaceId = NamespaceId(3);
/// A message over loopback, on a busy machine.
const SOON: Duration = Duration::from_secs(2);
/// Less than a beat, which comes once a second: the signal was sent without it.
const AT_ONCE: Duration = Duration::from_millis(900);
/// Detection of a dead link and all the waits between tries.
const PATIENT: Duration = Duration::from_secs(20);

fn job(number: u128) -> JobId {
    JobId::new(Timestamp::from_millis(1), number)
}

fn link(redis: &Redis, store: u64, node: u64) -> Arc<RedisBus> {
    Arc::new(RedisBus::start(BusOptions { url: redis.url.clone(), store, node }).unwrap())
}

async fn until_connected(peer_bus: &RedisBus, is_connected: bool) {
    let what = format!("connected: {is_connected}");
    until_now(&what, PATIENT, || (peer_bus.link().unwrap().is_connected == is_connected).then_some(())).await;
    let floor = if is_connected { POLL_INTERVAL_LINKED } else { POLL_INTERVAL_UNLINKED };
    assert_eq!(peer_bus.poll_interval(), Some(floor));
}

/// Two connected nodes that have nothing more to hear.
async fn pair(redis: &Redis) -> (Arc<RedisBus>, Arc<RedisBus>) {
    let (a, b) = (link(redis, STORE, 1), link(redis, STORE, 2));
    for peer_bus in [&a, &b] {
        until_connected(peer_bus, true).await;
        assert_eq!(peer_bus.recv().await, SignalSet::everything(), "a node that connects may have missed a signal");
    }
    (a, b)
}

/// All news up to those that `last` recognises.
async fn hear_until(peer_bus: &RedisBus, last: impl Fn(&SignalSet) -> bool) -> SignalSet {
    let mut all = SignalSet::default();
    while !last(&all) {
        all.merge(within(SOON, peer_bus.recv()).await.expect("the signal arrives"));
    }
    all
}

#[tokio::test]
async fn a_signal_of_one_node_reaches_the_others_and_not_itself() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;

    a.publish(Signal::QueueHas { namespace: NAMESPACE, queue: "mail", count: 2 });
    a.publish(Signal::QueueHas { namespace: NAMESPACE, queue: "mail", count: 3 });
    a.publish(Signal::JobChanged(job(7)));
    a.publish(Signal::KeysChanged);

    let heard = hear_until(&b, |news| news.keys).await;
    assert_eq!(heard.queues[&NAMESPACE]["mail"].more, 5);
    assert!(heard.jobs.contains(&job(7)) && !heard.everything && !heard.operations);
    assert!(timeout(Duration::from_millis(100), a.recv()).await.is_err(), "its own words are no news");
    let told = Stopwatch::start();
    b.publish(Signal::OperationStarted);
    hear_until(&a, |news| news.operations).await;
    assert!(told.charged() < AT_ONCE, "{}", told.reading());
}

#[tokio::test]
async fn many_signals_go_out_in_few_messages_and_none_is_lost() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let before = a.link().unwrap().sent;

    let began = Stopwatch::start();
    let teller = {
        let a = Arc::clone(&a);
        tokio::spawn(async move {
            for number in 0..30_000u32 {
                a.publish(Signal::QueueHas { namespace: NAMESPACE, queue: "mail", count: 1 });
                a.publish(Signal::JobChanged(job(u128::from(number % 100))));
                if number % 30 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        })
    };
    let heard = hear_until(&b, |news| news.everything || more(news) >= 30_000).await;
    teller.await.unwrap();

    let (seconds, sent) = (began.elapsed().as_secs_f64(), a.link().unwrap().sent - before);
    assert_eq!((more(&heard), heard.jobs.len()), (30_000, 100));
    assert!(sent > 0 && sent as f64 / seconds < 400.0, "{sent} messages in {seconds} s");
}

fn more(news: &SignalSet) -> u32 {
    news.queues.get(&NAMESPACE).and_then(|queues| queues.get("mail")).map_or(0, |queue| queue.more)
}

#[tokio::test]
async fn stores_that_share_a_redis_do_not_hear_each_other() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let stranger = link(&redis, STORE + 1, 3);
    until_connected(&stranger, true).await;
    stranger.recv().await;

    stranger.publish(Signal::KeysChanged);
    a.publish(Signal::OperationStarted);

    let heard = hear_until(&b, |news| news.operations).await;
    assert!(!heard.keys);
    assert!(timeout(Duration::from_millis(200), stranger.recv()).await.is_err());
}

/// F20.
#[tokio::test]
async fn a_redis_that_dies_is_missed_at_once_and_found_again() {
    let mut redis = Redis::start();
    let (a, b) = pair(&redis).await;

    redis.kill();
    assert!(!redis.is_running());
    for peer_bus in [&a, &b] {
        until_connected(peer_bus, false).await;
        assert!(hear_until(peer_bus, |news| news.everything).await.everything, "all look when the floor changes");
    }
    let told = Stopwatch::start();
    for number in 0..100_000 {
        a.publish(Signal::JobChanged(job(number)));
    }
    assert!(told.charged() < SOON, "telling does not wait: {}", told.reading());
    redis.restart();

    for peer_bus in [&a, &b] {
        until_connected(peer_bus, true).await;
        hear_until(peer_bus, |news| news.everything).await;
    }
    a.publish(Signal::KeysChanged);
    hear_until(&b, |news| news.keys || news.everything).await;
}

/// F20.
#[tokio::test]
async fn a_paused_redis_is_taken_for_dead_and_delays_no_call() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;

    let paused = Stopwatch::start();
    redis.pause();
    a.publish(Signal::KeysChanged);
    until_connected(&a, false).await;
    until_connected(&b, false).await;
    let noticed = paused.charged();
    let told = Stopwatch::start();
    for number in 0..100_000 {
        a.publish(Signal::JobChanged(job(number)));
    }
    let telling = told.charged();
    redis.resume();

    assert!(noticed < Duration::from_secs(4), "{noticed:?}");
    assert!(telling < SOON, "{telling:?}");
    for peer_bus in [&a, &b] {
        until_connected(peer_bus, true).await;
    }
}

#[tokio::test]
async fn a_redis_that_is_emptied_or_cuts_its_clients_off_does_no_harm() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;

    redis.flush();
    a.publish(Signal::KeysChanged);
    hear_until(&b, |news| news.keys).await;
    let cut: String = redis.command("CLIENT KILL TYPE pubsub");
    assert_eq!(cut, ":2", "both subscribers were there to be cut");

    hear_until(&b, |news| news.everything).await;
    until_connected(&a, true).await;
    until_connected(&b, true).await;
    // Its first message says "everything"; after the second nothing of that is on its way.
    let sent = a.link().unwrap().sent;
    until_now("two more messages", PATIENT, || (a.link().unwrap().sent > sent + 1).then_some(())).await;
    while timeout(Duration::from_millis(100), b.recv()).await.is_ok() {}
    a.publish(Signal::OperationStarted);
    hear_until(&b, |news| news.operations).await;
}

/// T37: a client with write access to the channel can make nodes poll, and nothing else.
#[tokio::test]
async fn garbage_on_the_channel_is_counted_and_dropped() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let client = redis::Client::open(redis.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (good, channel) = (encode(9, &SignalSet::everything()), format!("outlast:live:{STORE:016x}"));
    let garbage: [&[u8]; 5] = [b"", b"hello", &good[..good.len() - 1], &[0xff; 64], &vec![0; BYTES_MAX + 1]];

    for bytes in garbage {
        let heard_by: i64 = redis::cmd("PUBLISH").arg(&channel).arg(bytes).query_async(&mut connection).await.unwrap();
        assert_eq!(heard_by, 2);
    }
    a.publish(Signal::KeysChanged);

    let heard = hear_until(&b, |news| news.keys).await;
    assert!(!heard.everything);
    assert_eq!((b.link().unwrap().garbage, b.link().unwrap().is_connected), (5, true));
}

/// The rule that docs/how-to/run-several-nodes.md gives to operators.
#[tokio::test]
async fn a_user_who_may_only_use_our_channels_is_enough() {
    let redis = Redis::start();
    let page = include_str!("../../docs/how-to/run-several-nodes.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the page has the rule");
    assert_eq!(redis.command(&rule.replace("-@all", "&outlast:doctor:* -@all")), "+OK");
    let url = redis.url.replace("redis://", "redis://outlast:secret@");

    let found = inspect(&url, 1).await.unwrap();
    let peer_bus = RedisBus::start(BusOptions { url, store: STORE, node: 1 }).unwrap();
    until_connected(&peer_bus, true).await;
    let sent = peer_bus.link().unwrap().sent;
    until_now("three beats", PATIENT, || (peer_bus.link().unwrap().sent >= sent + 3).then_some(())).await;
    progress::check_that_it_arrives_and_is_found(&peer_bus, &peer_bus).await;

    assert_eq!(found.version, None, "this user may not ask");
    assert!(peer_bus.link().unwrap().is_connected);
}

#[tokio::test]
async fn a_password_is_used_and_a_wrong_one_is_no_link() {
    let redis = Redis::start();
    assert_eq!(redis.command("CONFIG SET requirepass hunter2"), "+OK");
    let right = redis.url.replace("redis://", "redis://:hunter2@");
    let wrong = redis.url.replace("redis://", "redis://:hunter3@");

    assert!(inspect(&right, 1).await.unwrap().version.is_some());
    let refused = inspect(&wrong, 1).await.unwrap_err();
    assert!(!refused.to_string().contains("hunter"), "{refused}");

    let peer_bus = RedisBus::start(BusOptions { url: right, store: STORE, node: 1 }).unwrap();
    until_connected(&peer_bus, true).await;
    peer_bus.close().await;
    assert_eq!(peer_bus.poll_interval(), Some(POLL_INTERVAL_UNLINKED));
}
