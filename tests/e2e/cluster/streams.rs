//! I-32 on several nodes: readers that hop between them at every connection, while Redis is emptied and killed and a
//! node dies, see every event exactly once and in order.

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::postgres::Postgres;
use outlast_tests::redis::Redis;
use outlast_tests::server::{CLUSTER_NODES, Launch, Server};
use outlast_tests::sse::{Next, Sse};
use outlast_tests::stopwatch::Stopwatch;
use serde_json::json;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::cluster::{blocking, clients, three_deaf_nodes};
use crate::streams::queue::{QUEUE_STREAM, until};
use crate::streams::resume::{Places, READERS, ROOM, Way, finish, judge, make_jobs, move_on, read_all};

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_hop_between_nodes_miss_nothing_while_redis_fails_and_a_node_dies() {
    let mut chance = Chance::seeded(seed("hopping streams"));
    let mut redis = blocking(Redis::start);
    let launch = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES).with_config(ROOM);
    let mut server = launch.start().await;
    let ids = make_jobs(&server.client()).await;
    let places = Places::of(&bases(&server), &server.launch().key);
    let readers = read_all(&ids, volume(READERS, 1000), &places, (Way::Stream, &mut chance));

    redis.flush();
    move_on(&server.nodes[0].client()).await;
    blocking(|| redis.kill());
    assert!(!redis.is_running());
    move_on(&server.nodes[1].client()).await;
    server.kill_node(2).await;
    blocking(|| redis.restart());
    move_on(&server.nodes[0].client()).await;
    server.start_node_again(2).await;
    places.move_to(&bases(&server));
    finish(&server.nodes[2].client()).await;

    judge(&server.client(), &ids, readers).await;
}

// T38: also without signals to the other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn streams_on_all_nodes_end_within_five_seconds_of_the_revocation() {
    let server = three_deaf_nodes().start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({})).await;
    let id = publish(&nodes[0], "work", json!(1)).await;
    let key = nodes[0].post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let mut streams = Vec::new();
    for node in &nodes {
        streams.push(Sse::open(&Client::new(&node.base, &text(&key["key"])), &id, Some(1)).await);
    }

    let revoked = Stopwatch::start();
    nodes[0].delete(&format!("/v1/keys/{}", text(&key["id"]))).await.unwrap().expect(200);
    for stream in &mut streams {
        assert_eq!(stream.next().await, Next::End);
    }

    let taken = revoked.charged();
    println!("closed everywhere after {taken:?}");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
}

// A change of another node is seen within moments with Redis, and within about a second without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_followed_on_another_node_and_heals_when_redis_is_gone() {
    let mut redis = blocking(Redis::start);
    let server = Launch::on_database(Postgres::shared().database(), Some(&redis), CLUSTER_NODES).start().await;
    let nodes = clients(&server);
    make_queue(&nodes[0], "work", json!({})).await;
    let mut stream = Sse::open_path(&nodes[1], QUEUE_STREAM).await;
    assert_eq!(stream.frame().await.event, "queue");

    let id = publish(&nodes[0], "work", json!(1)).await;
    let held = receive_one(&nodes[0], "work").await;
    let seen = until(&mut stream, |frame| frame.event == "job").await;
    redis.flush();
    blocking(|| redis.kill());
    assert!(!redis.is_running());
    settle(&nodes[0], &id, "ack", json!({"lease": held["lease"]})).await;
    let healed =
        until(&mut stream, |frame| frame.event == "queue" && frame.data["counts"]["succeeded"] == json!(1)).await;

    assert_eq!((&seen.data["id"], &seen.data["status"]), (&json!(id), &json!("running")));
    assert_eq!(healed.data["counts"]["running"], json!(0));
}

fn bases(server: &Server) -> Vec<String> {
    server.nodes.iter().map(|node| node.base.clone()).collect()
}
