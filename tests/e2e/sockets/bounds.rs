//! F30: how many sockets there may be, and what becomes of a peer that does not read or is gone without a word.

use std::time::{Duration, Instant};

use outlast_tests::wait;
use outlast_tests::ws::{Refused, Ws};
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle};
use crate::http_edges::configured;
use crate::sockets::{NORMAL, cancel};
use crate::streams::until_none_is_open;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sockets_are_served_and_no_more_than_the_key_may_open() {
    const SOCKETS: usize = 1000;
    let server = configured(
        "limits:\n  streams: 2000\n  streams_per_key: 1000\n  connections: 3000\n  connections_per_address: 3000\n",
    )
    .await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut sockets = Vec::new();
    for _ in 0..SOCKETS {
        sockets.push(Ws::open(&client, &id, Some(1)).await);
    }

    assert_eq!(Ws::ask(&client, &id, Some(1)).await.err(), Some(Refused::Status(429)));
    let held = receive_one(&client, "work").await;
    settle(&client, &id, "ack", json!({"lease": held["lease"]})).await;
    let mut readers = JoinSet::new();
    for mut socket in sockets {
        readers.spawn(async move { socket.rest().await });
    }
    let stories = readers.join_all().await;

    assert_eq!(stories.len(), SOCKETS);
    for (frames, code) in stories {
        assert_eq!((frames.last().map(|last| last["to"].clone()), code), (Some(json!("succeeded")), NORMAL));
    }
    until_none_is_open(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_read_is_cut_and_harms_no_other_peer() {
    let server = configured("timeouts:\n  write_idle: 1s\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let reason = "\u{1}".repeat(1000);
    for _ in 0..200 {
        let held = receive_one(&client, "work").await;
        let body = json!({"retryAfter": 0, "scope": "job", "reason": reason, "lease": held["lease"]});
        settle(&client, &id, "defer", body).await;
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(client.base.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap();
    let slow = Ws::over(stream, &client, &id, None).await.unwrap();
    let mut quick = Ws::open(&client, &id, None).await;
    let quick = tokio::spawn(async move { quick.rest().await });

    until_one_is_open(&client, Duration::from_secs(15)).await;
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
    let (frames, code) = quick.await.unwrap();

    assert!(frames.len() > 600 && code == NORMAL, "{} frames, {code}", frames.len());
    drop(slow);
    until_none_is_open(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_answers_no_ping_is_found_out() {
    let server = configured("").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut alive = Ws::open(&client, &id, Some(1)).await;
    let alive = tokio::spawn(async move { alive.rest().await });
    // Never read from, so it never answers; there is room for pings in its buffers.
    let dead = Ws::open(&client, &id, Some(1)).await;
    let started = Instant::now();

    until_one_is_open(&client, Duration::from_secs(40)).await;
    let taken = started.elapsed();
    let mut closer = Ws::open(&client, &id, Some(1)).await;
    closer.send(cancel()).await;

    assert!(taken > Duration::from_secs(25), "{taken:?}");
    assert_eq!(alive.await.unwrap().1, NORMAL, "one who answers is kept");
    drop(dead);
}

async fn until_one_is_open(client: &outlast_tests::http::Client, deadline: Duration) {
    wait::until("the server to close the other one", deadline, async || {
        let metrics = client.get("/metrics").await.unwrap().body;
        metrics.as_str().unwrap().contains("outlast_streams_open 1\n").then_some(())
    })
    .await;
}
