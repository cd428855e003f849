//! A node that has lost its database while its webhooks are reachable: it sends nothing whose attempt is not committed,
//! and what it has sent is remembered as long as its lease lasts. (F15)

use std::time::{Duration, Instant};

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::deliveries::{self, Told};
use outlast_tests::fault::FaultProxy;
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};
use outlast_tests::sink::{Say, Sink};
use outlast_tests::wait;
use serde_json::json;

use crate::api::{make_queue, publish};
use crate::push_load::{Mood, PushLoad, assert_sound, drained, endings, pushing};

/// The node behind the proxy.
const CUT: usize = 0;
/// A delivery's lease is its timeout and five seconds.
const LEASE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(60);
const JOBS: usize = 50;

/// So many nodes, of which the first one reaches the database through a proxy.
async fn behind_a_proxy(nodes: usize) -> (FaultProxy, Launch) {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let url = database.url_through(&proxy.address);
    let launch = pushing(Launch::on_database(database, Some(Redis::shared()), nodes));
    (proxy, launch.with_env_on(CUT, "OUTLAST_DATABASE_URL", &url))
}

async fn outcome_of(client: &Client, id: String) -> Told {
    deliveries::read(client, &[id]).await.remove(0)
}

// F15: hand-outs whose COMMIT has not come back are not sent, however long that takes, and however it ends.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_while_the_commit_of_its_attempt_is_held_up() {
    let (proxy, launch) = behind_a_proxy(1).await;
    let server = launch.start().await;
    let client = server.client();
    let sink = Sink::open(|_| Say::Status(200)).await;
    make_queue(
        &client,
        "work",
        json!({"webhookUrl": sink.url("/"), "webhookTimeout": 1, "backoff": {"type": "fixed", "delay": 0.1}}),
    )
    .await;
    client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    let mut ids = Vec::new();
    for number in 0..JOBS {
        ids.push(publish(&client, "work", json!(number)).await);
    }
    client.post("/v1/queues/work/resume", json!({})).await.unwrap().expect(200);
    wait::until_now("the first deliveries", DEADLINE, || (sink.count() == JOBS).then_some(())).await;
    drained(&client, "work", DEADLINE).await;

    // The alarm of these rings when no COMMIT comes through any more.
    let due = json!({"jobs": (0..JOBS).map(|number| json!({"payload": number, "delay": 1})).collect::<Vec<_>>()});
    let batch = client.post("/v1/queues/work/jobs/batch", due).await.unwrap().expect(202);
    proxy.hold_commits();
    wait::until_now("a COMMIT to be held", DEADLINE, || (proxy.commits_held() > 0).then_some(())).await;
    assert_nothing_comes(&sink, JOBS, Duration::from_secs(4)).await;
    proxy.cut_off();
    assert_nothing_comes(&sink, JOBS, Duration::from_secs(2)).await;
    proxy.heal();

    drained(&client, "work", DEADLINE).await;
    ids.extend(batch["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()));
    let account = deliveries::Account {
        jobs: deliveries::read(&client, &ids).await,
        deliveries: sink.arrivals(),
        ..Default::default()
    };
    assert_sound("commits held", &account);
    assert!(proxy.connections_cut() > 0, "the cut was felt");
}

/// Looks for so long: the absence of requests is what is to be seen.
async fn assert_nothing_comes(sink: &Sink, before: usize, time: Duration) {
    let ends = Instant::now() + time;
    while Instant::now() < ends {
        assert_eq!(sink.count(), before, "a request left although its attempt is not committed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// F15: under load on three nodes, one of which loses its database again and again, by closed connections and by
// silence.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_node_that_loses_its_database_belongs_to_a_committed_attempt() {
    let (proxy, launch) = behind_a_proxy(CLUSTER_NODES).await;
    let server = launch.start().await;
    let seed = seed("push cut off");
    let mut chance = Chance::seeded(!seed);
    let mut load = PushLoad::open(server.client(), seed).await;
    load.publish(6, Duration::from_millis(30));
    let mut pending = 0;
    for round in 0..volume(6, 200) {
        tokio::time::sleep(Duration::from_millis(chance.between(200, 600))).await;
        load.set_mood(if round % 2 == 0 { Mood::Slow } else { Mood::Mixed });
        wait::until_now("deliveries to be under way", DEADLINE, || (load.sink.open_now() > 0).then_some(())).await;
        match round % 3 {
            0 => proxy.cut_off(),
            1 => proxy.hold(),
            _ => proxy.hold_commits(),
        }
        pending += load.sink.open_now();
        tokio::time::sleep(Duration::from_millis(chance.between(300, 1500))).await;
        proxy.heal();
    }
    load.set_mood(Mood::Mixed);
    let account = load.finish(&server.client()).await;

    assert_sound("push cut off", &account);
    assert!(pending > 0, "no delivery was pending at any cut");
    let (cut, held, commits) = (proxy.connections_cut(), proxy.pieces_held(), proxy.commits_held());
    println!("push cut off: {pending} pending, {cut} connections cut, {held} pieces and {commits} COMMITs held");
    assert!(cut > 0 && held > 0 && commits > 0, "every fault was felt");
    assert!(endings(&account).contains_key("acked"));
}

// F15: the outcome of what was sent is stored when the database is back in time; nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_stored_after_a_short_cut() {
    let (proxy, launch) = behind_a_proxy(1).await;
    let server = launch.start().await;
    let client = server.client();
    let sink = Sink::open(|_| Say::Slowly(Duration::from_millis(500), 200)).await;
    make_queue(&client, "work", json!({"webhookUrl": sink.url("/"), "webhookTimeout": 10})).await;
    let id = publish(&client, "work", json!(1)).await;
    wait::until_now("the delivery", DEADLINE, || (sink.count() == 1).then_some(())).await;

    proxy.cut_off();
    wait::until_now("the answer", DEADLINE, || sink.arrivals()[0].answered).await;
    let refused = proxy.refused();
    wait::until_now("tries to store it", DEADLINE, || (proxy.refused() >= refused + 2).then_some(())).await;
    proxy.heal();

    drained(&client, "work", DEADLINE).await;
    let told = outcome_of(&client, id).await;
    assert_eq!((told.status(), told.attempts().count(), sink.count()), ("succeeded", 1, 1), "{told:?}");
}

// F15, F01: an outcome that cannot be stored is forgotten with its lease; another node delivers again, and one end
// counts.
#[tokio::test(flavor = "multi_thread")]
async fn another_node_delivers_again_after_a_long_cut() {
    let (proxy, launch) = behind_a_proxy(2).await;
    let server = launch.start().await;
    let sink = Sink::open(|_| Say::Slowly(Duration::from_millis(500), 200)).await;
    let settings =
        json!({"webhookUrl": sink.url("/"), "webhookTimeout": 5, "backoff": {"type": "fixed", "delay": 0.1}});
    make_queue(&server.client(), "work", settings).await;
    // Only one node is awake, so this one delivers.
    server.nodes[1].freeze().await;
    let id = publish(&server.nodes[CUT].client(), "work", json!(1)).await;
    wait::until_now("the delivery", DEADLINE, || (sink.count() == 1).then_some(())).await;
    proxy.cut_off();
    server.nodes[1].resume();

    let other = server.nodes[1].client();
    wait::until_now("the second delivery", LEASE + DEADLINE, || (sink.count() == 2).then_some(())).await;
    drained(&other, "work", DEADLINE).await;
    proxy.heal();

    let arrivals = sink.arrivals();
    assert_eq!(arrivals[0].answered, Some(200), "it was sent and answered while the node was cut off");
    let told = outcome_of(&other, id).await;
    assert_eq!((told.status(), told.endings("unknown"), told.endings("acked")), ("succeeded", 1, 1), "{told:?}");
    // From its claim, by the clock that all nodes share: a claim may wait for a lock before anything is sent.
    let lost = told.lasted("unknown");
    println!(
        "long cut: delivered again {:?} after the first, whose lease ended after {lost:?}",
        arrivals[1].at - arrivals[0].at
    );
    assert!(lost[0] >= LEASE, "not before its lease has ended: {lost:?}");
    assert!(proxy.connections_cut() > 0, "the cut was felt");
}
