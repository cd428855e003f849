//! F30: how many streams there may be, how long they may be idle, and what becomes of a reader that does not read.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::sse::{Asked, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::http_edges::configured;
use crate::streams::{all_events, ask, assert_is_log, until_none_is_open};

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_limits_are_refused_and_places_are_freed() {
    let server = configured("limits:\n  streams: 4\n  streams_per_key: 3\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let other = Client::new(&client.base, &text(&key["key"]));
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(Sse::open(&client, &id, Some(1)).await);
    }

    let own = ask(&client, &id, Some(1)).await;
    open.push(Sse::open(&other, &id, Some(1)).await);
    let all = ask(&other, &id, Some(1)).await;
    drop(open);
    until_none_is_open(&server).await;

    assert!(own.headers.contains_key("retry-after") && all.headers.contains_key("retry-after"));
    own.expect_problem(429, "too_many_requests");
    all.expect_problem(503, "overloaded");
    // A stream that is refused, finished or only asked about holds no place.
    for _ in 0..10 {
        client.get(&format!("/v1/jobs/{id}/stream?after=9")).await.unwrap().expect(400);
        let head = client.send(client.request(Method::HEAD, &format!("/v1/jobs/{id}/stream"))).await.unwrap();
        head.expect(200);
    }
    until_none_is_open(&server).await;
    assert!(matches!(Sse::ask(&client, &id, None).await.unwrap(), Asked::Open(_)));
}

// A tenant may make as many keys as it likes; its streams still leave room for those of other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_many_keys_leaves_streams_to_others() {
    let server = configured("limits:\n  streams: 200\n  streams_per_key: 50\n").await;
    let operator = server.nodes[0].client();
    let greedy = operator.post("/v1/keys", json!({"name": "g", "scopes": ["admin"], "namespace": "greedy"})).await;
    let greedy = Client::new(&operator.base, &text(&greedy.unwrap().expect(201)["key"]));
    make_queue(&greedy, "work", json!({})).await;
    let id = publish(&greedy, "work", json!(1)).await;
    let mut open = Vec::new();
    let mut refused = Vec::new();
    for number in 0..5 {
        let request = json!({"name": format!("reader {number}"), "scopes": ["read"]});
        let key = greedy.post("/v1/keys", request).await.unwrap().expect(201);
        let reader = Client::new(&operator.base, &text(&key["key"]));
        for _ in 0..50 {
            match Sse::ask(&reader, &id, Some(1)).await.unwrap() {
                Asked::Open(stream) => open.push(stream),
                Asked::Answer(answer) => refused.push(answer),
            }
        }
    }

    make_queue(&operator, "work", json!({})).await;
    let own = publish(&operator, "work", json!(1)).await;
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(Sse::open(&operator, &own, Some(1)).await);
    }

    assert!((100..190).contains(&open.len()), "{} streams of one namespace", open.len());
    for answer in refused {
        answer.expect_problem(429, "too_many_requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_are_no_requests_in_flight() {
    let server = configured("limits:\n  in_flight_requests: 2\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(Sse::open(&client, &id, Some(1)).await);
    }

    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    for mut stream in open {
        assert_eq!(stream.rest().await.len(), 1);
    }
}

// A stream outlives every deadline of a request, and says that it is alive.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_stream_is_kept_open_by_keepalives() {
    let server = configured("timeouts:\n  keep_alive: 1s\n  head: 1s\n  write_idle: 1s\n").await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut stream = Sse::open(&client, &id, Some(1)).await;
    let started = Stopwatch::start();

    stream.keepalive().await;
    let (silent, charged) = (started.elapsed(), started.charged());
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);

    assert!(silent > Duration::from_secs(14) && charged < Duration::from_secs(20), "{silent:?}, {charged:?} charged");
    assert_eq!(stream.rest().await.len(), 1);
}

// F30: a reader that takes nothing is cut; the others get all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_is_cut_and_harms_no_other_reader() {
    let server = configured("timeouts:\n  write_idle: 1s\n").await;
    let client = server.nodes[0].client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    // Six bytes each on the wire: more in all than the buffers of the server and its socket may hold.
    let reason = "\u{1}".repeat(1000);
    for _ in 0..200 {
        let held = receive_one(&client, "work").await;
        let body = json!({"retryAfter": 0, "scope": "job", "reason": reason, "lease": held["lease"]});
        settle(&client, &id, "defer", body).await;
    }
    let address = client.base.strip_prefix("http://").unwrap().parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(address).await.unwrap();
    let head = format!("GET /v1/jobs/{id}/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", client.key);
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut quick = Sse::open(&client, &id, None).await;
    let quick = tokio::spawn(async move { quick.rest().await });

    // Both hold a place until the server closes the slow one.
    wait::until("the server to close the slow reader", Duration::from_secs(15), async || {
        let metrics = client.get("/metrics").await.unwrap().body;
        metrics.as_str().unwrap().contains("outlast_streams_open 1\n").then_some(())
    })
    .await;
    client.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.unwrap().expect(200);
    let whole = quick.await.unwrap();
    let mut got = Vec::new();
    let _ = slow.read_to_end(&mut got).await;

    assert_is_log(&whole, &all_events(&client, &id).await);
    let sent: usize = whole.iter().map(|frame| frame.data.to_string().len()).sum();
    println!("the slow reader got {} of about {sent} bytes", got.len());
    assert!(sent > 1_000_000, "the rig: a log of {sent} bytes is no test");
    assert!(got.len() < 500_000, "{} bytes were kept for one who does not read", got.len());
}
