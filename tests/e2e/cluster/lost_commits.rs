//! The connection is lost after COMMIT was executed and before the node got the answer. The node must look it up:
//! no client may get "not stored" for stored data, and nothing may be stored twice. (F16)

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::fault::FaultProxy;
use outlast_tests::http::Client;
use outlast_tests::postgres::{Database, Postgres};
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};
use outlast_tests::wait;
use outlast_tests::workload::snapshot::listed;
use serde_json::json;

use crate::accounting::Accounting;
use crate::api::{job, make_queue, receive_one, text};
use crate::cluster::{blocking, clients, until_it_publishes};

/// Answers to COMMITs lost under load; each node loses some.
const LOST_MIN: u64 = 20;
/// From the return of the database to an acknowledged publish.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(30);
const LOAD_DEADLINE: Duration = Duration::from_secs(40);
/// Publishes and acks whose COMMIT loses its answer, one by one.
const ONE_BY_ONE: usize = 20;

// F16, under load: the accounting finds what was acknowledged and lost, and what was refused and yet done.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_to_commits_are_resolved_by_looking() {
    let (proxy, launch) = all_behind_a_proxy(CLUSTER_NODES).await;
    let mut accounting = Accounting::open_to_go_on(launch, seed("lost commits")).await;
    let wanted = volume(LOST_MIN as usize * 2, 5000) as u64;
    accounting
        .during(async |_, _| {
            proxy.lose_one_commit_in(7);
            let reached = async {
                while proxy.commits_lost() < wanted {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let _ = tokio::time::timeout(LOAD_DEADLINE, reached).await;
            proxy.heal();
        })
        .await;

    println!("lost commits: {} of {}", proxy.commits_lost(), proxy.commits());
    assert!(proxy.commits_lost() >= LOST_MIN, "only {} answers were lost", proxy.commits_lost());
    accounting.assert_sound("lost commits").await;
}

// F16, one by one: each publish and each ack whose COMMIT was carried out is acknowledged, once: the database is there
// to be asked.
#[tokio::test(flavor = "multi_thread")]
async fn committed_calls_are_acknowledged_once() {
    let (proxy, launch) = all_behind_a_proxy(1).await;
    let server = launch.start().await;
    let client = &clients(&server)[0];
    make_queue(client, "work", json!({"visibilityTimeout": 3600})).await;
    let mut acknowledged = BTreeSet::new();

    for number in 0..ONE_BY_ONE {
        let lost = proxy.commits_lost();
        proxy.lose_next_commit();
        let reply = client.post("/v1/queues/work/jobs", json!({"payload": number})).await.expect("an answer");
        proxy.heal();
        assert!(proxy.commits_lost() > lost, "publish {number}: the answer was lost on the way");
        acknowledged.insert(text(&reply.expect(202)["id"]));
        ack_with_a_lost_commit(client, &proxy).await;
    }

    let jobs: BTreeSet<String> = listed(client, "work").await.into_iter().collect();
    assert_eq!((acknowledged.len(), &jobs), (ONE_BY_ONE, &acknowledged), "each publish made one job");
}

// F16, F17: a database that crashes gives the numbers of transactions out again that it had not yet written down. A
// node that looks for his own by its number alone finds somebody else's.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_a_crash_gives_out_again_is_not_mistaken_for_the_lost_commit() {
    // A transaction without a sync is not written by accident.
    let mut postgres = blocking(|| Postgres::start_with("wal_writer_delay = 10s\n"));
    let (proxy, launch) = behind_a_proxy(blocking(|| postgres.database()), 1).await;
    let mut accounting = Accounting::open_to_go_on(launch.clone(), seed("numbers")).await;
    let database = launch.database().expect("a node has a database");
    blocking(|| database.psql("CREATE TABLE noise (n bigint)"));
    let mut given_out_again = 0;
    accounting
        .during(async |server, chance| {
            for _ in 0..volume(6, 200) {
                until_it_publishes(&server.nodes[0].client(), "probe", RECOVERY_DEADLINE).await;
                tokio::time::sleep(Duration::from_millis(chance.between(50, 150))).await;
                let held = proxy.commits_held();
                proxy.hold_commits();
                wait::until_now("a COMMIT on its way", RECOVERY_DEADLINE, || {
                    (proxy.commits_held() > held).then_some(())
                })
                .await;
                let before = blocking(|| next_number(database));
                blocking(|| postgres.stop_immediate());
                blocking(|| postgres.start_again());
                given_out_again += before.saturating_sub(blocking(|| next_number(database)));
                blocking(|| use_up_numbers(database));
                proxy.cut();
                proxy.heal();
            }
        })
        .await;

    println!("numbers: {given_out_again} were given out again");
    assert!(given_out_again > 0, "the database forgot no number");
    accounting.assert_sound("numbers").await;
}

/// The number of a transaction that is begun here and not synced.
fn next_number(database: &Database) -> u64 {
    database.psql("SELECT pg_current_xact_id()").parse().expect("a number")
}

/// Transactions of somebody else, all of them committed.
fn use_up_numbers(database: &Database) {
    database.psql("DO 'BEGIN FOR n IN 1..200 LOOP INSERT INTO noise VALUES (n); COMMIT; END LOOP; END'");
}

async fn ack_with_a_lost_commit(client: &Client, proxy: &FaultProxy) {
    let held = receive_one(client, "work").await;
    let path = format!("/v1/jobs/{}/ack", text(&held["id"]));
    let lost = proxy.commits_lost();
    proxy.lose_next_commit();
    let reply = client.post(&path, json!({"lease": held["lease"]})).await.expect("an answer");
    proxy.heal();
    assert!(proxy.commits_lost() > lost, "ack: the answer was lost on the way");
    assert_eq!(reply.expect(200)["status"], "succeeded");
    assert_eq!(job(client, &text(&held["id"])).await["status"], "succeeded");
}

async fn all_behind_a_proxy(nodes: usize) -> (FaultProxy, Launch) {
    behind_a_proxy(Postgres::shared().database(), nodes).await
}

async fn behind_a_proxy(database: Database, nodes: usize) -> (FaultProxy, Launch) {
    let proxy = FaultProxy::before(&database.address()).await;
    let url = database.url_through(&proxy.address);
    let launch = Launch::on_database(database, Some(Redis::shared()), nodes);
    (proxy, launch.with_env("OUTLAST_DATABASE_URL", &url))
}
