//! A job's log over a WebSocket: the same as the stream of events, and a way to cancel from the same connection. (I-32,
//! F30, T38)

mod bounds;
mod strange;

use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::nginx::Nginx;
use outlast_tests::server::Server;
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::ws::{Heard, Ws};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::api::{events, make_queue, publish, receive_one, settle, text};
use crate::http_edges::configured;
use crate::streams::resume::{Places, ROOM, Way, judge, lead_through_restarts, make_jobs, read_all};

const NORMAL: u16 = 1000;
const AWAY: u16 = 1001;
const POLICY: u16 = 1008;

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_brings_the_log_so_far_then_each_event_as_it_comes_then_closes() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut socket = Ws::open(&client, &id, None).await;

    let first = socket.frame().await;
    let held = receive_one(&client, "work").await;
    let second = socket.frame().await;
    settle(&client, &id, "ack", json!({"lease": held["lease"], "result": {"text": "a\nb\u{2028}"}})).await;
    let (rest, code) = socket.rest().await;
    let log = events(&client, &id).await;
    let (half, half_code) = Ws::open(&client, &id, Some(2)).await.rest().await;
    let nothing = Ws::open(&client, &id, Some(log.len() as u64)).await.rest().await;

    let all: Vec<Value> = [first, second].into_iter().chain(rest).collect();
    assert_eq!((&all, code), (&log, NORMAL));
    assert_eq!((half.as_slice(), half_code), (&log[2..], NORMAL));
    assert_eq!(nothing, (Vec::new(), NORMAL), "there is nothing to come back for");
}

// I-32 over sockets: cut again and again, also by a server that dies and one that stops.
#[tokio::test(flavor = "multi_thread")]
async fn sockets_cut_again_and_again_bring_every_event_once_and_in_order() {
    let mut chance = Chance::seeded(seed("sockets"));
    let mut server = configured(ROOM).await;
    let ids = make_jobs(&server.client()).await;
    let places = Places::of(&[server.base.clone()], &server.launch().key);
    let readers = read_all(&ids, volume(100, 1000), &places, (Way::Socket, &mut chance));

    lead_through_restarts(&mut server, |server| places.move_to(std::slice::from_ref(&server.base))).await;

    judge(&server.client(), &ids, readers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_from_its_socket_by_one_who_may() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let mut reader = Ws::open(&Client::new(&client.base, &text(&key["key"])), &id, Some(1)).await;
    let mut owner = Ws::open(&client, &id, Some(1)).await;

    reader.send(cancel()).await;
    let refused = reader.frame().await;
    let untouched = client.get(&format!("/v1/jobs/{id}")).await.unwrap().expect(200);
    owner.send(cancel()).await;
    let (frames, code) = owner.rest().await;
    let (seen, _) = reader.rest().await;

    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("forbidden")));
    assert_eq!(untouched["status"], json!("queued"));
    let (answers, log): (Vec<Value>, Vec<Value>) =
        frames.into_iter().partition(|frame| frame["type"] == "cancelled_requested");
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!((&answers[0]["id"], &answers[0]["status"]), (&json!(id), &json!("cancelled")));
    assert_eq!((&log, code), (&seen, NORMAL));
    assert_eq!(log.last().map(|event| text(&event["to"])), Some("cancelled".to_owned()));
}

// T38: a socket lives no longer than its key.
#[tokio::test(flavor = "multi_thread")]
async fn sockets_close_within_five_seconds_of_the_revocation_of_their_key() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let key = client.post("/v1/keys", json!({"name": "k", "scopes": ["read"]})).await.unwrap().expect(201);
    let mut mine = Ws::open(&client, &id, Some(1)).await;
    let mut theirs = Vec::new();
    for _ in 0..20 {
        theirs.push(Ws::open(&Client::new(&client.base, &text(&key["key"])), &id, Some(1)).await);
    }

    let revoked = Stopwatch::start();
    client.delete(&format!("/v1/keys/{}", text(&key["id"]))).await.unwrap().expect(200);
    for socket in &mut theirs {
        assert_eq!(socket.next().await, Heard::Closed(POLICY));
    }
    let taken = revoked.charged();
    mine.send(cancel()).await;
    let (others, code) = mine.rest().await;

    println!("closed after {taken:?}");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    assert_eq!((others.len(), code), (2, NORMAL), "sockets of other keys go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_says_so_to_its_sockets() {
    let mut server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let mut sockets = Vec::new();
    for _ in 0..6 {
        sockets.push(Ws::open(&client, &id, Some(1)).await);
    }

    let started = Stopwatch::start();
    server.ask_to_stop();
    for socket in &mut sockets {
        assert_eq!(socket.next().await, Heard::Closed(AWAY));
    }
    drop(sockets);
    let status = server.terminate().await;

    assert!(status.success() && started.charged() < Duration::from_secs(10), "{status} after {}", started.reading());
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_passes_a_socket_on_where_configured() {
    let server = Server::fresh().await;
    let client = server.client();
    make_queue(&client, "work", json!({})).await;
    let id = publish(&client, "work", json!(1)).await;
    let nginx = Nginx::before(
        &server.base,
        "proxy_http_version 1.1;\nproxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection \"upgrade\";\n",
    );
    let plain = Nginx::before(&server.base, "");
    let mut socket = Ws::open(&Client::new(&nginx.base, &client.key), &id, None).await;

    assert_eq!(socket.frame().await["seq"], json!(1));
    socket.send(cancel()).await;
    let (rest, code) = socket.rest().await;
    let refused = Ws::ask(&Client::new(&plain.base, &client.key), &id, None).await.err();

    assert_eq!((rest.len(), code), (2, NORMAL));
    assert_eq!(refused, Some(outlast_tests::ws::Refused::Status(400)), "a proxy that drops the header is named");
}

fn cancel() -> Message {
    Message::text(json!({"type": "cancel"}).to_string())
}
