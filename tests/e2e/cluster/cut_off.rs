//! One node is cut off from the database, by closed connections or by silence, while the others have it. (F15, F19)

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::fault::FaultProxy;
use outlast_tests::http::{Client, Ending, ending};
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;

use crate::accounting::Accounting;
use crate::cluster::{clients, until_it_publishes};

/// The node behind the proxy.
const CUT: usize = 0;
/// How long a node may try before it says that the database is not there, on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// A publish on a node that has its database.
const FLOW_MAX: Duration = Duration::from_secs(5);
/// From the end of the cut to an acknowledged publish.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(15);

// F15: its writes are refused definitely, other nodes work, and it reconnects.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_cut_off_from_the_database_says_so_and_heals() {
    let (proxy, launch) = one_behind_a_proxy().await;
    let mut accounting = Accounting::open_to_go_on(launch, seed("cut off")).await;
    accounting
        .during(async |server, chance| {
            tokio::time::sleep(Duration::from_millis(chance.between(100, 500))).await;
            proxy.cut_off();
            assert_definite_refusals(server).await;
            assert_unready(&server.nodes[CUT].client()).await;
            assert_others_flow(server).await;
            proxy.heal();
            heal(server, "cut off").await;
        })
        .await;

    assert!(proxy.connections_cut() > 0 && proxy.refused() > 0, "the cut was felt");
    accounting.assert_sound("cut off").await;
}

// F15: the same when nothing is closed and nothing comes through. Held bytes arrive late, and must do no harm then.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_answers_from_the_database_still_answers_and_recovers() {
    let (proxy, launch) = one_behind_a_proxy().await;
    let mut accounting = Accounting::open_to_go_on(launch, seed("silence")).await;
    accounting
        .during(async |server, chance| {
            tokio::time::sleep(Duration::from_millis(chance.between(100, 500))).await;
            proxy.hold();
            let started = Stopwatch::start();
            let node = server.nodes[CUT].client();
            let answer = node.post("/v1/queues/probe/jobs", json!({"payload": 1})).await;
            assert!(matches!(ending(&answer), Ending::Refused { status: 503, .. }), "{answer:?}");
            println!("silence: answered after {}", started.reading());
            assert!(started.charged() < ANSWER_MAX, "it took {}", started.reading());
            assert_others_flow(server).await;
            proxy.heal();
            heal(server, "silence").await;
        })
        .await;

    assert!(proxy.pieces_held() > 0, "the silence was felt");
    accounting.assert_sound("silence").await;
}

// F19: connections that break after any number of bytes, in the middle of whatever is being said.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_operation_is_lost_when_connections_break_in_the_middle() {
    let (proxy, launch) = one_behind_a_proxy().await;
    let mut accounting = Accounting::open_to_go_on(launch, seed("broken")).await;
    accounting
        .during(async |server, chance| {
            // All load goes through the node whose connections break.
            for other in (0..CLUSTER_NODES).filter(|node| *node != CUT) {
                server.leave_out(other);
            }
            break_connections(&proxy, server, chance).await;
            proxy.heal();
            heal(server, "broken").await;
        })
        .await;

    println!("broken: {} connections", proxy.connections_cut());
    assert!(proxy.connections_cut() >= 20, "only {} connections broke", proxy.connections_cut());
    accounting.assert_sound("broken").await;
}

async fn break_connections(proxy: &FaultProxy, server: &Server, chance: &mut Chance) {
    for _ in 0..volume(25, 1000) {
        let broken = proxy.connections_cut();
        proxy.reset_after(chance.between(1, 20_000));
        wait::until_now("a connection to break", ANSWER_MAX, || (proxy.connections_cut() > broken).then_some(())).await;
        proxy.heal();
        until_it_publishes(&server.nodes[CUT].client(), "probe", RECOVERY_DEADLINE).await;
    }
}

/// Three nodes, of which one reaches the database through a proxy.
async fn one_behind_a_proxy() -> (FaultProxy, Launch) {
    let database = Postgres::shared().database();
    let proxy = FaultProxy::before(&database.address()).await;
    let url = database.url_through(&proxy.address);
    let launch = Launch::on_database(database, Some(Redis::shared()), CLUSTER_NODES);
    (proxy, launch.with_env_on(CUT, "OUTLAST_DATABASE_URL", &url))
}

/// Every kind of write, each with a definite no in good time.
async fn assert_definite_refusals(server: &Server) {
    let node = server.nodes[CUT].client();
    for _ in 0..3 {
        let started = Stopwatch::start();
        let (publish, receive, change) = tokio::join!(
            node.post("/v1/queues/probe/jobs", json!({"payload": 1})),
            node.post("/v1/queues/work/receive", json!({})),
            node.patch("/v1/queues/probe", json!({"maxAttempts": 3})),
        );
        for answer in [publish, receive, change] {
            let reply = answer.expect("a node without its database answers");
            assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
            reply.expect_problem(503, "store_unavailable");
        }
        assert!(started.charged() < ANSWER_MAX, "it took {}", started.reading());
    }
}

async fn assert_unready(node: &Client) {
    wait::until("the node to say that it is not ready", ANSWER_MAX, async || {
        (node.get("/readyz").await.ok()?.status == 503).then_some(())
    })
    .await;
    node.get("/livez").await.unwrap().expect(200);
}

async fn assert_others_flow(server: &Server) {
    for (number, client) in clients(server).iter().enumerate().filter(|(number, _)| *number != CUT) {
        for _ in 0..20 {
            let started = Stopwatch::start();
            client.post("/v1/queues/probe/jobs", json!({"payload": 1})).await.unwrap().expect(202);
            assert!(started.charged() < FLOW_MAX, "node {number} took {}", started.reading());
        }
    }
}

async fn heal(server: &Server, rig: &str) {
    let node = server.nodes[CUT].client();
    let taken = until_it_publishes(&node, "probe", RECOVERY_DEADLINE).await;
    println!("{rig}: the node publishes {taken:?} after the end of the fault");
    wait::until("the node to say that it is ready", RECOVERY_DEADLINE, async || {
        (node.get("/readyz").await.ok()?.status == 200).then_some(())
    })
    .await;
}
