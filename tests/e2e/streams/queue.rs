//! Changes of a queue, for dashboards: the queue first, then each job that changes, the counts, and a new beginning
//! when something was missed.

use std::time::Duration;

use outlast_tests::http::Client;
use outlast_tests::server::Server;
use outlast_tests::sse::{Asked, Frame, Next, Sse};
use outlast_tests::stopwatch::Stopwatch;
use serde_json::{Value, json};

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::streams::LIVE_MAX;

pub(crate) const QUEUE_STREAM: &str = "/v1/queues/work/stream";

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_queue_sees_the_queue_then_each_job_that_changes_and_the_counts() {
    let server = Server::fresh().await;
    let client = server.clients().remove(0);
    make_queue(&client, "work", json!({})).await;
    make_queue(&client, "other", json!({})).await;
    let before = publish(&client, "work", json!(1)).await;
    let mut stream = Sse::open_path(&client, QUEUE_STREAM).await;

    let first = stream.frame().await;
    publish(&client, "other", json!(1)).await;
    let id = publish(&client, "work", json!(1)).await;
    let published = until(&mut stream, |frame| frame.data["id"] == json!(id)).await;
    let held = receive_one(&client, "work").await;
    let claimed = until(&mut stream, |frame| frame.data["id"] == held["id"]).await;
    settle(&client, &text(&held["id"]), "ack", json!({"lease": held["lease"]})).await;
    let done = until(&mut stream, |frame| frame.data["status"] == "succeeded").await;
    let counted = until(&mut stream, |frame| counts(frame)["succeeded"] == json!(1)).await;

    assert_eq!((first.event.as_str(), &first.data["name"]), ("queue", &json!("work")));
    assert_eq!(first.data["counts"]["queued"], json!(1));
    assert_eq!((published.event.as_str(), &published.data["status"]), ("job", &json!("queued")));
    assert_eq!((&held["id"], &claimed.data["status"]), (&json!(before), &json!("running")));
    assert_eq!((&claimed.data["attempt"], &claimed.data["version"]), (&json!(1), &json!(2)));
    assert!(claimed.data["at"].is_string(), "{}", claimed.data);
    assert_eq!(done.data["id"], json!(before));
    assert_eq!(counts(&counted)["queued"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_and_what_is_too_much_show_the_whole_queue_again() {
    let server = Server::fresh().await;
    let client = server.clients().remove(0);
    make_queue(&client, "work", json!({})).await;
    let mut stream = Sse::open_path(&client, QUEUE_STREAM).await;
    stream.frame().await;

    client.post("/v1/queues/work/pause", json!({})).await.unwrap().expect(200);
    let paused = until(&mut stream, |frame| frame.event == "queue").await;
    let jobs: Vec<Value> = (0..1000).map(|number| json!({"payload": number})).collect();
    client.post("/v1/queues/work/jobs/batch", json!({"jobs": jobs})).await.unwrap().expect(202);
    let resync = until(&mut stream, |frame| frame.event != "counts").await;
    let after = stream.frame().await;
    client.post("/v1/queues/work/purge", json!({})).await.unwrap().expect(202);
    until(&mut stream, |frame| counts(frame)["cancelled"] == json!(1000)).await;

    assert_eq!(paused.data["paused"], json!(true));
    assert_eq!((resync.event.as_str(), after.event.as_str()), ("resync", "queue"));
    assert_eq!(after.data["counts"]["queued"], json!(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_come_at_most_once_a_second_however_much_happens() {
    let server = Server::fresh().await;
    let client = server.clients().remove(0);
    make_queue(&client, "work", json!({})).await;
    let mut stream = Sse::open_path(&client, QUEUE_STREAM).await;
    let started = Stopwatch::start();
    let busy = tokio::spawn(async move {
        for number in 0..150 {
            publish(&client, "work", json!(number)).await;
        }
    });

    let mut seen = 0;
    until(&mut stream, |frame| {
        seen += usize::from(frame.event != "job");
        counts(frame)["queued"] == json!(150)
    })
    .await;

    busy.await.unwrap();
    let seconds = started.elapsed().as_secs() as usize;
    assert!(seen <= seconds + 2, "{seen} counts in {seconds} s");
}

// T13, T38: to see a queue takes a key that reaches it, for as long as it is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_shown_to_those_who_reach_it_and_no_longer_than_their_key_lasts() {
    let server = Server::fresh().await;
    let client = server.client();
    let webhook = json!({"mode": "standard", "webhookUrl": "http://127.0.0.1:9/", "headers": {"x-secret": "abc"}});
    make_queue(&client, "work", webhook).await;
    make_queue(&client, "other", json!({})).await;
    let reader = key(&client, json!({"name": "r", "scopes": ["read:work"]})).await;
    let narrow = key(&client, json!({"name": "o", "scopes": ["read:other"]})).await;
    let stranger = key(&client, json!({"name": "n", "scopes": ["admin"], "namespace": "neighbour"})).await;
    let mut stream = Sse::open_path(&reader.0, QUEUE_STREAM).await;

    let seen = stream.frame().await;
    for outsider in [&narrow.0, &stranger.0] {
        match Sse::ask_path(outsider, QUEUE_STREAM).await.unwrap() {
            Asked::Answer(reply) => reply.expect_problem(404, "queue_not_found"),
            Asked::Open(_) => panic!("a stream has opened"),
        };
    }
    let revoked = Stopwatch::start();
    client.delete(&format!("/v1/keys/{}", reader.1)).await.unwrap().expect(200);
    while stream.next().await != Next::End {}

    assert!(revoked.charged() < Duration::from_secs(5), "{}", revoked.reading());
    assert_eq!(seen.data["headers"]["x-secret"], json!("****"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_queue_ends_with_the_queue_and_with_the_server() {
    let mut server = Server::fresh().await;
    let client = server.clients().remove(0);
    make_queue(&client, "work", json!({})).await;
    make_queue(&client, "other", json!({})).await;
    let mut of_deleted = Sse::open_path(&client, QUEUE_STREAM).await;
    let mut of_other = Sse::open_path(&client, "/v1/queues/other/stream").await;
    of_deleted.frame().await;
    of_other.frame().await;

    client.delete("/v1/queues/work").await.unwrap().expect(204);
    while of_deleted.next().await != Next::End {}
    server.ask_to_stop();
    while of_other.next().await != Next::End {}

    assert!(server.terminate().await.success());
}

/// The counts in a frame: alone, or with the queue when the poll has found them.
fn counts(frame: &Frame) -> &Value {
    match frame.event.as_str() {
        "counts" => &frame.data,
        "queue" => &frame.data["counts"],
        _ => &Value::Null,
    }
}

/// The next frame like this; panics when none comes in time.
pub(crate) async fn until(stream: &mut Sse, mut fits: impl FnMut(&Frame) -> bool) -> Frame {
    let started = Stopwatch::start();
    loop {
        let frame = stream.frame().await;
        if fits(&frame) {
            return frame;
        }
        assert!(!started.has_passed(4 * LIVE_MAX), "the last one was {frame:?}");
    }
}

/// A key, and its id.
async fn key(client: &Client, request: Value) -> (Client, String) {
    let key = client.post("/v1/keys", request).await.unwrap().expect(201);
    (Client::new(&client.base, &text(&key["key"])), text(&key["id"]))
}
