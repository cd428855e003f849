//! Progress over a real Redis: sent to subscribers, found by readers, and whatever Redis does or
//! holds is at worst nothing. (I-33, T37, F20)

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{JobId, Lease, Progress, ProgressReport, Timestamp};
use outlast_store::peer_bus::redis::BusOptions;
use outlast_store::peer_bus::{LeaseDigest, PeerBus, RedisBus};
use outlast_tests::fault::FaultProxy;
use outlast_tests::redis::Redis;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait::until;
use tokio::time::timeout;

use super::{PATIENT, SOON, STORE, hear_until, job, link, pair, until_connected};

fn lease() -> Lease {
    Lease::from_u128(0x1234_5678_9abc_def0_0fed_cba9_8765_4321)
}

fn progress(pct: f64, at: i64) -> Arc<Progress> {
    let report =
        ProgressReport { pct: Some(pct), stage: Some("two".into()), items_done: Some(7), ..ProgressReport::default() };
    Arc::new(Progress::restored(report, Timestamp::from_millis(1), Timestamp::from_millis(at), None))
}

fn key(id: JobId) -> String {
    format!("outlast:progress:{STORE:016x}:{id}")
}

/// Asks until there is an answer.
async fn until_found(peer_bus: &RedisBus, id: JobId) -> (LeaseDigest, Progress) {
    until("progress to be found", PATIENT, async || peer_bus.progress(id).await).await
}

/// A report to one node is found by the other.
pub(super) async fn check_that_it_arrives_and_is_found(one: &RedisBus, other: &RedisBus) {
    one.report(job(1), lease(), &progress(12.5, 10));
    assert_eq!(until_found(other, job(1)).await, (LeaseDigest::of(lease()), (*progress(12.5, 10)).clone()));
}

#[tokio::test]
async fn a_report_to_one_node_arrives_and_is_found_on_another() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;

    a.report(job(1), lease(), &progress(12.5, 10));
    let heard = hear_until(&b, |news| !news.progress.is_empty()).await;
    let (hand_out, found) = until_found(&b, job(1)).await;

    assert_eq!(*heard.progress[&job(1)].progress, *progress(12.5, 10));
    assert_eq!((hand_out, found), (LeaseDigest::of(lease()), (*progress(12.5, 10)).clone()));
    assert_eq!(heard.progress[&job(1)].hand_out, LeaseDigest::of(lease()));
    assert!(!heard.everything && heard.jobs.is_empty(), "no read is needed");
    assert_eq!(b.progress(job(2)).await, None);
    let life: i64 = redis.command(&format!("TTL {}", key(job(1)))).trim_start_matches(':').parse().unwrap();
    assert!((290..=300).contains(&life), "{life} s");
    let kept = redis.command_bulk(&format!("OBJECT ENCODING {}", key(job(1))));
    assert!(!kept.is_empty());
}

// A lease is a secret of its holder: who reads Redis must not get it.
#[tokio::test]
async fn no_lease_is_in_redis() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let client = redis::Client::open(redis.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();

    a.report(job(1), lease(), &progress(1.0, 10));
    until_found(&b, job(1)).await;

    let value: Vec<u8> = redis::cmd("GET").arg(key(job(1))).query_async(&mut connection).await.unwrap();
    let secret = lease().as_u128().to_le_bytes();
    assert!(!value.windows(6).any(|window| window == &secret[..6]));
    let mark = LeaseDigest::of(lease()).as_u128().to_le_bytes();
    assert!(value.windows(16).any(|window| window == mark), "the search must be able to find what is there");
}

#[tokio::test]
async fn many_reports_of_a_job_are_a_message_a_second_and_the_last_one_arrives() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let before = a.link().unwrap().sent;
    let began = Stopwatch::start();

    let mut at = 10;
    until("two seconds of reports", PATIENT, async || {
        at += 1;
        a.report(job(1), lease(), &progress(1.0, at));
        (began.elapsed() > Duration::from_secs(2) && at > 100).then_some(())
    })
    .await;
    let reported = Stopwatch::start();
    let heard = hear_until(&b, |news| news.progress.values().any(|told| told.progress.at.as_millis() == at)).await;
    let (seconds, sent) = (began.elapsed().as_secs(), a.link().unwrap().sent - before);

    assert!(reported.charged() < SOON, "{}", reported.reading());
    assert_eq!(heard.progress.len(), 1);
    // With the beats, which come once a second as well.
    assert!(sent <= 8 + 2 * seconds, "{at} reports, {sent} messages in {seconds} s");
}

#[tokio::test]
async fn progress_of_thousands_of_jobs_is_sent_within_seconds() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    for number in 0..5000 {
        a.report(job(number), lease(), &progress(1.0, 10));
    }

    let heard = hear_until(&b, |news| news.progress.len() == 5000).await;

    assert!(!heard.everything);
    until_found(&b, job(4999)).await;
}

