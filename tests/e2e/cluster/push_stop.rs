//! Rolling restarts of three nodes that deliver: no attempt is burned and nothing is lost. (I-31)

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use serde_json::json;

use crate::cluster::three_nodes;
use crate::push_load::{ACK, Mood, PushLoad, assert_nothing_charged, pushing};

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restarts_of_nodes_burn_no_attempt_and_lose_nothing() {
    let seed = seed("push rolling");
    let mut chance = Chance::seeded(!seed);
    let mut server = pushing(three_nodes()).start().await;
    let mut load = PushLoad::open(server.client(), seed).await;
    server.client().patch(&format!("/v1/queues/{ACK}"), json!({"ackTimeout": 120})).await.unwrap().expect(200);
    load.set_mood(Mood::Slow);
    load.publish(6, Duration::from_millis(40));
    for restart in 0..volume(20, 500) {
        // The moment of the stop is the random input of the rig.
        tokio::time::sleep(Duration::from_millis(chance.between(20, 150))).await;
        let node = restart % server.nodes.len();
        server.leave_out(node);
        let status = server.nodes[node].terminate().await;
        assert!(status.success(), "{status}");
        server.start_node_again(node).await;
    }
    let account = load.finish(&server.client()).await;

    assert_nothing_charged("push rolling", &account);
    assert!(account.jobs.len() > 200, "only {} jobs", account.jobs.len());
}
