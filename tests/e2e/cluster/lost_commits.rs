//! The connection is lost after COMMIT was carried out and before the node heard of it. The node must find out by looking:
//! nobody may be told "not stored" about what is stored, and nothing may be stored twice. (F16)

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_tests::chance::{seed, volume};
use outlast_tests::fault::FaultProxy;
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch};
use outlast_tests::workload::snapshot::listed;
use serde_json::json;

use crate::accounting::Accounting;
use crate::api::{job, make_queue, receive_one, text};
use crate::cluster::clients;

/// Answers to COMMITs lost under load; each node loses some.
const LOST_MIN: u64 = 20;
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

// F16, one by one: each publish and each ack whose COMMIT was carried out is acknowledged, once: the database is there to
// be asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_acknowledged_once() {
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
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let url = database.url_through(&proxy.address);
    let launch = Launch::on_database(database, Some(Redis::shared()), nodes);
    (proxy, launch.with_env("OUTLAST_DATABASE_URL", &url))
}