// T37: a client with write access can at worst hide progress or show wrong progress.
#[tokio::test]
async fn garbage_and_wrong_types_in_redis_are_nothing() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    let client = redis::Client::open(redis.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let huge = vec![1u8; 3 << 20];
    let garbage: [&[u8]; 5] = [b"", b"hello", &[1; 17], &[0xff; 200], &huge];

    for (number, bytes) in garbage.into_iter().enumerate() {
        let id = job(number as u128);
        redis::cmd("SET").arg(key(id)).arg(bytes).exec_async(&mut connection).await.unwrap();
        assert_eq!(b.progress(id).await, None, "{number}");
    }
    let id = job(77);
    redis::cmd("LPUSH").arg(key(id)).arg("x").exec_async(&mut connection).await.unwrap();
    assert_eq!(b.progress(id).await, None, "a list is no value");

    a.report(id, lease(), &progress(5.0, 10));
    assert_eq!(until_found(&b, id).await.0, LeaseDigest::of(lease()), "a report takes its place");
    assert!(a.link().unwrap().is_connected && b.link().unwrap().is_connected);
}

// F20, I-33
#[tokio::test]
async fn a_redis_that_is_emptied_or_dies_does_no_harm() {
    let mut redis = Redis::start();
    let (a, b) = pair(&redis).await;
    a.report(job(1), lease(), &progress(1.0, 10));
    until_found(&b, job(1)).await;

    redis.flush();
    assert_eq!(b.progress(job(1)).await, None);
    a.report(job(1), lease(), &progress(2.0, 20));
    assert_eq!(until_found(&b, job(1)).await.1.report.pct, Some(2.0));
    redis.kill();
    for peer_bus in [&a, &b] {
        until_connected(peer_bus, false).await;
    }
    let asked = Stopwatch::start();
    for number in 0..1000 {
        a.report(job(number), lease(), &progress(3.0, 30));
        assert_eq!(b.progress(job(number)).await, None);
    }
    assert!(asked.charged() < SOON, "{}", asked.reading());
    redis.restart();

    // Reports are not lost meanwhile: they are sent when Redis is back.
    assert_eq!(until_found(&b, job(1)).await.1.report.pct, Some(3.0));
}

// F20: a paused Redis is asked once a second at most, and no call waits long.
#[tokio::test]
async fn no_call_waits_for_a_paused_redis() {
    let redis = Redis::start();
    let (a, b) = pair(&redis).await;
    a.report(job(1), lease(), &progress(1.0, 10));
    until_found(&b, job(1)).await;

    redis.pause();
    let asked = Stopwatch::start();
    for _ in 0..200 {
        assert_eq!(b.progress(job(1)).await, None);
    }
    let taken = asked.charged();
    redis.resume();

    assert!(taken < SOON, "200 questions took {taken:?}");
    assert_eq!(until_found(&b, job(1)).await.1.report.pct, Some(1.0));
}

// F20: two seconds each way.
#[tokio::test]
async fn a_redis_that_is_slow_is_not_waited_for() {
    let redis = Redis::start();
    let (a, _b) = pair(&redis).await;
    let proxy = FaultProxy::before(&redis.address()).await;
    let options = BusOptions { url: format!("redis://{}", proxy.address), store: STORE, node: 3 };
    let slow = RedisBus::start(options).unwrap();
    until_connected(&slow, true).await;
    a.report(job(1), lease(), &progress(1.0, 10));
    until_found(&slow, job(1)).await;

    proxy.delay(Duration::from_secs(2));
    let mut longest = Duration::ZERO;
    let began = Stopwatch::start();
    let mut asked = 0;
    // Most are answered at once: hundreds that each wait for their timeout would take longer than this is waited for.
    until("four seconds of many questions", PATIENT, async || {
        let one = Stopwatch::start();
        slow.report(job(2), lease(), &progress(1.0, 10));
        assert_eq!(slow.progress(job(1)).await, None);
        longest = longest.max(one.charged());
        asked += 1;
        (began.elapsed() > Duration::from_secs(4) && asked > 200).then_some(())
    })
    .await;
    proxy.heal();

    println!("{asked} questions, the longest took {longest:?}");
    assert!(longest < SOON, "{longest:?}");
    until_found(&slow, job(1)).await;
}

/// An operator may give us channels and no keys: then there is no progress to find, and all else is as it was.
#[tokio::test]
async fn a_user_without_keys_has_a_link_all_the_same() {
    let redis = Redis::start();
    let rule = "ACL SETUSER outlast on >secret resetkeys resetchannels &outlast:* -@all +publish +subscribe";
    assert_eq!(redis.command(rule), "+OK");
    let url = redis.url.replace("redis://", "redis://outlast:secret@");
    let (a, other) = (link(&redis, STORE, 1), RedisBus::start(BusOptions { url, store: STORE, node: 2 }).unwrap());
    for peer_bus in [&*a, &other] {
        until_connected(peer_bus, true).await;
        peer_bus.recv().await;
    }

    other.report(job(1), lease(), &progress(9.0, 10));
    let heard = hear_until(&a, |news| !news.progress.is_empty()).await;

    assert_eq!(heard.progress[&job(1)].progress.report.pct, Some(9.0), "messages go through");
    assert_eq!((other.progress(job(1)).await, a.progress(job(1)).await), (None, None));
    let sent = other.link().unwrap().sent;
    until("three beats", PATIENT, async || (other.link().unwrap().sent >= sent + 3).then_some(())).await;
    assert!(other.link().unwrap().is_connected);
    assert!(timeout(Duration::from_millis(100), other.recv()).await.is_err(), "it was never cut off");
}
